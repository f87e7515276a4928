"""How large the stories on a real control plane are: as their bars say with `make bars`, small in every other run."""

import os

FULL = os.environ.get("FOREBAY_BARS") == "full"
