"""A store set up as a new cluster: rules of the built-in kinds, garbage collection, objects every cluster has."""

from collections.abc import Callable
from datetime import datetime

from forebay.embedded.api import kinds
from forebay.embedded.api.custom_resources import CrdLifecycle, CrdRules
from forebay.embedded.api.events import EventExpiry, EventRules
from forebay.embedded.api.gc import GarbageCollector
from forebay.embedded.api.namespaces import NamespaceLifecycle, NamespaceRules
from forebay.embedded.api.objects import Json
from forebay.embedded.api.pods import PodRules
from forebay.embedded.api.store import Store
from forebay.embedded.api.workloads import WORKLOAD_RULES
from forebay.net.clock import now


def open_store(*, clock: Callable[[], datetime] = now, seed: int | None = None) -> Store:
    """A new store. The UID of kube-system, the cluster's identity, is the same for the same seed."""
    rules = {
        **WORKLOAD_RULES,
        kinds.POD_KIND.storage: PodRules(),
        kinds.NAMESPACE_KIND.storage: NamespaceRules(),
        kinds.CRD_KIND.storage: CrdRules(),
        kinds.EVENT_KIND.storage: EventRules(),
    }
    store = Store(clock=clock, seed=seed, rules=rules)
    GarbageCollector(store)
    NamespaceLifecycle(store)
    CrdLifecycle(store)
    EventExpiry(store)
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        store.create(kinds.NAMESPACE_KIND, {"metadata": {"name": name}})
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
        store.create(kinds.PRIORITY_CLASS_KIND, _priority_class(name, value))
    return store


def _priority_class(name: str, value: int) -> Json:
    where = "in the cluster." if name == "system-cluster-critical" else "on a node."
    return {
        "metadata": {"name": name},
        "value": value,
        "description": f"Used for system critical pods that must not be moved from where they run {where}",
    }
