"""Stored pods as the scheduler sees them, read by the same code as the operator reads them."""

import msgspec

from forebay.embedded.api.objects import Json
from forebay.embedded.controllers.cluster_state import PodView
from forebay.embedded.controllers.node_info import SchedulingShape
from forebay.kube.pods import PODS
from forebay.kube.wire import wire_for
from forebay.model.encoding import enc_hook
from forebay.model.workloads import PodShape

_pods = wire_for(PODS)
_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic").encode


class ShapeCache:
    """Pods that ask for the same get the same `Ask`."""

    def __init__(self) -> None:
        #: The shape is in the Ask, so its id stays taken.
        self._asks: dict[tuple[int, str], SchedulingShape] = {}
        self._tastes: dict[bytes, int] = {}

    def of(self, pod: PodView) -> SchedulingShape:
        """Raises ValueError for a pod that cannot be understood."""
        shape = _pods.object(msgspec.json.encode(pod.object)).shape
        unsupported = _unsupported(pod.spec)
        ask = self._asks.get((id(shape), unsupported))
        if ask is None:
            ask = self._asks[id(shape), unsupported] = SchedulingShape.of(shape, self._taste(shape), unsupported)
        return ask

    def _taste(self, shape: PodShape) -> int:
        choosing = (shape.tolerations, shape.node_selector, shape.node_affinity, shape.preferred_node_affinity)
        return self._tastes.setdefault(_encode(choosing), len(self._tastes))


def _unsupported(spec: Json) -> str:
    required = [
        c for c in spec.get("topologySpreadConstraints") or () if c.get("whenUnsatisfiable") != "ScheduleAnyway"
    ]
    return "the embedded scheduler does not implement required topologySpreadConstraints" if required else ""
