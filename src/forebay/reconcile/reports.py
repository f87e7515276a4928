"""Status of GPUNodePools and GPUNodeClasses: conditions and totals. Written only where it has changed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolStatus
from forebay.api.parts import Condition, Truth
from forebay.disruption.pool_budgets import drain_is_late
from forebay.lifecycle.cooldown import Cooldown, cooldowns, failures_of
from forebay.lifecycle.node_certificates import approvals_by_class
from forebay.lifecycle.transitions import shortened
from forebay.model.kept import KeptTuple, among
from forebay.model.reasons import Reason
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import CooldownKey, SourceKey
from forebay.planning.pool_permissions import pool_refusal, unserved_namespaces
from forebay.reconcile.buying import first_offers_by_class
from forebay.reconcile.decisions import ReportClass, ReportPool, UnreadableInstance
from forebay.reconcile.isolation import Faults
from forebay.reconcile.machine_costs import MachineTotals, totals_by_class, totals_by_pool
from forebay.reconcile.pool_figures import gpu_totals, last_decisions, offers_of, offers_shown, records_by_pool
from forebay.reconcile.snapshot import Snapshot, revisions

#: Condition of a class: whether Forebay alone approves the certificates of its machines.
_JOIN_RESTRICTED: Final = "JoinRestricted"
#: Condition of a pool while some of its machines cannot go.
_TERMINATION_BLOCKED: Final = "TerminationBlocked"
_LEAVING: Final = (InstanceState.DRAINING, InstanceState.TERMINATING)
_MOST_NAMED: Final = 5
_NO_POOL: Final = (
    "All enabled providers are ready. No GPUNodePool names this class, so nothing of it is launched: create one with "
    'spec.nodeClassRef.name "{name}".'
)


_NO_MACHINES: Final = MachineTotals()
_NO_RECORDS: Final[KeptTuple[GPUInstance]] = KeptTuple()


class Fact(NamedTuple):
    """A condition without its last transition time, which depends on the conditions before."""

    type: str
    status: Truth
    reason: Reason
    sentence: str


def report_pools(
    snapshot: Snapshot,
    paused: Mapping[tuple[str, str], str],
    faults: Faults | None = None,
    more: Mapping[tuple[str, str], Sequence[Fact]] | None = None,
) -> Iterable[ReportPool]:
    """The status of each pool whose status has changed. That of a new pool waits for the first offers of its class, as
    purchases do, unless the class shows their number: it would be a second write, for all pools at once at a start.

    `paused` are the pools in which unhealthy machines are not replaced now, with the sentence why; `more` has further
    conditions.
    """
    if not snapshot.pools:
        return
    classes = {each.metadata.name: each for each in snapshot.classes}
    totals = totals_by_pool(snapshot.records)
    by_pool = records_by_pool(snapshot.records)
    blocked = _blocked(snapshot)
    cooling = _cooling_by_pool(snapshot)
    unanswered = first_offers_by_class(snapshot)
    for pool in snapshot.pools:
        if pool.metadata.deletion_timestamp is not None or not pool.uid:
            continue
        class_name = pool.spec.node_class_ref.name
        offers = offers_of(snapshot, class_name, offers_shown(pool, classes))
        if pool.status is None and offers is None and class_name in unanswered:
            continue
        found = node_class_ready(pool, classes, snapshot)
        current = pool.status.conditions if pool.status is not None else ()
        ready = _pool_ready(found, paused.get(pool.key), cooling[pool.key])
        records = by_pool.get(pool.key, _NO_RECORDS)
        if faults is not None and (fault := faults.told("GPUNodePool", pool.key)) is not None:
            ready = Fact("Ready", Truth.FALSE, Reason.RECONCILE_FAILED, fault)
        facts = (found, ready, *_terminating(blocked[pool.key], current), *(more or {}).get(pool.key, ()))
        conditions = merge_conditions(current, facts, pool.metadata.generation, snapshot.now)
        count, cost = totals.get(pool.key, _NO_MACHINES)
        status = pool.status or GPUNodePoolStatus()
        decided = last_decisions(records, status.last_decisions)
        gpus = {name: str(total) for name, total in gpu_totals(records).items()}
        shown = (status.node_count, status.hourly_cost, status.offers, status.last_decisions, status.resources)
        if conditions == current and shown == (count, cost.exact(), offers, decided, gpus):
            continue
        namespace, name = pool.key
        worst = next((fact for fact in facts if fact.status is not Truth.TRUE), facts[-1])
        yield ReportPool(
            namespace=namespace,
            name=name,
            uid=pool.uid,
            resource_version=pool.resource_version,
            generation=pool.metadata.generation or 0,
            conditions=conditions,
            node_count=count,
            hourly_cost=cost.exact(),
            resources={name: int(total) for name, total in gpus.items()},
            offers=offers,
            last_decisions=decided,
            reason=worst.reason,
            sentence=worst.sentence,
        )


def unreadable_instances(snapshot: Snapshot) -> Iterable[UnreadableInstance]:
    """An event for each GPUInstance that cannot be read."""
    for name, why in snapshot.unreadable_records.items():
        sentence = (
            f"Forebay cannot read this GPUInstance ({why}), so nothing is decided about it, and its machine may stay "
            "on. Correct or delete it, or upgrade Forebay."
        )
        yield UnreadableInstance(name=name, reason=Reason.UNREADABLE, sentence=sentence)


def report_classes(
    snapshot: Snapshot, more: Mapping[str, Fact] | None = None, faults: Faults | None = None
) -> Iterable[ReportClass]:
    """The status of each class whose status has changed. One without a UID is not published yet.

    `more` has a further condition of some classes, by name. A bug that concerns one class is added to `faults`, and
    told on that class.
    """
    if not snapshot.classes:
        return
    faults = faults or Faults()
    totals = totals_by_class(snapshot.records)
    cooling = cooldowns(snapshot.records, snapshot.now, revisions(snapshot))
    approvals = approvals_by_class(snapshot.records, snapshot.signing_requests)
    for node_class in snapshot.classes:
        if node_class.metadata.deletion_timestamp is not None or not node_class.uid:
            continue
        name = node_class.metadata.name
        facts: tuple[Fact, ...] = ()
        with faults.of("GPUNodeClass", "", name):
            facts = _class_facts(node_class, snapshot, snapshot.claimed_twice.get(name, {}), cooling)
        if (fault := faults.told("GPUNodeClass", ("", name))) is not None:
            facts = (Fact("Ready", Truth.FALSE, Reason.RECONCILE_FAILED, fault),)
        if (approved := approvals.get(name)) is not None:
            facts = (*facts, _join_restricted(approved))
        if (further := (more or {}).get(name)) is not None:
            facts = (*facts, further)
        status = node_class.status
        current = status.conditions if status is not None else ()
        conditions = merge_conditions(current, facts, node_class.metadata.generation, snapshot.now)
        count, cost = totals.get(name, _NO_MACHINES)
        offers = offers_of(snapshot, name, None if status is None else status.offers)
        shown = (status.active_nodes, status.hourly_cost, status.offers) if status is not None else None
        if conditions == current and shown == (count, cost.exact(), offers):
            continue
        yield ReportClass(
            name=name,
            uid=node_class.uid,
            resource_version=node_class.resource_version,
            generation=node_class.metadata.generation or 0,
            conditions=conditions,
            active_nodes=count,
            hourly_cost=cost.exact(),
            offers=offers,
            reason=facts[0].reason,
            sentence=facts[0].sentence,
        )


def node_class_ready(pool: GPUNodePool, classes: Mapping[str, GPUNodeClass], snapshot: Snapshot) -> Fact:
    name = pool.spec.node_class_ref.name
    found = classes.get(name)
    if found is None:
        sentence = f'GPUNodeClass "{name}" does not exist: create it, or correct spec.nodeClassRef.name.'
        return Fact("NodeClassReady", Truth.FALSE, Reason.NODE_CLASS_NOT_FOUND, sentence)
    if found.metadata.deletion_timestamp is not None:
        sentence = f'GPUNodeClass "{name}" is being deleted: name another in spec.nodeClassRef, or delete this pool.'
        return Fact("NodeClassReady", Truth.FALSE, Reason.NODE_CLASS_DELETING, sentence)
    refusal = pool_refusal(pool, found, snapshot.namespaces, snapshot.rules.namespace)
    if refusal is not None:
        return Fact("NodeClassReady", Truth.FALSE, refusal.reason, f"This pool gets no capacity: {refusal.sentence}.")
    unserved = unserved_namespaces(pool, found, snapshot.namespaces, snapshot.rules.namespace)
    bounded = (
        f" The class does not permit this pool to serve {_some(unserved)}: select these in the class's "
        "spec.allowedPodNamespaces."
        if unserved
        else ""
    )
    return Fact("NodeClassReady", Truth.TRUE, Reason.NODE_CLASS_FOUND, f'GPUNodeClass "{name}" exists.{bounded}')


def _pool_ready(node_class: Fact, paused: str | None, cooling: Sequence[str]) -> Fact:
    if node_class.status is Truth.TRUE and paused is not None:
        return Fact("Ready", Truth.FALSE, Reason.DISRUPTION_PAUSED, paused)
    if node_class.status is Truth.TRUE and cooling:
        sentence = (
            f"{node_class.sentence} Cooling down after a failure: {_some(cooling)}. "
            "To end a cooldown, delete its GPUInstance."
        )
        return Fact("Ready", Truth.TRUE, Reason.COOLING_DOWN, sentence)
    return node_class._replace(type="Ready")


def _some(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _blocked(snapshot: Snapshot) -> defaultdict[tuple[str, str], list[str]]:
    """By pool, what keeps machines from going: a failed termination, or pods that cannot be evicted."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for record in among(snapshot.records, _is_draining_or_terminating):
        if record.spec.pool_ref is None or (status := record.status) is None:
            continue
        name = record.metadata.name
        if status.state is InstanceState.TERMINATING and status.reason == Reason.TERMINATION_FAILED:
            found[record.pool_key].append(f"termination of {name} fails")
        if (
            status.state is InstanceState.DRAINING
            and drain_is_late(record, snapshot.now)
            and snapshot.pods_by_node.get(record.node_name or "")
        ):
            found[record.pool_key].append(f"pods cannot be evicted from {name}")
    return found


