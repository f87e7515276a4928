"""What the outcomes of all crash worlds have in common: when to give up, and how many requests are too many."""

import asyncio
from collections import Counter

_TIME_LIMIT = 4 * 3600.0
#: Seconds in which requests, but for the lease, are counted.
_WINDOW = 600.0


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

    def too_many_requests(self, allowed):
        if self.ledger.stormed:
            yield f"requests without end at {self.ledger.requests[-1].at:.3f} s: {self._frequent()}"
        most = self.most_requests()
        if most > allowed:
            yield f"{most} requests within {_WINDOW:.0f} s, where {allowed} should do: {self._frequent()}"

    def most_requests(self):
        """But for the lease, in any window."""
        times = [sent.at for sent in self.ledger.requests if not sent.is_lease]
        most = first = 0
        for last, at in enumerate(times):
            while times[first] <= at - _WINDOW:
                first += 1
            most = max(most, last - first + 1)
        return most

    def _frequent(self):
        return Counter((sent.method, sent.path) for sent in self.ledger.requests if not sent.is_lease).most_common(5)
