"""Events as controllers write them: repeated ones are counted on one object, and all are forgotten after an hour."""

from collections import deque
from datetime import datetime, timedelta

import msgspec

from forebay.embedded.failures import ApiFailure
from forebay.embedded.kinds import EVENTS
from forebay.embedded.store import Json, Store

_KEPT = timedelta(hours=1)
#: An Event's note may not be longer.
_LONGEST_NOTE = 1024


class _Known(msgspec.Struct):
    last: datetime
    namespace: str
    name: str


class Recorder:
    """One for all controllers of a cluster. Not `enabled`, it writes nothing: long simulations read no events."""

    def __init__(self, store: Store, *, enabled: bool = True) -> None:
        self._store = store
        self._enabled = enabled
        self._known: dict[tuple[str, str, str], _Known] = {}
        self._oldest: deque[tuple[datetime, tuple[str, str, str]]] = deque()

    def normal(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Normal", reason, message)

    def warning(self, component: str, obj: Json, reason: str, message: str) -> None:
        self._record(component, obj, "Warning", reason, message)

    def _record(self, component: str, obj: Json, kind: str, reason: str, message: str) -> None:
        if not self._enabled:
            return
        now = self._store.clock()
        self._forget(now)
        meta = obj["metadata"]
        key = (meta["uid"], reason, message)
        known = self._known.get(key)
        if known is None or not self._repeat(known, now):
            self._known[key] = _Known(now, *self._create(component, obj, kind, reason, message))
            self._oldest.append((now, key))

    def _repeat(self, known: _Known, now: datetime) -> bool:
        event = self._store.find(EVENTS, known.namespace, known.name)
        if event is None:
            return False
        known.last = now
        self._store.update(EVENTS, {**event, "count": event["count"] + 1, "lastTimestamp": self._store.timestamp()})
        return True

    def _create(self, component: str, obj: Json, kind: str, reason: str, message: str) -> tuple[str, str]:
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        # As client-go names them: the object's name and a number that is never the same twice.
        name = f"{meta['name']}.{self._store.version:016x}"
        moment = self._store.timestamp()
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
                **({"namespace": namespace} if "namespace" in meta else {}),
            },
            "type": kind,
            "reason": reason,
            "message": message if len(message) <= _LONGEST_NOTE else f"{message[: _LONGEST_NOTE - 4]} ...",
            "source": {"component": component},
            "reportingComponent": component,
            "reportingInstance": "",
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        try:
            self._store.create(EVENTS, event)
        except ApiFailure as failure:
            # Its namespace is going or gone: the news would go with it.
            if failure.code not in {403, 404}:
                raise
        return namespace, name

    def _forget(self, now: datetime) -> None:
        while self._oldest and self._oldest[0][0] <= now - _KEPT:
            _, key = self._oldest.popleft()
            known = self._known[key]
            if known.last > now - _KEPT:
                self._oldest.append((known.last, key))
                continue
            del self._known[key]
            if self._store.find(EVENTS, known.namespace, known.name) is not None:
                self._store.delete(EVENTS, known.namespace, known.name)
