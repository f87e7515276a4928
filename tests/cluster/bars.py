"""How large the stories on a real control plane are: as their bars say by `make bars`, else small."""

import os

FULL = os.environ.get("FOREBAY_BARS") == "full"
