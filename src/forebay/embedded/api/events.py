"""Events: the same objects as `v1` and as `events.k8s.io/v1`, removed after an hour."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.failures import FieldCause, bad_value, required
from forebay.embedded.api.kinds import EVENT_KIND, EVENT_V1_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.store import Store
from forebay.kube.decoders import DELETED

_TTL = timedelta(hours=1)
#: Field names of `events.k8s.io/v1`, by those of `v1`, in which events are stored.
_V1_TO_EVENTS_V1: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_EVENTS_V1_TO_V1 = {new: old for old, new in _V1_TO_EVENTS_V1.items()}


def to_client(kind: ApiKind, obj: Json) -> Json:
    """A stored object as this kind and version shows it to clients."""
    if kind.storage == EVENT_KIND.storage:
        names = _V1_TO_EVENTS_V1 if kind is EVENT_V1_KIND else {}
        obj = {names.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") != kind.api_version:
        return {**obj, "apiVersion": kind.api_version}
    return obj


def from_client(kind: ApiKind, obj: Json) -> Json:
    """A client's object as it is stored."""
    return {_EVENTS_V1_TO_V1.get(key, key): value for key, value in obj.items()} if kind is EVENT_V1_KIND else obj


class EventRules(KindRules):
    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:  # noqa: ARG002
        involved = obj.setdefault("involvedObject", {})
        namespace = obj["metadata"]["namespace"]
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")
        causes = []
        if involved.get("namespace", "") not in {namespace, ""} or (
            not involved.get("namespace") and namespace not in _CLUSTER_SCOPE
        ):
            why = "does not match event.namespace"
            causes.append(bad_value("involvedObject.namespace", involved.get("namespace", ""), why))
        if kind.group == EVENT_V1_KIND.group:
            if not obj.get("eventTime"):
                causes.append(required("eventTime"))
            if obj.get("type") not in {"Normal", "Warning"}:
                wrong = obj.get("type", "")
                causes.append(bad_value("type", wrong, f"has invalid value: {wrong}"))
            if obj.get("eventTime"):
                names = {"reportingComponent": "reportingController", "reportingInstance": "reportingInstance"}
                needed = {**names, "action": "action", "reason": "reason"}
                causes += [required(shown) for field, shown in needed.items() if not obj.get(field)]
        return causes


#: Namespaces of events involved cluster-scoped objects.
_CLUSTER_SCOPE = frozenset({"default", "kube-system"})


class EventExpiry:
    """Removes events an hour after their last write; checked whenever an event is written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written: deque[tuple[datetime, str, str, str]] = deque()
        store.subscribe(EVENT_KIND, self._on_change)

    def _on_change(self, change: StoredChange) -> None:
        if change.type == DELETED:
            return
        meta, now = change.new["metadata"], self._store.clock()
        self._written.append((now, meta["namespace"], meta["name"], meta["resourceVersion"]))
        while self._written[0][0] < now - _TTL:
            _, namespace, name, version = self._written.popleft()
            event = self._store.find(EVENT_KIND, namespace, name)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self._store.delete(EVENT_KIND, namespace, name)
