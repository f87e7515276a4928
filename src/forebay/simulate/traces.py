"""Traces: which pods came when, and how long they ran, from published tables or one of your own.

The kind of a table is told by its columns:

- your own: `submitted` (seconds, or a time such as 2026-01-31T12:00:00Z), `duration` (seconds), `gpus`; and, where you
  know them, `cpu` and `memory` (quantities), `namespace`, `name`;
- openb (Alibaba, 2023): `creation_time`, `scheduled_time`, `deletion_time`, `num_gpu`, `cpu_milli`, `memory_mib`;
- Philly (Microsoft, 2017): `submit_s`, `duration_s`, `num_gpus`, `vc`.
"""

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from forebay.model.quantities import CPU, NVIDIA_GPU, InvalidQuantity, Quantity, Resources
from forebay.model.workloads import POD_COUNT, Phase, Pod, PodShape

#: When a trace begins that tells seconds only. Only differences of times matter.
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: A Job that needs more GPUs than the largest machines have is several pods.
LARGEST_POD: Final = 8
_LONGEST: Final = 10 * 365 * 86_400
_MOST_GPUS: Final = 100_000
_MIB: Final = 2**20
#: Digits after the point beyond which a number is zero.
_DIGITS: Final = 30
_DATE: Final = re.compile(r"\d{4}-\d")


class TraceError(ValueError):
    """A table that cannot be read, as one sentence with the line."""


class TracedPod(NamedTuple):
    #: Seconds from the start of the trace.
    submitted: int
    #: Seconds.
    duration: int
    pod: Pod


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    #: In the order of their times.
    pods: tuple[TracedPod, ...]
    #: Rows without GPUs, or that never ran: they need no capacity.
    skipped: int


class _Job(NamedTuple):
    submitted: Fraction
    duration: Fraction
    gpus: int
    #: In the scheduler's units; 0 where the trace does not tell.
    cpu: int
    memory: int
    namespace: str
    name: str


def read_trace(lines: Iterable[str]) -> Trace:
    """The pods of a table. Raises `TraceError`."""
    reader = csv.DictReader(lines, strict=True)
    try:
        columns = {name.strip() for name in reader.fieldnames or ()}
        read = next((each for needed, each in _KINDS.items() if needed <= columns), None)
        if read is None:
            kinds = "; or ".join(", ".join(sorted(needed)) for needed in _KINDS)
            found = ", ".join(reader.fieldnames or ()) or "nothing"
            raise TraceError(f"the table has none of the known sets of columns: {kinds}. Its first line has: {found}")
        jobs: list[_Job] = []
        skipped = 0
        times: dict[bool, int] = {}
        for row in reader:
            job = read(_Row({(name or "").strip(): value for name, value in row.items()}, reader.line_num, times))
            if job is None or job.gpus < 1 or job.duration < 1:
                skipped += 1
            elif job.duration > _LONGEST:
                raise TraceError(f"line {reader.line_num}: the pod runs for more than ten years")
            else:
                jobs.append(job)
    except csv.Error as error:
        raise TraceError(f"line {reader.line_num} is not CSV: {error}") from error
    jobs.sort(key=lambda each: (each.submitted, each.namespace, each.name))
    if jobs and jobs[-1].submitted - jobs[0].submitted > _LONGEST:
        raise TraceError("more than ten years are between its first and its last pod. Are all times in one unit?")
    return Trace(pods=tuple(_pods(jobs)), skipped=skipped)


