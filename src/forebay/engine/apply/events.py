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
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_POOLS, NODE_PROVISIONERS
from forebay.kube.pods import PODS
from forebay.kube.types import ObjectReference, reference
from forebay.model.reasons import Reason
from forebay.model.workloads import Owner, Pod
from forebay.reconcile.capacity_conditions import without_figures
from forebay.reconcile.decisions import OwnerEvent, PodEvent, UnreadableInstance

log = structlog.get_logger(__name__)

#: Reasons whose events are of type Warning: something went wrong, and a person may have to act.
_WARNINGS: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.PROVIDER_QUOTA,
        Reason.CONTAINER_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.RECLAIMED,
        Reason.NODE_IDENTITY_MISMATCH,
        Reason.BAD_CREDENTIALS,
        Reason.LAUNCH_REJECTED,
        Reason.LAUNCH_FAILED,
        Reason.PROVIDER_UNAVAILABLE,
        Reason.OUTCOME_UNKNOWN,
        Reason.LAUNCH_TIMEOUT,
        Reason.PRICE_RAISED,
        Reason.JOIN_TIMEOUT,
        Reason.GPUS_MISSING,
        Reason.VANISHED,
        Reason.UNHEALTHY,
        Reason.DUPLICATE,
        Reason.DISRUPTION_PAUSED,
        Reason.LEFTOVER,
        Reason.TERMINATION_FAILED,
        Reason.PROVIDER_NOT_CONFIGURED,
    }
)
#: Pods that get an event about their GPUInstance. There may be hundreds; the spec of the GPUInstance lists them all.
_MAX_PODS: Final = 8
#: Pods and owners whose last event is kept for comparison.
_MAX_KEPT: Final = 20_000
#: Seconds until an object gets another event with the same reason and a new sentence.
_REPEAT_AFTER: Final = 300.0
#: Seconds until an object gets the same event again. API servers keep events for an hour.
_EXPIRES_SOON: Final = 3000.0


