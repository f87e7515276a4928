"""What is bought for the pods that nothing else takes, and why the rest must wait."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.engine.decisions import Request
from forebay.engine.orders import request
from forebay.engine.snapshot import Snapshot
from forebay.lifecycle.cooldown import cooling, failures_so_far
from forebay.lifecycle.steps import Forget
from forebay.lifecycle.transitions import state_of
from forebay.model.learning import as_learned
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.workloads import Pod
from forebay.planning.plan import Candidate, Excluded, LeftOut, PoolKey
from forebay.planning.planner import plan


class Bought(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[Request | Forget, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: When an offer that must rest now may be used again.
    look_again: datetime | None = None


def buy(snapshot: Snapshot, pods: Sequence[Pod]) -> Bought:
    if not pods:
        return Bought()
    resting = cooling(snapshot.records, snapshot.now)
    by_name = {record.metadata.name: record for record in snapshot.records}
    candidates, excluded = [], []
    for source in snapshot.sources.values():
        for offered in source.offers or ():
            assert offered.node_name is not None
            offer = as_learned(offered, snapshot.remembered.get(offered.node_name))
            node = Node(
                name=offer.node_name or "",
                uid="",
                resource_version=0,
                created=snapshot.now,
                labels=offer.labels,
                taints=offer.taints,
                capacity=offer.allocatable,
                allocatable=offer.allocatable,
                ready=True,
            )
            candidate = Candidate(
                pool=PoolKey("", ""),
                source=source.key,
                offer=offer,
                node=node,
                effective_price=offer.price,
                available=1,
            )
            record = by_name.get(offered.node_name)
            if record is not None and state_of(record.status) is not InstanceState.GONE:
                excluded.append(Excluded(candidate=candidate, reason=Reason.COMING, sentence="it is in use"))
            elif offer.key in resting:
                excluded.append(
                    Excluded(candidate=candidate, reason=Reason.COMING, sentence=resting[offer.key].sentence)
                )
            else:
                candidates.append(candidate)
    made = plan(pods, candidates, excluded=excluded)
    decisions: list[Request | Forget] = []
    for purchase in made.purchases:
        source = snapshot.sources[purchase.candidate.source]
        failures = failures_so_far(snapshot.records, purchase.candidate.offer.key)
        wanted = request(purchase, source.capabilities.delivers, failures)
        if (past := by_name.get(wanted.name)) is not None:
            decisions.append(_make_room(past))
        decisions.append(wanted)
    return Bought(
        decisions=tuple(decisions),
        left_out=made.left_out,
        look_again=min((each.until for each in resting.values()), default=None),
    )


def _make_room(past: GPUInstance) -> Forget:
    sentence = f"{past.metadata.name} is asked for again; this is the record of an earlier time."
    return Forget(record=past, reason=Reason.CAPACITY_NEEDED, sentence=sentence)
