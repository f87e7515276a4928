"""The finalizer of GPUNodeClasses: a class says how its machines are terminated, and must outlive them."""

from collections.abc import Iterator

from forebay.api.gpu_instance import InstanceState
from forebay.api.names import CLASS_FINALIZER
from forebay.reconcile.decisions import SetClassFinalizer
from forebay.reconcile.snapshot import Snapshot


def class_finalizers(snapshot: Snapshot) -> Iterator[SetClassFinalizer]:
    """Adds the finalizer to every class, and removes it from deleted classes without machines."""
    in_use = {record.spec.node_class_name for record in snapshot.records if record.state is not InstanceState.GONE}
    for node_class in snapshot.classes:
        present = CLASS_FINALIZER in node_class.metadata.finalizers
        deleting = node_class.metadata.deletion_timestamp is not None
        if not present and not deleting:
            yield SetClassFinalizer(node_class=node_class, present=True)
        elif present and deleting and node_class.metadata.name not in in_use:
            yield SetClassFinalizer(node_class=node_class, present=False)