def _is_draining_or_terminating(record: GPUInstance) -> bool:
    return record.state in _LEAVING


def _terminating(blocked: list[str], current: tuple[Condition, ...]) -> tuple[Fact, ...]:
    """The condition TerminationBlocked, from the first machine on that could not go."""
    if blocked:
        sentence = (
            f"Some machines cannot be terminated or powered off: {_some(sorted(blocked))}; see their GPUInstances. "
            "Other idle machines of the pool still are."
        )
        return (Fact(_TERMINATION_BLOCKED, Truth.TRUE, Reason.TERMINATION_FAILED, sentence),)
    if any(each.type == _TERMINATION_BLOCKED for each in current):
        return (
            Fact(
                _TERMINATION_BLOCKED, Truth.FALSE, Reason.TERMINATED, "No termination or power-off is blocked any more."
            ),
        )
    return ()


def _cooling_by_pool(snapshot: Snapshot) -> defaultdict[tuple[str, str], list[str]]:
    """Records whose offer is cooling down, each with the end as a time of day, which is the same in every tick."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    now_in_effect = revisions(snapshot)
    for record in sorted(among(snapshot.records, failures_of), key=lambda each: each.metadata.name):
        for cooldown in cooldowns([record], snapshot.now, now_in_effect).values():
            found[record.pool_key].append(f"{record.metadata.name} until {cooldown.until:%H:%M:%S} UTC")
    return found


def _class_facts(
    node_class: GPUNodeClass,
    snapshot: Snapshot,
    doubly_claimed: Mapping[str, str],
    cooling: Mapping[CooldownKey, Cooldown],
) -> tuple[Fact, ...]:
    """Ready first, then ProviderValidation, then one condition for each enabled provider."""
    name = node_class.metadata.name
    facts = [
        _provider_ready(SourceKey(name, entry.name), entry, snapshot, doubly_claimed, cooling)
        or _before_the_check(node_class, entry.name)
        for entry in node_class.spec.providers
        if entry.enabled
    ]
    wrong = [fact for fact in facts if fact.status is not Truth.TRUE]
    if wrong:
        sentence = " ".join(fact.sentence for fact in wrong)
        known = Truth.FALSE if any(fact.status is Truth.FALSE for fact in wrong) else Truth.UNKNOWN
        reason = next(fact.reason for fact in wrong if fact.status is known)
        status = known if len(wrong) == len(facts) else Truth.TRUE
        valid = Fact("ProviderValidation", known, reason, sentence)
        return (Fact("Ready", status, reason, sentence), valid, *facts)
    sentence = "All enabled providers are ready."
    return (
        _class_served(node_class, snapshot) or Fact("Ready", Truth.TRUE, Reason.PROVIDERS_READY, sentence),
        Fact("ProviderValidation", Truth.TRUE, Reason.PROVIDERS_READY, sentence),
        *facts,
    )


def _join_restricted(approved: SigningRequest) -> Fact:
    """Whether only Forebay lets the machines of the class join. What the last join has shown holds until the next."""
    if approved.approval_reason == Reason.NODE_CERTIFICATE_APPROVED:
        sentence = "A machine gets the certificate of its own node only: Forebay approves each request."
        return Fact(_JOIN_RESTRICTED, Truth.TRUE, Reason.NODE_CERTIFICATE_APPROVED, sentence)
    why = approved.approval_reason or "no reason given"
    sentence = (
        f"The cluster approves the certificates of joining machines by itself ({why}), for any node name. Forebay "
        "cannot refuse a machine that joins under another name with a token of this class: it cordons and reports such "
        "a node. Where your cluster can leave approval to Forebay, remove the ClusterRoleBinding that lets it approve "
        "them (such as the one of bootstrappers to nodeclient)."
    )
    return Fact(_JOIN_RESTRICTED, Truth.FALSE, Reason.NODE_CERTIFICATE_AUTO_APPROVED, sentence)


def provider_condition(provider: str) -> str:
    """Type of the condition that says whether a provider is ready, such as WebhookReady or MyCloudReady."""
    return "".join(f"{word[:1].upper()}{word[1:]}" for word in provider.split("-")) + "Ready"


def _class_served(node_class: GPUNodeClass, snapshot: Snapshot) -> Fact | None:
    """Why a class with working providers serves nobody; None if it has a pool that may use it."""
    name = node_class.metadata.name
    pools = [pool for pool in snapshot.pools if pool.spec.node_class_ref.name == name]
    references = (each.spec.node_class_ref for each in snapshot.provisioners)
    if any(each is not None and each.name == name for each in references):
        return None
    if not pools:
        return Fact("Ready", Truth.FALSE, Reason.NO_NODE_POOL, _NO_POOL.format(name=name))
    refused = [pool_refusal(pool, node_class, snapshot.namespaces, snapshot.rules.namespace) for pool in pools]
    first = next((each for each in refused if each is not None), None)
    if first is None or not all(refused):
        return None
    names = _some(sorted("/".join(pool.key) for pool in pools))
    sentence = f"No GPUNodePool of this class may use it ({names}): {first.sentence}."
    return Fact("Ready", Truth.FALSE, first.reason, sentence)


def _provider_ready(
    key: SourceKey,
    entry: ProviderEntry,
    snapshot: Snapshot,
    doubly_claimed: Mapping[str, str],
    cooling: Mapping[CooldownKey, Cooldown],
) -> Fact | None:
    """Whether the provider can be used; None while that is not known, because it was not checked yet."""
    condition = provider_condition(key.provider)
    if (why := snapshot.unusable.get(key)) is not None:
        return Fact(condition, Truth.FALSE, Reason.PROVIDER_NOT_SERVED, why)
    twice = sorted(machine.name for machine in entry.machines if machine.name in doubly_claimed)
    if twice:
        names = "; ".join(f"{machine} (claimed by {doubly_claimed[machine]})" for machine in twice)
        sentence = f"Machines claimed twice are skipped: {names}. Name each machine in one place only."
        return Fact(condition, Truth.FALSE, Reason.CLAIMED_TWICE, sentence)
    source = snapshot.sources.get(key)
    if source is None:
        return Fact(condition, Truth.UNKNOWN, Reason.PROVIDER_NOT_CHECKED, f"{key.provider} is starting.")
    if source.error is not None:
        return Fact(condition, Truth.FALSE, source.error_reason, source.error)
    if (cooldown := cooling.get(key)) is not None:
        # Without "3m ago": the sentence is the same in every tick.
        sentence = (
            f"Nothing is launched at {key.provider} before {cooldown.until:%H:%M:%S} UTC: {cooldown.failure.message}"
        )
        return Fact(condition, Truth.FALSE, Reason(cooldown.failure.reason), sentence)
    if source.check is None:
        return None
    if not source.check.ok:
        return Fact(condition, Truth.FALSE, Reason.CHECK_FAILED, source.check.sentence)
    return Fact(condition, Truth.TRUE, Reason.PROVIDERS_READY, f"{key.provider} is ready. {source.check.sentence}")


def _before_the_check(node_class: GPUNodeClass, provider: str) -> Fact:
    """What was known of the provider before, such as by the last leader: a new one has yet to ask."""
    condition = provider_condition(provider)
    known = node_class.status.conditions if node_class.status is not None else ()
    for each in known:
        if each.type == condition and each.reason in set(Reason):
            return Fact(condition, each.status, Reason(each.reason), each.message)
    return Fact(condition, Truth.UNKNOWN, Reason.PROVIDER_NOT_CHECKED, f"{provider} is being checked.")


def merge_conditions(
    current: tuple[Condition, ...], facts: Iterable[Fact], generation: int | None, now: datetime
) -> tuple[Condition, ...]:
    """The current conditions with the facts merged in. The transition time changes only with the status."""
    conditions = {each.type: each for each in current}
    for fact in facts:
        before = conditions.get(fact.type)
        # The API keeps whole seconds: with fractions, the value read back would never equal the value decided.
        since = now.replace(microsecond=0)
        if before is not None and before.status is fact.status:
            since = before.last_transition_time
        conditions[fact.type] = Condition(
            type=fact.type,
            status=fact.status,
            reason=fact.reason,
            message=shortened(fact.sentence),
            last_transition_time=since,
            observed_generation=generation,
        )
    return tuple(conditions.values())
