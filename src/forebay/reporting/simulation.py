"""What a simulation found, as values: one row for each policy, and the bound that no policy can be below."""

from collections.abc import Sequence
from datetime import timedelta
from fractions import Fraction

import msgspec

from forebay.model.quantities import Usd
from forebay.model.spans import human


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    #: In US dollars.
    cost: str
    #: Cost divided by the hindsight bound; None where that is 0.
    times_bound: float | None
    machines: int
    #: GPU-hours used of those paid for.
    gpu_utilisation: float
    wait_median_s: int
    wait_p95_s: int
    wait_longest_s: int
    #: Pods that no machine fits, and pods that limits, stock or the budget never let start.
    unserved: int
    left_waiting: int
    interruptions: int = 0
    gpu_hours_lost: float = 0.0


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    pods: int
    skipped: int
    gpu_hours: float
    #: Days from the first pod to the end of the last, if none waits.
    days: float
    seconds: int
    offers: int
    policies: tuple[PolicyRow, ...]
    #: The least that any policy could have paid, also one that knows the future.
    hindsight_bound: str
    notes: tuple[str, ...] = ()

    @property
    def length(self) -> str:
        """The time that the trace covers, in words."""
        return f"{self.days:g} days" if self.days > 1 else human(timedelta(seconds=self.seconds))


def ratio(cost: Usd, bound: Usd) -> float | None:
    return round(float(Fraction(cost.units, bound.units)), 4) if bound else None


def percentile(ordered: Sequence[int], share: float) -> int:
    """Of values in order; 0 where there are none."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0