class Events:
    """Decides which events are worth recording, and on which objects. Each is one line of the log, too, however many
    objects it is recorded on.
    """

    def __init__(self, recorder: EventRecorder, views: Views) -> None:
        self._recorder = recorder
        self._views = views
        #: Last event of each pod and owner, by UID: reason, sentence and time (by the event loop's clock).
        self._last: OrderedDict[str, tuple[Reason, str, float]] = OrderedDict()
        #: Pods of an owner (UID; without one: the namespace) that got an event of a transition for this reason, and
        #: since when they are counted.
        self._pods_told: OrderedDict[tuple[str, Reason], tuple[int, float]] = OrderedDict()

    def transition(self, record: GPUInstance, reason: Reason, sentence: str) -> None:
        """Records the transition on the GPUInstance, its pool, its node, and its pending or remote pods."""
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
        if record.spec.provisioner_ref is not None:
            provisioner = self._views.provisioners.get(("", record.spec.provisioner_ref.name))
            if provisioner is not None:
                self._event(reference(NODE_PROVISIONERS, provisioner), reason, sentence, instance)
        node = self._views.nodes.get(("", record.spec.node.name)) if record.spec.node is not None else None
        if node is not None:
            self._event(reference(NODES, node), reason, sentence, instance)
        for planned in record.spec.pods[:_MAX_PODS]:
            pod = self._views.pods.get((planned.namespace, planned.name))
            if pod is None or pod.uid != planned.uid:
                continue
            if pod.node is not None and record.spec.delivers.has_node:
                # It waits no more. A pod with a remote container is bound all the time, and hears how that fares.
                continue
            if self._is_one_of_few(pod, reason):
                self._event(reference(PODS, pod), reason, sentence, instance)
            elif pod.owner is not None:
                self._event(_owner_reference(pod.namespace, pod.owner), reason, sentence, instance)

    def pod_event(self, event: PodEvent) -> bool:
        """Records an event on a pod and returns True, unless it repeats the last one.

        A new reason is recorded at once, a new sentence only after a while. The same event is recorded again before the
        API server deletes the last one; figures do not make it another.
        """
        regarding = reference(PODS, event.pod)
        if not self._unless_repeated(event.pod.uid, regarding, event.reason, event.sentence, warning=event.warning):
            return False
        pod = "/".join(event.pod.key)
        _log("pod event", warning=event.warning, pod=pod, reason=event.reason, message=event.sentence)
        return True

    def unreadable_instance(self, event: UnreadableInstance) -> bool:
        """Records an event on a GPUInstance that does not decode and returns True, unless it repeats the last one."""
        kind = GPU_INSTANCES
        # Without a UID, which is not known of an object that does not decode.
        regarding = ObjectReference(api_version=kind.api_version, kind=kind.kind, name=event.name)
        key = f"{kind.kind} {event.name}"
        return self._unless_repeated(key, regarding, event.reason, event.sentence, warning=True)

    def owner_event(self, event: OwnerEvent) -> bool:
        """Records an event on the owner of many waiting pods and returns True, unless it repeats the last one."""
        owner = event.owner
        sentence = f"{event.pods} pods of this {owner.kind} wait for capacity. {event.sentence}"
        # An owner's pods may wait for several reasons, each of which is told.
        key = f"{owner.uid} {event.reason}"
        regarding = _owner_reference(event.namespace, owner)
        if not self._unless_repeated(key, regarding, event.reason, sentence, warning=event.warning):
            return False
        _log(
            "owner event",
            warning=event.warning,
            owner=f"{owner.kind} {event.namespace}/{owner.name}",
            reason=event.reason,
            message=sentence,
        )
        return True

    def _unless_repeated(
        self, key: str, regarding: ObjectReference, reason: Reason, sentence: str, *, warning: bool
    ) -> bool:
        now = asyncio.get_running_loop().time()
        last_reason, last_sentence, at = self._last.get(key, (None, "", 0.0))
        wait = _EXPIRES_SOON if without_figures(sentence) == without_figures(last_sentence) else _REPEAT_AFTER
        if last_reason is reason and now - at < wait:
            return False
        queued = self._recorder.event(regarding, reason=reason, note=sentence, type="Warning" if warning else "Normal")
        if not queued:
            # A later tick tells those that found the queue full.
            return False
        self._last[key] = (reason, sentence, now)
        self._last.move_to_end(key)
        while len(self._last) > _MAX_KEPT:
            self._last.popitem(last=False)
        return True

    def _is_one_of_few(self, pod: Pod, reason: Reason) -> bool:
        """Whether few pods of the same owner got an event of a transition for the same reason of late."""
        now = asyncio.get_running_loop().time()
        key = (pod.namespace if pod.owner is None else pod.owner.uid, reason)
        told, since = self._pods_told.get(key, (0, now))
        if now - since >= _REPEAT_AFTER:
            told, since = 0, now
        self._pods_told[key] = (told + 1, since)
        self._pods_told.move_to_end(key)
        while len(self._pods_told) > _MAX_KEPT:
            self._pods_told.popitem(last=False)
        return told < _MAX_PODS

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
        *,
        bad: Truth = Truth.FALSE,
    ) -> None:
        """Records an event where the status or reason of a condition has changed; a new message alone makes none.

        `bad`: the status that is a warning.
        """
        earlier = {each.type: each for each in before}
        changed = [
            each
            for each in after
            if each.type not in earlier
            or (earlier[each.type].status, earlier[each.type].reason) != (each.status, each.reason)
        ]
        if changed:
            self.about(regarding, reason, sentence, warning=any(each.status is bad for each in changed))

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


def _owner_reference(namespace: str, owner: Owner) -> ObjectReference:
    return ObjectReference(kind=owner.kind, namespace=namespace, name=owner.name, uid=owner.uid)


def _log(event: str, *, warning: bool, **keys: str) -> None:
    (log.warning if warning else log.info)(event, **keys)
