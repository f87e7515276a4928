"""Events: one set of objects in two shapes, `v1` and `events.k8s.io/v1`, that fades after an hour."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.failures import FieldCause, bad_value, required
from forebay.embedded.api.kinds import EVENT_KIND, EVENT_V1_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.store import Store
from forebay.kube.wire import DELETED

_TTL = timedelta(hours=1)
#: By the name in `v1`, in which events are kept.
_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_BACK = {new: old for old, new in _NAMES.items()}


def outward(kind: ApiKind, obj: Json) -> Json:
    """A stored object as this version of its kind shows it."""
    if kind.storage == EVENT_KIND.storage:
        names = _NAMES if kind is EVENT_V1_KIND else {}
        obj = {names.get(key, key): value for key, value in obj.items()}
    if obj.get("apiVersion") != kind.api_version:
        return {**obj, "apiVersion": kind.api_version}
    return obj


def inward(kind: ApiKind, obj: Json) -> Json:
    """An object of a client as it is stored."""
    return {_BACK.get(key, key): value for key, value in obj.items()} if kind is EVENT_V1_KIND else obj


class EventRules(KindRules):
    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:  # noqa: ARG002
        about = obj.setdefault("involvedObject", {})
        space = obj["metadata"]["namespace"]
        obj.setdefault("reportingComponent", "")
        obj.setdefault("reportingInstance", "")
        causes = []
        if about.get("namespace", "") not in {space, ""} or (not about.get("namespace") and space not in _CLUSTER):
            why = "does not match event.namespace"
            causes.append(bad_value("involvedObject.namespace", about.get("namespace", ""), why))
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


#: Where events about objects without a namespace live.
_CLUSTER = frozenset({"default", "kube-system"})


class EventExpiry:
    """Removes events an hour after they were last written, when the next one is."""

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
            _, space, name, version = self._written.popleft()
            event = self._store.find(EVENT_KIND, space, name)
            if event is not None and event["metadata"]["resourceVersion"] == version:
                self._store.delete(EVENT_KIND, space, name)
