"""Kubernetes events on the objects that users look at: GPUInstance, pool, node and pending pods."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import structlog

from forebay.api.gpu_instance import GPUInstance
from forebay.api.parts import Condition, Truth
from forebay.engine.views import Views
from forebay.kube.events import EventRecorder
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_POOLS
from forebay.kube.pods import PODS
from forebay.kube.types import ObjectReference, reference
from forebay.model.reasons import Reason
from forebay.reconcile.decisions import PodEvent

log = structlog.get_logger(__name__)

#: Reasons whose events are of type Warning: something went wrong, and a person may have to act.
_WARNINGS: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.BAD_CREDENTIALS,
        Reason.LAUNCH_REJECTED,
        Reason.LAUNCH_FAILED,
        Reason.PROVIDER_UNAVAILABLE,
        Reason.OUTCOME_UNKNOWN,
        Reason.LAUNCH_TIMEOUT,
        Reason.JOIN_TIMEOUT,
        Reason.GPUS_MISSING,
        Reason.VANISHED,
        Reason.UNHEALTHY,
        Reason.DUPLICATE,
        Reason.DISRUPTION_PAUSED,
        Reason.LEFTOVER,
        Reason.TERMINATION_FAILED,
    }
)
#: Pods that get an event about their GPUInstance. There may be hundreds; the spec of the GPUInstance lists them all.
_MAX_PODS: Final = 8
#: Pods whose last event is kept for comparison.
_MAX_KEPT: Final = 20_000
#: Seconds until a pod gets another event with the same reason and a new sentence.
_REPEAT_AFTER: Final = 300.0
#: Seconds until a pod gets the same event again. API servers keep events for an hour.
_EXPIRES_SOON: Final = 3000.0


class Events:
    """Decides which events are worth recording, and on which objects. Each is one line of the log, too, however many
    objects it is recorded on.
    """

    def __init__(self, recorder: EventRecorder, views: Views) -> None:
        self._recorder = recorder
        self._views = views
        #: Last event of each pod, by UID: reason, sentence and time (by the event loop's clock).
        self._last: OrderedDict[str, tuple[Reason, str, float]] = OrderedDict()

    def transition(self, record: GPUInstance, reason: Reason, sentence: str) -> None:
        """Records the transition on the GPUInstance, and on its pool, node and pending pods."""
        _log(
            "instance transition",
            warning=reason in _WARNINGS,
            instance=record.metadata.name,
            state=str(record.state),
            reason=reason,
            message=sentence,
        )
        instance = reference(GPU_INSTANCES, record)
        self._event(instance, reason, sentence)
        if record.spec.pool_ref is not None:
            pool = self._views.pools.get((record.spec.pool_ref.namespace, record.spec.pool_ref.name))
            if pool is not None:
                self._event(reference(GPU_NODE_POOLS, pool), reason, sentence, instance)
        node = self._views.nodes.get(("", record.spec.node.name)) if record.spec.node is not None else None
        if node is not None:
            self._event(reference(NODES, node), reason, sentence, instance)
        for planned in record.spec.pods[:_MAX_PODS]:
            pod = self._views.pods.get((planned.namespace, planned.name))
            if pod is not None and pod.uid == planned.uid and pod.node is None:
                self._event(reference(PODS, pod), reason, sentence, instance)

    def pod_event(self, event: PodEvent) -> bool:
        """Records an event on a pod and returns True, unless it repeats the last one.

        A new reason is recorded at once, a new sentence only after a while: sentences hold remaining times, which
        change with every tick. The same event is recorded again before the API server deletes the last one.
        """
        now = asyncio.get_running_loop().time()
        reason, sentence, at = self._last.get(event.pod.uid, (None, "", 0.0))
        wait = _EXPIRES_SOON if sentence == event.sentence else _REPEAT_AFTER
        if reason is event.reason and now - at < wait:
            return False
        queued = self._recorder.event(
            reference(PODS, event.pod),
            reason=event.reason,
            note=event.sentence,
            type="Warning" if event.warning else "Normal",
        )
        if not queued:
            # Thousands of pods may wait: a later tick tells those that found the queue full.
            return False
        self._last[event.pod.uid] = (event.reason, event.sentence, now)
        self._last.move_to_end(event.pod.uid)
        while len(self._last) > _MAX_KEPT:
            self._last.popitem(last=False)
        pod = "/".join(event.pod.key)
        _log("pod event", warning=event.warning, pod=pod, reason=event.reason, message=event.sentence)
        return True

    def about(self, regarding: ObjectReference, reason: Reason, sentence: str, *, warning: bool = False) -> None:
        name = f"{regarding.namespace}/{regarding.name}" if regarding.namespace else regarding.name
        _log("object event", warning=warning, kind=regarding.kind, object=name, reason=reason, message=sentence)
        self._recorder.event(regarding, reason=reason, note=sentence, type="Warning" if warning else "Normal")

    def condition(
        self,
        regarding: ObjectReference,
        before: Iterable[Condition],
        after: Iterable[Condition],
        reason: Reason,
        sentence: str,
    ) -> None:
        """Records an event where the status or reason of a condition has changed; a new message alone makes none."""
        earlier = {each.type: each for each in before}
        changed = [
            each
            for each in after
            if each.type not in earlier
            or (earlier[each.type].status, earlier[each.type].reason) != (each.status, each.reason)
        ]
        if changed:
            warning = any(each.status is not Truth.TRUE for each in changed)
            self.about(regarding, reason, sentence, warning=warning)

    def _event(
        self, regarding: ObjectReference, reason: Reason, sentence: str, related: ObjectReference | None = None
    ) -> None:
        self._recorder.event(
            regarding,
            reason=reason,
            note=sentence,
            type="Warning" if reason in _WARNINGS else "Normal",
            related=related,
        )


def _log(event: str, *, warning: bool, **keys: str) -> None:
    (log.warning if warning else log.info)(event, **keys)
