"""What nodes had for pods, by source and instance type: planning uses it in place of an assumed reservation."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.parts import Figures
from forebay.model.quantities import Resources
from forebay.model.sources import SourceKey

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
#: Provider, instance type, and how its machines join: kubelets reserve by the join method.
_Kind = tuple[str, str, str]


def observed_sizes(
    records: Iterable[GPUInstance], classes: Iterable[GPUNodeClass]
) -> Mapping[tuple[SourceKey, str], Resources]:
    """By source and instance type, what the youngest such node reported, of any class with the same join method."""
    methods = {each.metadata.name: join_method(each) for each in classes}
    latest: dict[_Kind, tuple[datetime, Figures]] = {}
    for record in records:
        status, offer = record.status, record.spec.offer
        method = methods.get(record.spec.node_class_name or "")
        if status is None or not status.allocatable or offer is None or method is None:
            continue
        kind = (record.spec.provider, offer.instance_type, method)
        created = record.metadata.creation_timestamp or _LONG_AGO
        if kind not in latest or latest[kind][0] <= created:
            latest[kind] = (created, status.allocatable)
    sizes = {kind: Resources.parse(figures) for kind, (_, figures) in latest.items()}
    return {
        (SourceKey(name, provider), instance_type): size
        for (provider, instance_type, used), size in sizes.items()
        for name, method in methods.items()
        if method == used
    }


def join_method(node_class: GPUNodeClass) -> str:
    """How machines of the class join. What a template of the user's does is not known beyond its class."""
    spec = node_class.spec
    if spec.talos_config is not None:
        return "talos"
    if spec.k3s_config is not None:
        return "k3s"
    if spec.kubeadm_config is not None:
        return "kubeadm"
    return f"class/{node_class.metadata.name}"
