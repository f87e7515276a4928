"""What users hear of it, on the objects they look at: the pod that waits, the node, the pool, the GPUInstance."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

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

#: Something went wrong, and perhaps somebody must do something.
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
#: A machine that serves hundreds tells the first few; all of them are in its spec.
_PODS_TOLD: Final = 8
_REMEMBERED: Final = 20_000
#: Seconds.
_TOLD_AGAIN: Final = 300.0


class Events:
    def __init__(self, recorder: EventRecorder, views: Views) -> None:
        self._recorder = recorder
        self._views = views
        #: What each pod was told last, and when (by the loop's clock).
        self._told: OrderedDict[str, tuple[Reason, str, float]] = OrderedDict()

    def transition(self, record: GPUInstance, reason: Reason, sentence: str) -> None:
        """Tells everyone whom this record concerns."""
        about = reference(GPU_INSTANCES, record)
        self._say(about, reason, sentence)
        if record.spec.pool_ref is not None:
            pool = self._views.pools.get((record.spec.pool_ref.namespace, record.spec.pool_ref.name))
            if pool is not None:
                self._say(reference(GPU_NODE_POOLS, pool), reason, sentence, about)
        node = self._views.nodes.get(("", record.spec.node.name)) if record.spec.node is not None else None
        if node is not None:
            self._say(reference(NODES, node), reason, sentence, about)
        for asked in record.spec.pods[:_PODS_TOLD]:
            pod = self._views.pods.get((asked.namespace, asked.name))
            if pod is not None and pod.uid == asked.uid and pod.node is None:
                self._say(reference(PODS, pod), reason, sentence, about)

    def tell(self, told: PodEvent) -> bool:
        """Whether it was worth an event: the reason is another, or the sentence is and some time has passed. Sentences
        say how long something still takes, and change all the time.
        """
        now = asyncio.get_running_loop().time()
        reason, sentence, at = self._told.get(told.pod.uid, (None, "", 0.0))
        if reason is told.reason and (sentence == told.sentence or now - at < _TOLD_AGAIN):
            return False
        self._told[told.pod.uid] = (told.reason, told.sentence, now)
        self._told.move_to_end(told.pod.uid)
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        self._recorder.event(
            reference(PODS, told.pod),
            reason=told.reason,
            note=told.sentence,
            type="Warning" if told.warning else "Normal",
        )
        return True

    def about(self, regarding: ObjectReference, reason: Reason, sentence: str, *, warning: bool = False) -> None:
        self._recorder.event(regarding, reason=reason, note=sentence, type="Warning" if warning else "Normal")

    def condition(
        self,
        regarding: ObjectReference,
        before: Iterable[Condition],
        after: Iterable[Condition],
        reason: Reason,
        sentence: str,
    ) -> None:
        """An event where what is said has changed; figures alone make none."""
        said = {each.type: each for each in before}
        changed = [
            each
            for each in after
            if each.type not in said or (said[each.type].status, said[each.type].reason) != (each.status, each.reason)
        ]
        if changed:
            warning = any(each.status is not Truth.TRUE for each in changed)
            self.about(regarding, reason, sentence, warning=warning)

    def _say(
        self, regarding: ObjectReference, reason: Reason, sentence: str, related: ObjectReference | None = None
    ) -> None:
        self._recorder.event(
            regarding,
            reason=reason,
            note=sentence,
            type="Warning" if reason in _WARNINGS else "Normal",
            related=related,
        )
