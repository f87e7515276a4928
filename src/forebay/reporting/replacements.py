"""Why a Ready node goes although pods run on it: it is too old, or was launched from an earlier template."""

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.parts import Truth
from forebay.demand.replacements import REPLACEMENT, condition_of
from forebay.disruption.consolidation import ScaleDownRules, scale_down
from forebay.disruption.machine_use import MachineUse
from forebay.model.reasons import Reason
from forebay.reconcile.orders import current_templates
from forebay.reporting.cluster_view import ClusterView


def replacement_due(record: GPUInstance, pool: GPUNodePool | None, view: ClusterView) -> str | None:
    """What is about to replace the node, or what that waits for; None where it is to stay."""
    told = condition_of(record, REPLACEMENT)
    if told is not None and (told.status is Truth.TRUE or told.reason == Reason.REPLACEMENT_UNAVAILABLE):
        return told.message
    if pool is None:
        return None
    name = record.node_name or ""
    machine = MachineUse(record=record, node=view.nodes.get(name), pods=tuple(view.pods_by_node.get(name, ())))
    # All that its pool's budgets could still keep.
    unlimited = ScaleDownRules(
        pools={pool.key: replace(pool.spec.disruption, budgets=())}, templates=current_templates((pool,), view.classes)
    )
    found = next((each for each in scale_down([machine], view.now, unlimited) if each.reason is not Reason.IDLE), None)
    if found is None:
        return None
    why, _, _ = found.sentence.partition(". ")
    return f"{why}. Forebay replaces it as soon as the disruption budgets of pool {pool.metadata.name} allow."
