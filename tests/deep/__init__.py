"""`make deep`: the laws with many more examples, in slices, each with a seed of its own.

A slice runs the same examples each time it runs on the same code. What a law runs in all slices together is written
beside it (`worlds_in_deep`); what was really run is counted, and printed at the end.
"""

import os

from hypothesis import settings

SLICES = 10
#: Of a law that says nothing else, in all slices together.
EXAMPLES = 2000
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"
#: Seed of this slice.
SEED = int(os.environ.get("FOREBAY_DEEP_SEED", "0"))
#: Where the slice writes how many worlds each law ran.
COUNTS = os.environ.get("FOREBAY_DEEP_COUNTS")
#: Try a crash at every request of every world with a fault, instead of a few by chance: tens of thousands of worlds.
EVERY_REQUEST = os.environ.get("FOREBAY_DEEP_CRASHES") == "every"


def worlds_in_deep(worlds: int, *, everyday: int = 50) -> settings:
    """Settings of a law that runs that many worlds in all slices of `make deep` together."""
    return settings(max_examples=worlds // SLICES if DEEP else everyday)
