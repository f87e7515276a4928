"""Consolidation and expiration: which nodes to drain now because they are idle or older than their pool allows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption, DisruptionReason
from forebay.api.values import NEVER, duration_or_never
from forebay.demand.maintenance import must_stay
from forebay.demand.replacements import REPLACEMENT, condition_of, told_of_replacement
from forebay.disruption.drift import drifted
from forebay.disruption.machine_use import MachineUse, is_idle, is_unneeded
from forebay.disruption.paid_time import LEAD, goes_at, paid_until
from forebay.disruption.pool_budgets import PoolBudgets, PoolName, pool_of
from forebay.lifecycle.wording import describe
from forebay.model.kept import among
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import pod_names

#: A node expires at the earliest when it has been Ready for so long. Where machines take longer to boot than their pool
#: lets them live, one after the other would be launched and replaced before its pods have come.
LEAST_SERVICE: Final = timedelta(minutes=10)


class ScaleDownRules(msgspec.Struct, frozen=True, kw_only=True):
    #: How long a machine that was found on stays on: its owner has this time to see what Forebay is about to do.
    adoption_grace: timedelta = timedelta(0)
    #: At most one owned machine begins to drain in this time.
    cycle: timedelta = timedelta(seconds=10)
    #: By namespace and name of the GPUNodePool. Nodes of a pool that is missing here are kept.
    pools: Mapping[PoolName, Disruption] = {}
    #: Hash of what machines of the pool are made of now. Nodes of a pool that is missing here have not drifted.
    templates: Mapping[PoolName, str] = {}
    #: Nodes that a pool keeps though no pod uses them.
    min_nodes: Mapping[PoolName, int] = {}


class ScaleDown(msgspec.Struct, frozen=True, kw_only=True):
    """Drain this node, then terminate it or power it off."""

    record: GPUInstance
    #: IDLE, EXPIRED or DRIFTED; NOT_NEEDED for a machine without a node, which is terminated at once.
    reason: Reason
    sentence: str


def scale_down(
    machines: Sequence[MachineUse], now: datetime, rules: ScaleDownRules, budgets: PoolBudgets | None = None
) -> tuple[ScaleDown, ...]:
    """The nodes to drain now, the largest first.

    `machines` must cover all records, Gone ones included: they show when the last owned machine was drained, and how
    many nodes of each pool are on their way out. Owned machines go one per cycle; nodes of a pool, owned or not, as its
    `disruption` says, within `budgets`, which disruptions for other reasons share. An owned machine neither expires nor
    drifts, because nothing newer could replace it.
    """
    unneeded = [
        ScaleDown(record=each.record, reason=Reason.NOT_NEEDED, sentence=why)
        for each, why in _unneeded(machines, now, rules)
    ]
    idle = [
        (each, why) for each in among(machines, is_idle) if (why := _idle_long_enough(each, now, rules)) is not None
    ]
    expiring = {name for name, disruption in rules.pools.items() if disruption.expire_after != NEVER}
    old = [
        (each, why)
        for each in machines
        if expiring and pool_of(each) in expiring and (why := _expired(each, now, rules)) is not None
    ]
    changed = [
        (each, why) for each in among(machines, _has_template) if (why := drifted(each, rules.templates)) is not None
    ]
    if not idle and not old and not changed:
        return tuple(unneeded)
    pools = budgets or PoolBudgets(machines, rules.pools, now)
    may_power_off = _may_power_off(machines, now, rules.cycle)
    kept = _kept_static((each for each, _ in idle), machines, rules)
    found: dict[str, ScaleDown] = {}
    for machine, sentence in sorted(idle, key=lambda pair: _largest_first(pair[0])):
        if machine.name in kept:
            continue
        one_by_one = machine.policy.leaves_one_by_one
        if (one_by_one and not may_power_off) or not pools.admit(machine, DisruptionReason.IDLE):
            continue
        may_power_off = may_power_off and not one_by_one
        found[machine.name] = ScaleDown(record=machine.record, reason=Reason.IDLE, sentence=sentence)
    for machine, sentence in sorted(old, key=lambda pair: _replaceable_first(pair[0])):
        if machine.name not in found and pools.admit(machine, DisruptionReason.EXPIRED):
            found[machine.name] = ScaleDown(record=machine.record, reason=Reason.EXPIRED, sentence=sentence)
    for machine, sentence in sorted(changed, key=lambda pair: _replaceable_first(pair[0])):
        if (
            machine.name not in found
            and pool_of(machine) in rules.pools
            and pools.admit(machine, DisruptionReason.DRIFTED)
        ):
            found[machine.name] = ScaleDown(record=machine.record, reason=Reason.DRIFTED, sentence=sentence)
    return (*unneeded, *found.values())


def still_unreplaced(machines: Iterable[MachineUse], now: datetime, rules: ScaleDownRules) -> frozenset[str]:
    """UIDs of expired and drifted nodes whose pods run on because nothing could take their place when it was last
    their turn. They stay so while budgets leave room for others only.
    """
    told = (each for each in among(machines, _told_of_replacement) if _is_unreplaceable(each))
    return frozenset(
        each.record.uid
        for each in told
        if _expired(each, now, rules) is not None or drifted(each, rules.templates) is not None
    )


def taken_back(machines: Iterable[MachineUse]) -> tuple[ScaleDown, ...]:
    """Nodes that their provider takes back at a known time: no budget limits them."""
    found: list[ScaleDown] = []
    for machine in among(machines, _told_of_replacement):
        told = condition_of(machine.record, REPLACEMENT)
        if told is not None and told.reason == Reason.RECLAIMED and machine.in_service and machine.held is None:
            sentence = told.message or "Its provider takes the machine back."
            found.append(ScaleDown(record=machine.record, reason=Reason.RECLAIMED, sentence=sentence))
    return tuple(found)


def next_scale_down(machines: Sequence[MachineUse], now: datetime, rules: ScaleDownRules) -> datetime | None:
    """When time alone may let a node go that `scale_down` keeps now; None where only a change can.

    A node that a disruption budget keeps is looked at again with every change, and when the operator resyncs.
    """
    due: list[datetime] = []
    expiring = {name for name, disruption in rules.pools.items() if disruption.expire_after != NEVER}
    waits_for_cycle = False
    kept = _kept_static(among(machines, is_idle), machines, rules)
    for machine in (*among(machines, is_idle), *among(machines, is_unneeded)):
        if machine.name not in kept and (goes := _goes_at(machine, now, rules)) is not None:
            due += [goes] if goes > now else []
            waits_for_cycle = waits_for_cycle or (goes <= now and machine.policy.leaves_one_by_one)
    for machine in machines if expiring else ():
        if pool_of(machine) in expiring and (expires_at := _expires_at(machine, rules)) is not None:
            due += [expires_at] if expires_at > now else []
    if waits_for_cycle:
        # One of them goes now, or another went less than a cycle ago.
        last = _last_power_off(machines)
        due.append((last if last is not None and now < last + rules.cycle else now) + rules.cycle)
    return min((at for at in due if at > now), default=None)


def _goes_at(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> datetime | None:
    """From when the idle node may go; None while it is kept whatever time it is."""
    if (machine.node is None and not machine.unneeded) or machine.record.purpose is Purpose.GROUP:
        return None  # members of a group go as their NodeProvisioner says
    if machine.refused is not None and not machine.refusal_recorded:
        # The pod must say so first, or another machine would be launched for it.
        return None
    delay = _idle_delay(machine, rules)
    if delay is None:
        return None
    idle_until = (machine.idle_since or now) + delay
    if delay and machine.refused is None:
        # Pods may come while it is paid. One that the scheduler refuses helps nobody, and 0s means at once.
        idle_until = goes_at(machine.record, idle_until, now)
    created = machine.record.metadata.creation_timestamp
    if machine.adopted and created is not None:
        return max(idle_until, created + rules.adoption_grace)
    return idle_until


def idle_ends(machines: Sequence[MachineUse], now: datetime, rules: ScaleDownRules) -> Mapping[str, datetime]:
    """By name of the machine, from when each node in service goes if no GPU pod comes; without those that stay."""
    static = _kept_static(among(machines, is_idle), machines, rules)
    found = ((each.name, _goes_at(each, now, rules)) for each in among(machines, _without_user))
    return {name: at for name, at in found if at is not None and name not in static}


def kept_idle(machines: Sequence[MachineUse], now: datetime, rules: ScaleDownRules) -> Mapping[str, str]:
    """By name of the machine, the sentence for idle nodes that stay: for minNodes, or because their time is paid."""
    static = _kept_static(among(machines, is_idle), machines, rules)
    found = dict.fromkeys(static, "It stays: its pool has no more nodes than its spec.minNodes.")
    for machine in (*among(machines, is_idle), *among(machines, is_unneeded)):
        if machine.name in static:
            continue
        delay = _idle_delay(machine, rules)
        end = paid_until(machine.record, max((machine.idle_since or now) + delay, now)) if delay else None
        if end is not None and machine.refused is None and end - LEAD > now:
            found[machine.name] = f"It is paid until {end:%H:%M} UTC and kept to near that time, as pods may come."
    return found


def _kept_static(idle: Iterable[MachineUse], machines: Iterable[MachineUse], rules: ScaleDownRules) -> frozenset[str]:
    """Names of the idle nodes without which their pool would have fewer Ready nodes than its minNodes."""
    if not rules.min_nodes:
        return frozenset()
    spare: defaultdict[PoolName, int] = defaultdict(int)
    for machine in machines:
        if (pool := pool_of(machine)) in rules.min_nodes and pool is not None:
            spare[pool] += machine.in_service
    kept: set[str] = set()
    for machine in sorted(idle, key=_largest_first):
        pool = pool_of(machine)
        if pool is None or pool not in rules.min_nodes:
            continue
        spare[pool] -= 1
        if spare[pool] < rules.min_nodes[pool]:
            kept.add(machine.name)
    return frozenset(kept)


def _without_user(machine: MachineUse) -> bool:
    return machine.in_service and machine.user is None


def _has_template(machine: MachineUse) -> bool:
    return machine.record.spec.template_hash is not None


def _told_of_replacement(machine: MachineUse) -> bool:
    return told_of_replacement(machine.record)


def _unneeded(machines: Iterable[MachineUse], now: datetime, rules: ScaleDownRules) -> Iterable[tuple[MachineUse, str]]:
    """Machines that boot for nobody and are terminated now, with the sentence why. No budget limits them: they are no
    nodes yet.
    """
    for machine in among(machines, is_unneeded):
        goes = _goes_at(machine, now, rules)
        if goes is not None and now >= goes:
            since = machine.idle_since or now
            lasted = f" for {human(now - since)}" if now - since >= timedelta(seconds=1) else ""
            why = f"none of its pods has been pending{lasted}"
            if machine.record.purpose is Purpose.STATIC:
                why = "its pool has enough nodes without it (spec.minNodes)"
            yield machine, f"{describe(machine.record)} still boots, but {why}, and no pod needs it. Terminating it."


def _idle_long_enough(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> str | None:
    """Why the idle node goes now; None while it is kept."""
    goes = _goes_at(machine, now, rules)
    if machine.node is None or goes is None or now < goes:
        return None
    span = now - (machine.idle_since or now)
    node, words = machine.node.name, machine.policy.words
    launched, ending = words.launched, words.terminating_it
    if machine.refused is not None:
        return f"Node {node} was {launched} for pod {machine.refused}, but the scheduler does not use it; {ending}."
    lasted = f" for {human(span)}" if span >= timedelta(seconds=1) else ""
    if machine.pods:
        return f"Node {node} has run no GPU pod{lasted}; evicting {pod_names(machine.pods)} and {ending}."
    return f"Node {node} has run nothing but DaemonSet pods{lasted}; {ending}."


def _idle_delay(machine: MachineUse, rules: ScaleDownRules) -> timedelta | None:
    """How long the node must have been idle before it goes; None where idle nodes are kept."""
    pool = pool_of(machine)
    if pool is None:
        # Without a pool there are machines that were found on and that no pool would use, machines of a
        # NodeProvisioner, and leftovers.
        return None
    disruption = rules.pools.get(pool)
    if disruption is None or disruption.consolidation_policy is ConsolidationPolicy.NEVER:
        return None
    return duration_or_never(disruption.consolidate_after)


def _expires_at(machine: MachineUse, rules: ScaleDownRules) -> datetime | None:
    """When the node expires; None where it never does, or something on it must not be disrupted."""
    pool = pool_of(machine)
    disruption = rules.pools.get(pool) if pool is not None else None
    created = machine.record.metadata.creation_timestamp
    if disruption is None or created is None or not machine.in_service or not machine.policy.expires:
        return None
    max_age = duration_or_never(disruption.expire_after)
    if max_age is None or machine.held is not None or any(must_stay(pod) for pod in machine.pods):
        return None
    return max([created + max_age, *(served + LEAST_SERVICE for served in _first_ready(machine))])


def _first_ready(machine: MachineUse) -> Iterable[datetime]:
    """When the machine began to serve, where its record still tells."""
    steps = machine.record.status.transitions if machine.record.status is not None else ()
    return [each.at for each in steps if each.state is InstanceState.READY][:1]


def _expired(machine: MachineUse, now: datetime, rules: ScaleDownRules) -> str | None:
    """Why the node has expired; None where it has not."""
    pool, created = pool_of(machine), machine.record.metadata.creation_timestamp
    expires_at = _expires_at(machine, rules)
    if expires_at is None or created is None or pool is None or now < expires_at:
        return None
    disruption = rules.pools[pool]
    return (
        f"Node {machine.record.node_name} is {human(now - created)} old, past its pool's expireAfter of "
        f"{disruption.expire_after}. Draining and terminating it."
    )


def _may_power_off(machines: Iterable[MachineUse], now: datetime, cycle: timedelta) -> bool:
    """True where no owned machine began to drain within the cycle."""
    latest = _last_power_off(machines)
    return latest is None or now - latest >= cycle


def _last_power_off(machines: Iterable[MachineUse]) -> datetime | None:
    """When an owned machine last began to drain, by the records, which outlive a restart."""
    return max(
        (
            step.at
            for machine in machines
            if machine.policy.leaves_one_by_one and machine.record.status is not None
            for step in machine.record.status.transitions
            if step.state is InstanceState.DRAINING
        ),
        default=None,
    )


def _largest_first(machine: MachineUse) -> tuple[int, str]:
    offer = machine.record.spec.offer
    return -(offer.gpu_count if offer is not None else 0), machine.name


def _replaceable_first(machine: MachineUse) -> tuple[bool, bool, float, str]:
    """Sort key: the oldest first, but for those that nothing could take the place of. Budgets are small, and these may
    stay for long.
    """
    created = machine.record.metadata.creation_timestamp
    age = created.timestamp() if created is not None else 0.0
    return _is_unreplaceable(machine), created is None, age, machine.name


def _is_unreplaceable(machine: MachineUse) -> bool:
    told = condition_of(machine.record, REPLACEMENT)
    return told is not None and told.reason == Reason.REPLACEMENT_UNAVAILABLE
