"""What is bought for the pods that nothing else takes, and why the rest must wait."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.names import CLASS_FINALIZER
from forebay.budgets.admission import Admission, Held
from forebay.lifecycle.cooldown import cooldowns, failures_so_far
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.reasons import Reason
from forebay.model.sources import OfferKey
from forebay.model.workloads import Pod
from forebay.planning.candidates import CandidateContext, candidates
from forebay.planning.gangs import gang_key
from forebay.planning.limits import caps
from forebay.planning.plan import Cap, LeftOut, Plan, Preferences, Purchase
from forebay.planning.planner import plan
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.orders import create_instance
from forebay.reconcile.snapshot import Snapshot


class BuyResult(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[CreateInstance | DeleteRecord, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    #: Pods whose budgets have no dollars for what would be bought.
    held: tuple[Held, ...] = ()
    #: When an offer that must rest now may be used again.
    look_again: datetime | None = None


def buy(snapshot: Snapshot, pods: Sequence[Pod], admission: Admission | None = None) -> BuyResult:
    if not pods:
        return BuyResult()
    # Not from a class that could vanish before its machines.
    held = tuple(each for each in snapshot.classes if CLASS_FINALIZER in each.metadata.finalizers)
    made = plan_for(msgspec.structs.replace(snapshot, classes=held), pods)
    by_name = {record.metadata.name: record for record in snapshot.records}
    failures: dict[OfferKey, int] = {}
    decisions: list[CreateInstance | DeleteRecord] = []
    affordable, refused = within_dollars(made.purchases, admission)
    for purchase in affordable:
        source = snapshot.sources[purchase.candidate.source]
        key = purchase.candidate.offer.key
        if key not in failures:
            failures[key] = failures_so_far(snapshot.records, key)
        wanted = create_instance(purchase, source.capabilities.delivers, failures[key], by_name)
        if (past := by_name.get(wanted.name)) is not None:
            if past.state is not InstanceState.GONE or past.uid in snapshot.withheld:
                continue  # a machine that something is done about; there is one record of it at a time
            decisions.append(_make_room(past))
        decisions.append(wanted)
    return BuyResult(
        decisions=tuple(decisions),
        left_out=made.left_out,
        held=refused,
        look_again=min((each.until for each in cooldowns(snapshot.records, snapshot.now).values()), default=None),
    )


def within_dollars(
    purchases: Sequence[Purchase], admission: Admission | None
) -> tuple[list[Purchase], tuple[Held, ...]]:
    """Which of them budgets have dollars for, and who must wait. Of a gang, all must."""
    if admission is None:
        return list(purchases), ()
    kept: list[Purchase] = []
    held: list[Held] = []
    for purchase in purchases:
        offer = purchase.candidate.offer
        refusal = admission.ask_to_spend(purchase.pods, offer.price, offer.billing.minimum)
        if refusal is None:
            kept.append(purchase)
        else:
            held += (msgspec.structs.replace(refusal, pod=pod) for pod in purchase.pods)
    while held:
        gangs = {gang: each for each in held if (gang := gang_key(each.pod)) is not None}
        broken = next((each for each in kept if any(gang_key(pod) in gangs for pod in each.pods)), None)
        if broken is None:
            break
        kept.remove(broken)
        why = next(gangs[gang] for pod in broken.pods if (gang := gang_key(pod)) in gangs)
        held += (msgspec.structs.replace(why, pod=pod) for pod in broken.pods)
    return kept, tuple(held)


def plan_for(
    snapshot: Snapshot,
    pods: Sequence[Pod],
    preferences: Preferences = Preferences(),  # noqa: B008 (immutable)
    *,
    beside: Sequence[Cap] = (),
) -> Plan:
    """The cheapest capacity for them that pools and classes allow. `beside` are limits of nobody's but the asker."""
    context = CandidateContext(
        now=snapshot.now,
        namespaces=snapshot.namespaces,
        nodes=snapshot.nodes,
        remembered=snapshot.remembered,
        daemons=snapshot.daemons,
        records=snapshot.records,
        cooldowns=cooldowns(snapshot.records, snapshot.now),
    )
    offering = candidates(snapshot.sources, snapshot.pools, snapshot.classes, context)
    made = plan(
        pods,
        offering.candidates,
        (*caps(snapshot.pools, snapshot.classes, snapshot.records), *beside),
        msgspec.structs.replace(
            preferences, known_providers=frozenset(record.spec.provider.value for record in snapshot.records)
        ),
        excluded=offering.excluded,
    )
    left_out = tuple(_with_unknown(each, offering.unknown) for each in made.left_out)
    return msgspec.structs.replace(made, left_out=left_out)


def _make_room(past: GPUInstance) -> DeleteRecord:
    sentence = f"{past.metadata.name} is asked for again; this is the record of an earlier time."
    return DeleteRecord(record=past, reason=Reason.CAPACITY_NEEDED, sentence=sentence)


def _with_unknown(left: LeftOut, unknown: Sequence[str]) -> LeftOut:
    """What is not known might have helped: say so."""
    if not unknown:
        return left
    sentence = f"{left.sentence} Nothing is known of the offers of {'; '.join(unknown)}."
    return msgspec.structs.replace(left, sentence=sentence)
