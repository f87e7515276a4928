"""Buying: GPUInstances for the cheapest plan that serves the pods without a reservation."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose, ReplacedInstance
from forebay.budgets.admission import Admission, Held
from forebay.demand.reservation import Reservation
from forebay.lifecycle.cooldown import cooldowns, failures_so_far, without_usable_nodes
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope, OfferKey, SourceKey, SourcePoolKey
from forebay.model.workloads import Pod
from forebay.planning.candidates import CandidateContext, CandidateSet, CoolingDown, candidates
from forebay.planning.gangs import Gang, Gangs, gang_key
from forebay.planning.limits import caps
from forebay.planning.plan import Cap, LeftOut, Plan, Preferences, Purchase
from forebay.planning.planner import plan
from forebay.reconcile.class_finalizers import may_buy
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.made_plans import MadePlan, made_again
from forebay.reconcile.observed_sizes import observed_sizes
from forebay.reconcile.orders import OrderTerms, create_instance
from forebay.reconcile.snapshot import Snapshot, revisions
from forebay.reconcile.what_runs import NO_RESERVATIONS, known_gangs, looks_at_other_pods, running_pods
from forebay.reconcile.without_offers import explained

#: For so long after a source was configured, and after a start, purchases wait for its first offers: what is bought
#: meanwhile may cost more, and stays. Providers that answer one request a second need two or three.
FIRST_OFFERS: Final = timedelta(seconds=5)


class BuyResult(msgspec.Struct, frozen=True, kw_only=True):
    """GPUInstances to create, and the pods that nothing is bought for."""

    decisions: tuple[CreateInstance | DeleteRecord, ...] = ()
    #: Pods that no offer fits, with the reason.
    left_out: tuple[LeftOut, ...] = ()
    #: Pods whose budgets cannot pay for the planned capacity.
    held: tuple[Held, ...] = ()
    #: Earliest end of a cooldown, or of the time in which purchases wait for the first offers of a source.
    requeue_at: datetime | None = None
    #: For the next tick.
    plans: tuple[MadePlan, ...] = ()


def buy(
    snapshot: Snapshot,
    pods: Sequence[Pod],
    admission: Admission | None = None,
    *,
    reserved: Mapping[str, Reservation] = NO_RESERVATIONS,
) -> BuyResult:
    """Creates a GPUInstance for each purchase of the plan that the pods' budgets can pay.

    `reserved` are pods (by UID) with room on a free or launching node: members of gangs that need no capacity.
    """
    if not pods:
        return BuyResult()
    classes = tuple(filter(may_buy, snapshot.classes))
    gangs = known_gangs(snapshot, pods, reserved)
    planned, made = _planned(msgspec.structs.replace(snapshot, classes=classes), pods, gangs, Preferences())
    if (wait_until := first_offers_due(snapshot)) is not None:
        return BuyResult(left_out=planned.left_out, requeue_at=wait_until, plans=(made,))
    cooling = cooldowns(snapshot.records, snapshot.now, revisions(snapshot))
    affordable, held = within_dollars(planned.purchases, admission)
    decisions = order(snapshot, affordable)
    return BuyResult(
        decisions=decisions,
        left_out=planned.left_out,
        held=held,
        requeue_at=min((each.until for each in cooling.values()), default=None),
        plans=(made,),
    )


def first_offers_due(snapshot: Snapshot) -> datetime | None:
    """Until when purchases wait, at the longest, for sources that have neither told their offers nor failed."""
    return max(first_offers_by_class(snapshot).values(), default=None)


def first_offers_by_class(snapshot: Snapshot) -> Mapping[str, datetime]:
    """The same of the sources of each class that has such."""
    found: dict[str, datetime] = {}
    for key, source in snapshot.sources.items():
        if (
            source.offers is None
            and source.error is None
            and source.since is not None
            and source.enabled
            and source.problem is None
            and any(each.has_node for each in source.capabilities.deliveries)
            and (due := source.since + FIRST_OFFERS) > snapshot.now
        ):
            found[key.node_class] = max(due, found.get(key.node_class, due))
    return found


def order(
    snapshot: Snapshot,
    purchases: Sequence[Purchase],
    purpose: Purpose = Purpose.PODS,
    replaced: Sequence[GPUInstance] = (),
) -> tuple[CreateInstance | DeleteRecord, ...]:
    """A GPUInstance for each purchase, in place of one of the same name that is gone.

    `replaced` are the GPUInstances that go when these are Ready.
    """
    replaces = tuple(ReplacedInstance(name=each.metadata.name, uid=each.uid) for each in replaced)
    by_name = {record.metadata.name: record for record in snapshot.records}
    failures: dict[tuple[SourceKey, OfferKey, tuple[str, str]], int] = {}
    pools = {pool.key: pool for pool in snapshot.pools}
    by_class = {each.metadata.name: each for each in snapshot.classes}
    unusable = without_usable_nodes(snapshot.records)
    decisions: list[CreateInstance | DeleteRecord] = []
    for number, purchase in enumerate(purchases):
        candidate = purchase.candidate
        source = snapshot.sources[candidate.source]
        pool = (candidate.pool.namespace, candidate.pool.name)
        key = (candidate.source, candidate.offer.key, pool)
        if key not in failures:
            failures[key] = failures_so_far(snapshot.records, *key)
        # Names of machines are names at their clouds and in tailnets, which other clusters may use with pools alike.
        own = pools[pool].uid if pool in pools else ""
        terms = OrderTerms(
            pool=pools.get(pool),
            node_class=by_class.get(candidate.source.node_class),
            capabilities=source.capabilities,
            purpose=purpose,
            name_parts=(
                *(() if purchase.pods else (purpose.value, str(number), own)),
                *sorted(each.uid for each in replaces),
            ),
            replaces=replaces,
            failure_scope=FailureScope.POOL if SourcePoolKey(*pool, *candidate.source) in unusable else None,
        )
        delivers = source.delivery_of(candidate.offer)
        create = create_instance(purchase, delivers, terms, failures[key], by_name, snapshot.nodes)
        if (previous := by_name.get(create.name)) is not None:
            if previous.state is not InstanceState.GONE or previous.uid in snapshot.unrecorded_cost:
                continue  # an owned machine whose previous GPUInstance is still needed; it has one at a time
            decisions.append(_delete_previous(previous))
        decisions.append(create)
    return tuple(decisions)


def within_dollars(
    purchases: Sequence[Purchase], admission: Admission | None
) -> tuple[list[Purchase], tuple[Held, ...]]:
    """Purchases that the pods' budgets can pay, and the pods held back. A gang is held back as a whole."""
    if admission is None:
        return list(purchases), ()
    affordable: list[Purchase] = []
    held: list[Held] = []
    for purchase in purchases:
        offer = purchase.candidate.offer
        refusal = admission.admit_launch(purchase.pods, offer.price, offer.billing.minimum)
        if refusal is None:
            affordable.append(purchase)
        else:
            held += (msgspec.structs.replace(refusal, pod=pod) for pod in purchase.pods)
    while held:
        gangs = {gang: each for each in held if (gang := gang_key(each.pod)) is not None}
        # The next purchase for a gang of which another pod is held back already.
        incomplete = next((each for each in affordable if any(gang_key(pod) in gangs for pod in each.pods)), None)
        if incomplete is None:
            break
        affordable.remove(incomplete)
        why = next(gangs[gang] for pod in incomplete.pods if (gang := gang_key(pod)) in gangs)
        held += (msgspec.structs.replace(why, pod=pod) for pod in incomplete.pods)
    return affordable, tuple(held)


