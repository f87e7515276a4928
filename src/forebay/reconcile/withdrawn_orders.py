"""Orders that would not be made any more: providers take launches one after the other, and people change their minds.

Nothing was started for a GPUInstance that is still Requested, so it is cancelled, and its pods are planned for anew.
"""

from collections.abc import Mapping

from forebay.api.gpu_instance import GPUInstance, InstanceState, Purpose
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import VIRTUAL_NODE
from forebay.demand.planned_pods import runs_remotely
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.facts import Withdrawal, source_of
from forebay.model.kept import among
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.planning.limits import beyond_limits, hourly_price
from forebay.reconcile.orders import current_templates
from forebay.reconcile.snapshot import Snapshot


def withdrawn_orders(snapshot: Snapshot) -> Mapping[str, Withdrawal]:
    """By UID of a GPUInstance, why it is not launched any more. Of those beyond a limit, the newest are not."""
    waiting = [each for each in among(snapshot.records, _is_requested) if _is_of_pool(each)]
    if not waiting:
        return {}
    pools = {pool.key: pool for pool in snapshot.pools}
    templates = current_templates(snapshot.pools, snapshot.classes)
    cordoned = _kept_by_cordon(snapshot)
    found: dict[str, Withdrawal] = {}
    for record in waiting:
        pool = pools.get(record.pool_key)
        if runs_remotely(record) and any(ref.uid in cordoned for ref in record.spec.pods):
            found[record.uid] = Withdrawal(Reason.NOT_ALLOWED, f"node {VIRTUAL_NODE} is cordoned")
        elif pool is not None and (why := _withdrawn(record, pool, snapshot, templates)) is not None:
            found[record.uid] = why
    left = [each for each in snapshot.records if each.uid not in found]
    for record, limit in beyond_limits(snapshot.pools, snapshot.classes, left, {each.uid for each in waiting}):
        found[record.uid] = Withdrawal(Reason.LIMIT_REACHED, f"{limit} allows no more")
    return found


def _withdrawn(
    record: GPUInstance, pool: GPUNodePool, snapshot: Snapshot, templates: Mapping[tuple[str, str], str]
) -> Withdrawal | None:
    name, provider = "/".join(pool.key), record.spec.provider
    source = snapshot.sources.get(source_of(record))
    if source is not None and not source.enabled:
        return Withdrawal(
            Reason.PROVIDER_DISABLED, f"GPUNodeClass {record.spec.node_class_name} has disabled {provider}"
        )
    most = UsdPerHour(pool.spec.max_hourly_price)
    if hourly_price(record) > most:
        return Withdrawal(Reason.PRICE_TOO_HIGH, f"it costs more than {most}, the maxHourlyPrice of GPUNodePool {name}")
    made_of = templates.get(pool.key, record.spec.template_hash)
    if policy_of(record).joins_as_new_node and record.spec.template_hash not in {None, made_of}:
        return Withdrawal(
            Reason.NOT_NEEDED, f"the template of GPUNodePool {name}, or its class, has changed since it was ordered"
        )
    return None


def _is_requested(record: GPUInstance) -> bool:
    return record.state is InstanceState.REQUESTED


def _is_of_pool(record: GPUInstance) -> bool:
    """Not a machine that was found."""
    return record.spec.pool_ref is not None and record.purpose is not Purpose.ADOPTED


def _kept_by_cordon(snapshot: Snapshot) -> frozenset[str]:
    """UIDs of pods that do not leave because the virtual node is cordoned: all that are not bound to it yet."""
    node = snapshot.nodes.get(VIRTUAL_NODE)
    if node is None or not node.unschedulable:
        return frozenset()
    return frozenset(pod.uid for pod in snapshot.pending if pod.node is None)