def _pods(jobs: Sequence[_Job]) -> Iterator[TracedPod]:
    """The pods of Jobs that are sorted by time."""
    first = jobs[0].submitted if jobs else Fraction(0)
    shapes: dict[tuple[int, int, int], PodShape] = {}
    for number, job in enumerate(jobs):
        submitted, duration = int(job.submitted - first), int(job.duration)
        created = EPOCH + timedelta(seconds=submitted)
        count = -(-job.gpus // LARGEST_POD)
        for part in range(count):
            gpus = min(LARGEST_POD, job.gpus - part * LARGEST_POD)
            amounts = (gpus, job.cpu * gpus // job.gpus, job.memory * gpus // job.gpus)
            name = f"{job.name or f'job-{number}'}{f'-{part}' if count > 1 else ''}"
            shape = shapes.setdefault(amounts, _shape(*amounts))
            labels: dict[str, str] = {}
            uid = f"{number}-{part}"
            pod = Pod(
                *(job.namespace, name, uid, 0, created, shape, Phase.PENDING, labels, labels),
                *(None, None, None, None, created, None, ()),
            )
            yield TracedPod(submitted, duration, pod)


def _shape(gpus: int, cpu: int, memory: int) -> PodShape:
    return PodShape(requests=Resources({NVIDIA_GPU: gpus, CPU: cpu, "memory": memory, POD_COUNT: 1}))


class _Row(NamedTuple):
    cells: Mapping[str, str | None]
    line: int
    #: By whether a time is a date, the first line with such a one.
    times: dict[bool, int]

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> Fraction:
        text = self.text(column)
        try:
            number = Decimal(text)
        except InvalidOperation:
            number = Decimal("NaN")
        if number.is_nan():
            raise TraceError(f'line {self.line}: {column} is "{text}", which is no number')
        # A fraction would have as many digits as the exponent says: 1e-999999999 is 0.
        if not -_LONGEST <= number <= 10**15:
            raise TraceError(f"line {self.line}: {column} is {text}, which is out of range")
        return Fraction(number) if number.adjusted() > -_DIGITS else Fraction(0)

    def amount(self, column: str) -> Fraction:
        number = self.number(column)
        if number < 0:
            raise TraceError(f"line {self.line}: {column} is {self.text(column)}, which is negative")
        return number

    def gpus(self, column: str) -> int:
        """A share of a GPU counts as a whole one: Kubernetes gives no less."""
        count = math.ceil(self.amount(column))
        if count > _MOST_GPUS:
            raise TraceError(f"line {self.line}: {column} is {self.text(column)}, more than {_MOST_GPUS:,}")
        return count

    def quantity(self, column: str) -> Quantity:
        text = self.text(column) or "0"
        try:
            amount = Quantity.parse(text)
        except InvalidQuantity as error:
            raise TraceError(f"line {self.line}: {column}: {error}") from error
        if amount.milli < 0:
            raise TraceError(f"line {self.line}: {column} is {text}, which is negative")
        return amount

    def moment(self, column: str) -> Fraction:
        text = self.text(column)
        dated = _DATE.match(text) is not None
        self.times.setdefault(dated, self.line)
        if len(self.times) > 1:
            raise TraceError(
                f"line {self.times[True]}: {column} is a date, and in line {self.times[False]} a number of seconds, "
                "of which nobody can tell when they began. Write all alike"
            )
        if not dated:
            return self.number(column)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise TraceError(f'line {self.line}: {column} is "{text}", which is no time') from None
        return Fraction((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _own(row: _Row) -> _Job:
    return _Job(
        row.moment("submitted"),
        row.amount("duration"),
        row.gpus("gpus"),
        row.quantity("cpu").milli,
        row.quantity("memory").value,
        row.text("namespace") or "default",
        row.text("name"),
    )


def _openb(row: _Row) -> _Job | None:
    if not row.text("scheduled_time") or not row.text("deletion_time"):
        return None
    return _Job(
        row.number("creation_time"),
        row.number("deletion_time") - row.number("scheduled_time"),
        row.gpus("num_gpu"),
        int(row.amount("cpu_milli")),
        int(row.amount("memory_mib")) * _MIB,
        "default",
        row.text("name"),
    )


def _philly(row: _Row) -> _Job:
    """No processors and no memory are told."""
    return _Job(
        row.number("submit_s"), row.number("duration_s"), row.gpus("num_gpus"), 0, 0, row.text("vc") or "default", ""
    )


_KINDS: Final[Mapping[frozenset[str], Callable[[_Row], _Job | None]]] = {
    frozenset({"submitted", "duration", "gpus"}): _own,
    frozenset({"creation_time", "scheduled_time", "deletion_time", "num_gpu", "cpu_milli", "memory_mib"}): _openb,
    frozenset({"submit_s", "duration_s", "num_gpus"}): _philly,
}
