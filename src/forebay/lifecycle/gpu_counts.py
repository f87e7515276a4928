"""GPUs that were planned for a node, and those that it has: what to say where they differ."""

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.nodes import Node
from forebay.model.quantities import GPU_SUFFIX, Resources


def gpus_found(record: GPUInstance, node: Node) -> str:
    """`its GPUs`, or how many of them are allocatable where some are missing."""
    resource, planned = _planned(record)
    allocatable, capacity = node.allocatable.amount(resource), node.capacity.amount(resource)
    if allocatable >= planned:
        return "its GPUs"
    failed = ": the others have failed (capacity and allocatable of the Node differ)" if capacity >= planned else ""
    return f"{allocatable} of {planned} {resource}{failed}"


def wrong_gpu_count(record: GPUInstance, node: Node, *, variable: str | None) -> str | None:
    """What to correct where the declared number of GPUs of an owned machine is not what its node has; else None.

    `variable`: the environment variable that declares it; None: the GPUNodeClass does.
    A node whose driver does not run reports a capacity of 0, which says nothing about the declaration.
    """
    resource, planned = _planned(record)
    capacity = node.capacity.amount(resource)
    if not policy_of(record).configured_by_name or not capacity or capacity == planned:
        return None
    machine = record.metadata.name
    where = f"gpuCount of machine {machine} in GPUNodeClass {record.spec.node_class_name}"
    if variable is not None:
        where = f"environment variable {variable}"
    return f"The node has {capacity} {resource}, but {where} says {planned}: correct it, or check the GPUs."


def _planned(record: GPUInstance) -> tuple[str, int]:
    """The resource of the planned GPUs, and their number."""
    planned, offer = record.spec.node, record.spec.offer
    amounts = Resources.parse(planned.allocatable) if planned is not None else Resources()
    for name in sorted(amounts):
        if "/" in name:
            return name, amounts.amount(name)
    return f"nvidia.com{GPU_SUFFIX}", offer.gpu_count if offer is not None else 1
