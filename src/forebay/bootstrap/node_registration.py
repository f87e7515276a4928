"""What the kubelet of a rented machine registers with: name, labels, taints and provider id."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import KUBERNETES_DOMAINS, WELL_KNOWN_LABELS
from forebay.demand.startup_taint import startup_taint
from forebay.lifecycle.node_identity import own_provider_id
from forebay.model.requirements import Taint

_OF_KUBERNETES: Final = re.compile(KUBERNETES_DOMAINS)
#: Labels of Kubernetes' own domains that a kubelet may set on its node, but for those that it knows better.
_FROM_KUBELET: Final = tuple(
    each for each in WELL_KNOWN_LABELS if each not in {"kubernetes.io/arch", "kubernetes.io/os"}
)
_FROM_KUBELET_DOMAINS: Final = re.compile(r"^([^/]*[.])?(kubelet|node)[.]kubernetes[.]io/")


def kubelet_labels(record: GPUInstance) -> Mapping[str, str]:
    """Planned labels that the kubelet can register with; the API server refuses it any other of Kubernetes' domains."""
    node = record.spec.node
    labels = node.labels if node is not None else {}
    return {key: value for key, value in sorted(labels.items()) if _may_set(key)}


def _may_set(key: str) -> bool:
    if not _OF_KUBERNETES.match(key):
        return True
    return key in _FROM_KUBELET or _FROM_KUBELET_DOMAINS.match(key) is not None


def registered_taints(record: GPUInstance) -> tuple[Taint, ...]:
    """Taints from the node's first moment: Forebay's own startup taint, and those of the plan."""
    node, own = record.spec.node, startup_taint(record)
    if node is None:
        return (own,)
    planned = (Taint(each.key, each.value or "", each.effect) for each in (*node.taints, *node.startup_taints))
    return (own, *(each for each in dict.fromkeys(planned) if each.key != own.key))


def taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def node_variables(record: GPUInstance) -> Mapping[str, str]:
    """Values of the template variables that follow from the record alone."""
    pool, offer = record.spec.pool_ref, record.spec.offer
    pool_name = pool.name if pool is not None else ""
    return {
        "NodeName": record.node_name or "",
        "NodePool": pool_name,
        "NodePoolName": pool_name,
        "NodeIndex": str(int(hashlib.sha256(record.uid.encode()).hexdigest()[:4], 16)),
        "NodeLabels": ",".join(f"{key}={value}" for key, value in kubelet_labels(record).items()),
        "NodeTaints": ",".join(map(taint_text, registered_taints(record))),
        "InstanceType": offer.instance_type if offer is not None else "",
        "Region": (offer.region or "") if offer is not None else "",
        "ProviderID": own_provider_id(record),
    }


#: Names of those variables.
NODE_VARIABLES: Final = frozenset(
    {
        "NodeName",
        "NodePool",
        "NodePoolName",
        "NodeIndex",
        "NodeLabels",
        "NodeTaints",
        "InstanceType",
        "Region",
        "ProviderID",
    }
)
