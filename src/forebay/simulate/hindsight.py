"""What a replay is compared with: the least that anybody could have paid, and machines that are always on."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.workloads import PodShape
from forebay.planning.plan import Candidate, Preferences
from forebay.planning.planner import plan
from forebay.simulate.policies import fits_alone, standing_clock
from forebay.simulate.traces import TracedPod


class AlwaysOn(msgspec.Struct, frozen=True, kw_only=True):
    """Machines for the busiest second of the trace, rented from its first to its last."""

    cost: Usd
    machines: int
    gpus: int
    seconds: int
    #: By the pods that run on them.
    gpu_seconds_used: int = 0
    #: Pods that no machine fits, and pods of the busiest second beyond the stock.
    unserved: int = 0


def hindsight_bound(trace: Sequence[TracedPod], candidates: Sequence[Candidate]) -> Usd:
    """A lower bound for every policy, also one that knows the future.

    Every pod pays for its own GPUs alone, for its own time alone, at the lowest price of a GPU on any machine that it
    fits on. A machine's price is at least that of its GPUs in use, so no policy that serves the same pods pays less.
    """
    cheapest: dict[int, tuple[PodShape, UsdPerHour]] = {}
    total = Usd(0)
    for traced in trace:
        shape = traced.pod.shape
        known = cheapest.get(id(shape))
        if known is None:
            known = cheapest[id(shape)] = (shape, _least(shape, candidates))
        total += known[1] * timedelta(seconds=traced.duration)
    return total


def _least(shape: PodShape, candidates: Sequence[Candidate]) -> UsdPerHour:
    """The lowest price of the GPUs of such a pod; nothing for one that no machine fits."""
    wanted = int(shape.gpus())
    units = [
        each.offer.price.units * wanted // int(gpus)
        for each in candidates
        if (gpus := each.node.allocatable.gpus()) and fits_alone(shape, each)
    ]
    return UsdPerHour.from_units(min(units, default=0))


def always_on(trace: Sequence[TracedPod], candidates: Sequence[Candidate]) -> AlwaysOn:
    """The planner's machines for the second in which most GPUs are asked for, if no pod waits.

    Pods that no machine fits are left out: a second in which they ask for most would have no machines.
    """
    fitting: dict[int, tuple[PodShape, bool]] = {}
    for each in trace:
        shape = each.pod.shape
        if id(shape) not in fitting:
            fitting[id(shape)] = (shape, any(fits_alone(shape, candidate) for candidate in candidates))
    served = [each for each in trace if fitting[id(each.pod.shape)][1]]
    made = plan([each.pod for each in _busiest(served)], candidates, (), Preferences(), clock=standing_clock)
    seconds = max((each.submitted + each.duration for each in trace), default=0)
    return AlwaysOn(
        cost=made.price * timedelta(seconds=seconds),
        machines=len(made.purchases),
        gpus=sum(each.candidate.offer.gpu_count for each in made.purchases),
        seconds=seconds,
        gpu_seconds_used=sum(each.duration * int(each.pod.shape.gpus()) for each in served),
        unserved=len(trace) - len(served) + len(made.left_out),
    )


def _busiest(trace: Sequence[TracedPod]) -> list[TracedPod]:
    """The pods of the second in which most GPUs are asked for."""
    changes = [(each.submitted, 1, number) for number, each in enumerate(trace)]
    # What ends in a second makes room for what begins in it.
    changes += [(each.submitted + each.duration, 0, number) for number, each in enumerate(trace)]
    here: set[int] = set()
    gpus = most = 0
    busiest: frozenset[int] = frozenset()
    for _, begins, number in sorted(changes):
        if begins:
            here.add(number)
            gpus += int(trace[number].pod.shape.gpus())
            if gpus > most:
                most, busiest = gpus, frozenset(here)
        else:
            here.discard(number)
            gpus -= int(trace[number].pod.shape.gpus())
    return [trace[number] for number in sorted(busiest)]
