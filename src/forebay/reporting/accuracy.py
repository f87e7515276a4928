"""How exactly a budget counts: the usage of pods whose starts and ends are known, against what its status says."""

from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Final

from forebay.model.quantities import CPU, GPU_SUFFIX, Quantity

_HOUR: Final = 3600
#: GPU-hours below which the thousandths of the status are too coarse for a ratio.
_MEASURABLE: Final = Fraction(1, 50)
#: GPU-seconds by which rounding to thousandths of an hour can differ.
_ROUNDING: Final = Fraction(36, 10)


@dataclass(frozen=True, slots=True)
class Load:
    """Pods that start one after the other at a constant rate, and run equally long."""

    count: int
    #: Pods a second.
    rate: Fraction
    runtime: timedelta
    #: Of the resource, for each pod.
    gpus: Quantity
    resource: str

    def due(self, number: int) -> float:
        """Seconds from the first pod to this one."""
        return float(number / self.rate)

    def expected(self, elapsed: timedelta) -> Fraction:
        """GPU-hours used so long after the first pod, if every pod starts when it is created and runs its time."""
        at, runtime = _seconds(elapsed), _seconds(self.runtime)
        starts = (Fraction(number) / self.rate for number in range(self.count))
        seconds = sum((max(min(at - start, runtime), Fraction(0)) for start in starts), Fraction(0))
        return seconds * Fraction(self.gpus.nano, 10**9) / _HOUR


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One reading of a budget's status."""

    load: Load
    elapsed: timedelta
    #: As `.status.consumedGpuHours` says.
    reported: Fraction
    tracked_pods: int

    @property
    def expected(self) -> Fraction:
        return self.load.expected(self.elapsed)

    @property
    def ratio(self) -> Fraction:
        """Reported usage divided by the expected, and 1 for more than that: as the predecessor's harness has it."""
        return min(self.reported / self.expected, Fraction(1)) if self.expected else Fraction(1)

    @property
    def difference(self) -> Fraction:
        """GPU-seconds reported beyond the expected ones. More than none is counted twice, or never ended."""
        return (self.reported - self.expected) * _HOUR

    def document(self) -> dict[str, str | int | float]:
        """For scripts."""
        return {
            "count": self.load.count,
            "rate": float(self.load.rate),
            "runtime_s": self.load.runtime.total_seconds(),
            "gpus": str(self.load.gpus),
            "resource": self.load.resource,
            "elapsed_s": round(self.elapsed.total_seconds(), 3),
            "expected_gpu_hours": _rounded(self.expected, 6),
            "reported_gpu_hours": _rounded(self.reported, 6),
            "accuracy": _rounded(self.ratio, 4),
            "difference_gpu_seconds": _rounded(self.difference, 2),
            "tracked_pods": self.tracked_pods,
        }


def reported_gpu_hours(text: str | int | None) -> Fraction:
    return Fraction(Quantity.parse(text).nano, 10**9) if text is not None else Fraction(0)


_TOO_LITTLE: Final = """
**Too little was used for this accuracy to mean anything**: the status is in thousandths of an hour. Use more pods
(--count), more of the resource (--gpus) or a longer --runtime, so that at least 0.02 hours are expected.
"""

_TOO_MUCH: Final = """
**More was counted than these pods can have used**: the accuracy above hides it, because it is capped at 1. Usage was
counted twice, or the clock of the cluster runs faster than this one (a demo with --speed).
"""


def summary(label: str, reading: Accuracy) -> str:
    """The report as a page."""
    found = reading.document()
    load = reading.load
    unit = "GPU" if load.resource.endswith(GPU_SUFFIX) else "core" if load.resource == CPU else load.resource
    rate, seconds = float(load.rate), load.runtime.total_seconds()
    return f"""# Accuracy of a budget{f": {label}" if label else ""}

{load.count} pods of {load.gpus} {load.resource}, {rate:g} a second, each for {seconds:g} s;
read {found["elapsed_s"]} s after the first was created.

| | |
|---|---|
| Pods counted by the budget | {reading.tracked_pods} of {load.count} |
| Expected | {found["expected_gpu_hours"]} {unit}-h |
| `.status.consumedGpuHours` | {found["reported_gpu_hours"]} {unit}-h |
| **Accuracy** | **{found["accuracy"]}** |
| Difference | {found["difference_gpu_seconds"]} {unit}-seconds |

Expected: the sum over all pods of the amount x the time from the pod's creation to the reading, at most its run time.
A pod starts some time after it is created, so the figure is below 1 while pods are starting. The status is in
thousandths of an hour, rounded, and as old as its last write. Accuracy is never above 1; a difference of more than
3.6 seconds above 0 means usage counted twice.
{_TOO_LITTLE if reading.expected < _MEASURABLE else ""}{_TOO_MUCH if reading.difference > _ROUNDING else ""}"""


def _seconds(span: timedelta) -> Fraction:
    return Fraction(span // timedelta(microseconds=1), 10**6)


def _rounded(number: Fraction, places: int) -> float:
    return round(float(number), places)
