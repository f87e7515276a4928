"""Resources of the `forebay.dev` API group.

None is `complete`: a newer CRD may have fields that this version does not know, so objects are changed by patches.
"""

from typing import TypeVar

from forebay.api.declaration import CustomKind
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.gpu_node_class import GPU_NODE_CLASS
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET
from forebay.api.meta import Object
from forebay.api.node_provisioner import NODE_PROVISIONER
from forebay.kube.resources import Resource

_O = TypeVar("_O", bound=Object)


def resource_of(kind: CustomKind[_O]) -> Resource[_O]:
    return Resource(
        group=kind.group,
        version=kind.version,
        plural=kind.plural,
        kind=kind.kind,
        namespaced=kind.namespaced,
        type=kind.type,
    )


GPU_NODE_CLASSES = resource_of(GPU_NODE_CLASS)
GPU_NODE_POOLS = resource_of(GPU_NODE_POOL)
NODE_PROVISIONERS = resource_of(NODE_PROVISIONER)
GPU_WORKLOAD_BUDGETS = resource_of(GPU_WORKLOAD_BUDGET)
GPU_INSTANCES = resource_of(GPU_INSTANCE)
