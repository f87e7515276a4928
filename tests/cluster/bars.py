"""Whether stories on a real control plane that take minutes are told: by `make bars`."""

import os

FULL = os.environ.get("FOREBAY_BARS") == "full"
