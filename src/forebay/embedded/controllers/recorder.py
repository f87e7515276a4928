"""Events of the controllers. A repeated event adds to the count of the first one; the store removes old events."""

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import EVENT_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

#: The API's limit for the note of an Event.
_MAX_NOTE = 1024
#: An event that so many others have followed is written anew when it repeats.
_MAX_REMEMBERED = 10_000
_NAMESPACE_GONE = frozenset({403, 404})


class Recorder:
    """Writes the events of all controllers; none with `enabled=False`, since long simulations read no events."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self._store = store
        self._enabled = enabled
        #: Namespace and name of the Event, by uid of the object, reason and message.
        self._recorded: dict[tuple[str, str, str], tuple[str, str]] = {}

    def normal(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Normal", reason, message)

    def warning(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Warning", reason, message)

    def _record(self, component: str, obj: Json, kind: str, reason: str, message: str) -> None:
        if not self._enabled:
            return
        key = (obj["metadata"]["uid"], reason, message)
        recorded = self._recorded.get(key)
        event = self._store.find(EVENT_KIND, *recorded) if recorded is not None else None
        if event is not None:
            again = {"count": event["count"] + 1, "lastTimestamp": self._store.timestamp()}
            self._store.update(EVENT_KIND, {**event, **again})
            return
        try:
            self._recorded[key] = self._create(component, obj, kind, reason, message)
        except ApiFailure as failure:
            # The namespace is being deleted or gone, and its events with it.
            if failure.code not in _NAMESPACE_GONE:
                raise
        if len(self._recorded) > _MAX_REMEMBERED:
            del self._recorded[next(iter(self._recorded))]

    def _create(self, component: str, obj: Json, kind: str, reason: str, message: str) -> tuple[str, str]:
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        now = self._store.timestamp()
        involved = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        involved.update(
            {field: meta[field] for field in ("name", "namespace", "uid", "resourceVersion") if field in meta}
        )
        # Named as client-go does: the object's name and a number that is never the same twice.
        name = f"{meta['name']}.{self._store.version:016x}"
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": involved,
            "type": kind,
            "reason": reason,
            "message": message if len(message) <= _MAX_NOTE else f"{message[: _MAX_NOTE - 4]} ...",
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._store.create(EVENT_KIND, event)
        return namespace, name
