"""A store that behaves like a cluster: rules of the built-in kinds, garbage collection, and the objects every cluster has."""

from collections.abc import Callable
from datetime import datetime

from forebay.embedded import kinds
from forebay.embedded.store import Json, Store
from forebay.net.clock import now


def open_store(*, clock: Callable[[], datetime] = now, seed: int | None = None) -> Store:
    """The cluster's identity is the UID of kube-system: the same seed gives the same one."""
    store = Store(clock=clock, seed=seed)
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        store.create(kinds.NAMESPACES, {"metadata": {"name": name}})
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
        store.create(kinds.PRIORITY_CLASSES, _priority_class(name, value))
    return store


def _priority_class(name: str, value: int) -> Json:
    return {
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "Used for system critical pods that must run in the cluster.",
    }
