"""Cloud-init user data of a class's own template."""

from collections.abc import Mapping

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.bootstrap.templates import filled_in
from forebay.demand.startup_taint import startup_taint


def user_data(record: GPUInstance, node_class: GPUNodeClass, values: Mapping[str, str]) -> str | None:
    """The user data of the record's machine; None where the class has no template. `values` are those of its join
    credentials. Raises `UnknownVariable`.
    """
    if node_class.spec.cloud_init is None:
        return None
    return filled_in(node_class.spec.cloud_init.template, {**_variables(record), **values})


def _variables(record: GPUInstance) -> Mapping[str, str]:
    node, pool = record.spec.node, record.spec.pool_ref
    own = startup_taint(record)
    taints = [f"{own.key}={own.value}:{own.effect}"]
    if node is not None:
        planned = (*node.taints, *(each for each in node.startup_taints if each.key != own.key))
        taints += [f"{each.key}={each.value or ''}:{each.effect}" for each in planned]
    labels = node.labels if node is not None else {}
    return {
        "NodeName": record.node_name or "",
        "NodePool": pool.name if pool is not None else "",
        "NodePoolName": pool.name if pool is not None else "",
        "NodeLabels": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
        "NodeTaints": ",".join(taints),
    }
