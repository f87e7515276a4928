"""What all crash worlds have in common: how they run, when to give up, and how many requests are too many."""

import asyncio
from collections import Counter

from forebay.simulate.virtual_time import run
from tests.deep.plugin import count_world

_TIME_LIMIT = 4 * 3600.0
#: Seconds in which requests, but for the lease, are counted.
_WINDOW = 600.0
_RECORDS = "/apis/forebay.dev/v1alpha1/gpuinstances"


def run_world(world):
    """Result of the world's coroutine. An error in a callback of its loop, which nobody awaits, is raised too."""
    errors = []

    async def watched():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        return await world

    count_world()
    result = run(watched())
    for context in errors:
        if "handle" in context:
            raise context["exception"]
    return result


class WorldOutcome:
    """A world, what the operator sent (`ledger`), and who watches it."""

    def __init__(self, scenario, world, ledger, witness):
        self.scenario = scenario
        self.world = world
        self.ledger = ledger
        self.witness = witness
        self.quiet_at = None

    @property
    def over(self):
        """Whether the time limit is over or the operator floods the API server."""
        return asyncio.get_running_loop().time() > _TIME_LIMIT or self.ledger.stormed

    def too_many_requests(self, allowed, counts=lambda sent: not sent.is_lease):
        if self.ledger.stormed:
            yield f"requests without end at {self.ledger.requests[-1].at:.3f} s: {self._frequent(counts)}"
        most = self.most_requests(counts)
        if most > allowed:
            yield f"{most} requests within {_WINDOW:.0f} s, where {allowed} should do: {self._frequent(counts)}"

    def most_requests(self, counts=lambda sent: not sent.is_lease):
        """In any window: those that count, by default all but for the lease."""
        times = [sent.at for sent in self.ledger.requests if counts(sent)]
        most = first = 0
        for last, at in enumerate(times):
            while times[first] <= at - _WINDOW:
                first += 1
            most = max(most, last - first + 1)
        return most

    def allowed_for_machines(self, starts):
        """Requests that `starts` of the operator and the lives of machines need.

        A start lists 13 kinds, and publishes the machines' class and pool with their conditions. A launch that comes to
        nothing is repeated after its cooldown, and its transitions are told to the record, the pod and the machine's
        published pool: each costs up to 55 requests. How often a machine is launched is the witness' matter.
        """
        launches = self.most_requests(lambda sent: (sent.method, sent.path) == ("POST", _RECORDS))
        return 30 * starts + 8 * self.ledger.faults + 20 * len(self.scenario.machines) + 55 * launches

    def _frequent(self, counts):
        return Counter((sent.method, sent.path) for sent in self.ledger.requests if counts(sent)).most_common(5)
