"""All kinds of `forebay.dev`, in the order of the reference page."""

from typing import Any, Final

from forebay.api.declaration import CustomKind
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.gpu_node_class import GPU_NODE_CLASS
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET
from forebay.api.node_provisioner import NODE_PROVISIONER

KINDS: Final[tuple[CustomKind[Any], ...]] = (
    GPU_NODE_CLASS,
    GPU_NODE_POOL,
    NODE_PROVISIONER,
    GPU_WORKLOAD_BUDGET,
    GPU_INSTANCE,
)
