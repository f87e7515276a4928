"""Events as controllers write them: what is said again is counted, not written anew. The store lets them fade."""

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import EVENT_KIND
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

#: An Event's note may not be longer.
_LONGEST_NOTE = 1024
#: Said before so many others, it is said anew.
_REMEMBERED = 10_000
_GOING = frozenset({403, 404})


class Recorder:
    """One for all controllers of a cluster. Not `enabled`, it writes nothing: long simulations read no events."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self._store = store
        self._enabled = enabled
        #: Name and namespace of the Event, by whom it is about, its reason and its message.
        self._said: dict[tuple[str, str, str], tuple[str, str]] = {}

    def normal(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Normal", reason, message)

    def warning(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Warning", reason, message)

    def _record(self, component: str, obj: Json, kind: str, reason: str, message: str) -> None:
        if not self._enabled:
            return
        key = (obj["metadata"]["uid"], reason, message)
        said = self._said.get(key)
        event = self._store.find(EVENT_KIND, *said) if said is not None else None
        if event is not None:
            again = {"count": event["count"] + 1, "lastTimestamp": self._store.timestamp()}
            self._store.update(EVENT_KIND, {**event, **again})
            return
        try:
            self._said[key] = self._create(component, obj, kind, reason, message)
        except ApiFailure as failure:
            # The namespace is going or gone, and the news with it.
            if failure.code not in _GOING:
                raise
        if len(self._said) > _REMEMBERED:
            del self._said[next(iter(self._said))]

    def _create(self, component: str, obj: Json, kind: str, reason: str, message: str) -> tuple[str, str]:
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        moment = self._store.timestamp()
        about = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        about.update({field: meta[field] for field in ("name", "namespace", "uid", "resourceVersion") if field in meta})
        # Named as client-go does: the object's name and a number that is never the same twice.
        name = f"{meta['name']}.{self._store.version:016x}"
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": message if len(message) <= _LONGEST_NOTE else f"{message[: _LONGEST_NOTE - 4]} ...",
            "source": {"component": component},
            "reportingComponent": component,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        self._store.create(EVENT_KIND, event)
        return namespace, name