def plan_for(
    snapshot: Snapshot,
    pods: Sequence[Pod],
    preferences: Preferences = Preferences(),  # noqa: B008 (immutable)
    *,
    extra_caps: Sequence[Cap] = (),
    reserved: Mapping[str, Reservation] = NO_RESERVATIONS,
    alone: bool = False,
) -> Plan:
    """The cheapest capacity for the pods within the limits of pools and classes, and within `extra_caps`.

    `reserved` as for `buy`. `alone`: as if no pod belonged to a gang.
    """
    gangs = known_gangs(snapshot, pods, reserved)
    if alone:
        gangs = {key: Gang(min_count=0) for key in gangs}
    return _planned(snapshot, pods, gangs, preferences, extra_caps)[0]


def _planned(
    snapshot: Snapshot, pods: Sequence[Pod], gangs: Gangs, preferences: Preferences, extra_caps: Sequence[Cap] = ()
) -> tuple[Plan, MadePlan]:
    """The plan as it is told, and as it was made."""
    offering = candidates_now(snapshot)
    related = looks_at_other_pods(pods)
    limits = (*caps(snapshot.pools, snapshot.classes, snapshot.records), *extra_caps)
    preferences = msgspec.structs.replace(
        preferences, known_providers=frozenset(record.spec.provider for record in snapshot.records)
    )
    running = running_pods(snapshot) if related else ()
    nodes = tuple(snapshot.nodes.values()) if related else ()
    made = made_again(
        snapshot.memory.plans,
        (tuple(pods), offering.candidates, limits, preferences, offering.excluded, running, nodes, gangs),
        lambda: plan(
            pods,
            offering.candidates,
            limits,
            preferences,
            excluded=offering.excluded,
            running=running,
            nodes=nodes,
            gangs=gangs,
        ),
    )
    left_out = explained(made.plan.left_out, offering, snapshot)
    return msgspec.structs.replace(made.plan, left_out=left_out), made


def candidates_now(snapshot: Snapshot) -> CandidateSet:
    """What each pool may buy now."""
    context = CandidateContext(
        now=snapshot.now,
        namespaces=snapshot.namespaces,
        nodes=snapshot.nodes,
        remembered=snapshot.last_seen_nodes,
        daemons=snapshot.daemons,
        records=snapshot.records,
        observed=observed_sizes(snapshot.records, snapshot.classes),
        unreadable=snapshot.unreadable_records,
        cooldowns={
            key: CoolingDown(each.until, each.cause)
            for key, each in cooldowns(snapshot.records, snapshot.now, revisions(snapshot)).items()
        },
        operator_namespace=snapshot.rules.namespace,
    )
    return candidates(snapshot.sources, snapshot.pools, snapshot.classes, context)


def _delete_previous(previous: GPUInstance) -> DeleteRecord:
    sentence = f"{previous.metadata.name} is launched again. This GPUInstance of its previous run is replaced."
    return DeleteRecord(record=previous, reason=Reason.CAPACITY_NEEDED, sentence=sentence)
