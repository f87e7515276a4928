"""Settled GPUInstances: nothing is to be decided about them before a moment, unless what they depend on changes.

Most machines of a large cluster are Ready and stay so, and most remote containers run. A tick therefore remembers of
which of them it had nothing to decide, and on which objects that rested. The next tick looks at those again whose
objects are others by then, or whose moment has come. Objects are compared by identity: they never change, and an
informer keeps the ones it has.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from operator import is_
from typing import Final, NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.model.nodes import Node
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Pod

#: States in which machines stay for long, and in which a step depends on nothing but what is compared here. In the
#: others it also depends on pending pods.
LASTING: Final = frozenset({InstanceState.READY, InstanceState.RUNNING, InstanceState.GONE})


class SettledRecord(NamedTuple):
    """What was looked at when nothing was to be decided."""

    record: GPUInstance
    node: Node | None
    #: Those on the node, or the one that a container runs.
    pods: tuple[Pod, ...] | Pod | None
    #: The source that serves it, and what that said.
    served_by: SourceKey
    source: Source | None
    #: When time alone may bring the next step; None: only a change can.
    until: datetime | None


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The settled GPUInstances after a tick, by name."""

    #: When the tick looked.
    at: datetime | None = None
    #: What decisions about every GPUInstance depend on: offers, classes, pools, rules.
    context: tuple[object, ...] = ()
    records: Mapping[str, SettledRecord] = {}
    #: What all of these were compared with: where each is the same object again, none need be compared.
    seen: tuple[object, ...] = ()
    #: The GPUInstances besides.
    unsettled: tuple[GPUInstance, ...] = ()
    #: The first of the moments at which time alone may bring a step.
    until: datetime | None = None

    def as_seen(self, now: datetime, context: tuple[object, ...], seen: tuple[object, ...]) -> bool:
        """Whether every one of them is settled as it was, without a look at each."""
        same = len(seen) == len(self.seen) and all(map(is_, seen, self.seen))
        return same and (self.until is None or now < self.until) and bool(self.still(now, context))

    def still(self, now: datetime, context: tuple[object, ...]) -> Mapping[str, SettledRecord]:
        """Those that are settled in this context too, if they and their moment are as they were."""
        return self.records if self.at is not None and self.at <= now and self.context == context else {}

    def without(self, names: Collection[str]) -> "Settled":
        if self.records.keys().isdisjoint(names):
            return self
        kept = {name: each for name, each in self.records.items() if name not in names}
        # What was left out must be looked at again, so this was not seen by anybody.
        return Settled(at=self.at, context=self.context, records=kept)
