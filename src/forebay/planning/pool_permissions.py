"""What a GPUNodePool may do. Any team may write pools, but nodes and other teams' pods belong to the whole cluster."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool, NodeSpec
from forebay.api.names import KUBERNETES_DOMAINS
from forebay.api.parts import LabelSelectorEntry, TaintEffect
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement

Namespaces = Mapping[str, Mapping[str, str]]

_CLUSTERS_LABEL: Final = re.compile(KUBERNETES_DOMAINS)


class PoolRefusal(NamedTuple):
    """Why a pool gets no capacity. The sentence has no full stop."""

    reason: Reason
    sentence: str


def pool_refusal(
    pool: GPUNodePool, node_class: GPUNodeClass, namespaces: Namespaces, operator_namespace: str
) -> PoolRefusal | None:
    """Why the class does not allow the pool, or what of its template is not allowed to any pool; None if it may buy.

    The API server refuses such templates; pools that were stored before it did so are refused here.
    """
    name, namespace = node_class.metadata.name, pool.metadata.namespace or ""
    allowed = node_class.spec.allowed_namespaces
    if namespace != operator_namespace and (allowed is None or not _selects(allowed, namespace, namespaces)):
        return PoolRefusal(
            Reason.NAMESPACE_NOT_ALLOWED,
            f"GPUNodeClass {name} does not allow GPUNodePools of namespace {namespace}: select the namespace in the "
            f"class's spec.allowedNamespaces, or create the pool in namespace {operator_namespace}",
        )
    template = pool.spec.template
    labels = template.metadata.labels if template.metadata is not None else {}
    reserved = sorted(key for key in labels if is_clusters_label(key))
    if reserved:
        return PoolRefusal(
            Reason.TEMPLATE_NOT_ALLOWED,
            f"labels of kubernetes.io and k8s.io are not allowed in spec.template.metadata.labels: remove "
            f"{', '.join(reserved)}",
        )
    nodes = template.spec or NodeSpec()
    evicting = sorted({each.key for each in nodes.taints if each.effect is TaintEffect.NO_EXECUTE})
    if evicting:
        return PoolRefusal(
            Reason.TEMPLATE_NOT_ALLOWED,
            f"NoExecute taints are not allowed in spec.template.spec.taints: use NoSchedule for {', '.join(evicting)}",
        )
    return None


def served_namespaces(
    pool: GPUNodePool, node_class: GPUNodeClass, namespaces: Namespaces, operator_namespace: str
) -> frozenset[str] | None:
    """Namespaces whose pods the pool may serve; None: all. Its own is always within what the class permits."""
    own, selector = pool.metadata.namespace or "", pool.spec.namespace_selector
    permitted = node_class.spec.allowed_pod_namespaces
    if permitted is None and own == operator_namespace:
        permitted = LabelSelectorEntry()
    if permitted is None:
        return frozenset({own}) if _selects(selector, own, namespaces) else frozenset()
    if _is_empty(selector) and _is_empty(permitted):
        return None
    return frozenset(
        name
        for name in {*namespaces, own}
        if _selects(selector, name, namespaces) and (name == own or _selects(permitted, name, namespaces))
    )


def unserved_namespaces(
    pool: GPUNodePool, node_class: GPUNodeClass, namespaces: Namespaces, operator_namespace: str
) -> tuple[str, ...]:
    """Namespaces that the pool selects by name or label and may not serve."""
    selector = pool.spec.namespace_selector
    served = served_namespaces(pool, node_class, namespaces, operator_namespace)
    if _is_empty(selector) or served is None:
        return ()
    return tuple(sorted(name for name in namespaces if name not in served and _selects(selector, name, namespaces)))


def is_clusters_label(key: str) -> bool:
    """Whether the label is of a domain of Kubernetes' own."""
    return _CLUSTERS_LABEL.match(key) is not None


def _is_empty(selector: LabelSelectorEntry) -> bool:
    return not selector.match_labels and not selector.match_expressions


def _selects(selector: LabelSelectorEntry, namespace: str, namespaces: Namespaces) -> bool:
    expressions = tuple(
        Requirement(each.key, LabelOperator(each.operator), each.values) for each in selector.match_expressions
    )
    # The API server puts this label on every namespace.
    labels = {**namespaces.get(namespace, {}), "kubernetes.io/metadata.name": namespace}
    return LabelSelector(selector.match_labels, expressions).matches(labels)
