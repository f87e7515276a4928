"""The finalizer of GPUNodeClasses: a class says how its machines are terminated, and must outlive them."""

from collections.abc import Iterator

from forebay.api.gpu_instance import InstanceState
from forebay.api.gpu_node_class import EndpointsFrom, GPUNodeClass
from forebay.api.names import CLASS_FINALIZER
from forebay.reconcile.decisions import SetClassFinalizer
from forebay.reconcile.snapshot import Snapshot


def class_finalizers(snapshot: Snapshot) -> Iterator[SetClassFinalizer]:
    """Adds the finalizer to every class, and removes it from deleted classes without machines."""
    in_use = {record.spec.node_class_name for record in snapshot.records if record.state is not InstanceState.GONE}
    for node_class in snapshot.classes:
        if not _needs_finalizer(node_class):
            continue
        present = CLASS_FINALIZER in node_class.metadata.finalizers
        deleting = node_class.metadata.deletion_timestamp is not None
        if not present and not deleting:
            yield SetClassFinalizer(node_class=node_class, present=True)
        elif present and deleting and node_class.metadata.name not in in_use and not snapshot.unreadable_records:
            yield SetClassFinalizer(node_class=node_class, present=False)


def may_buy(node_class: GPUNodeClass) -> bool:
    """Whether machines may be launched from the class: a class that can be deleted before its machines may not."""
    return CLASS_FINALIZER in node_class.metadata.finalizers or not _needs_finalizer(node_class)


def _needs_finalizer(node_class: GPUNodeClass) -> bool:
    """False where environment variables of the operator say how the machines are powered off: the class shows them."""
    return any(entry.endpoints_from is not EndpointsFrom.ENVIRONMENT for entry in node_class.spec.providers)
