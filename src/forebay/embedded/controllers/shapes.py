"""Scheduling shapes of stored pods, decoded by the same code with which the operator reads pods."""

import msgspec

from forebay.embedded.api.objects import Json
from forebay.embedded.controllers.cluster_state import PodView
from forebay.embedded.controllers.node_info import SchedulingShape
from forebay.kube.decoders import decoder_for
from forebay.kube.pods import PODS
from forebay.model.encoding import enc_hook
from forebay.model.workloads import PodShape

_pods = decoder_for(PODS)
_encode = msgspec.json.Encoder(enc_hook=enc_hook, order="deterministic").encode


class ShapeCache:
    """One `SchedulingShape` for all pods that ask for the same."""

    def __init__(self) -> None:
        #: By the id of the PodShape, which stays taken because the SchedulingShape holds the PodShape.
        self._shapes: dict[tuple[int, str], SchedulingShape] = {}
        self._node_filters: dict[bytes, int] = {}

    def shape_of(self, pod: PodView) -> SchedulingShape:
        """Raises ValueError for a pod that cannot be decoded."""
        shape = _pods.object(msgspec.json.encode(pod.object)).shape
        unsupported = _unsupported(pod.spec)
        known = self._shapes.get((id(shape), unsupported))
        if known is None:
            known = SchedulingShape.of(shape, self._node_filter(shape), unsupported)
            self._shapes[id(shape), unsupported] = known
        return known

    def _node_filter(self, shape: PodShape) -> int:
        terms = (shape.tolerations, shape.node_selector, shape.node_affinity, shape.preferred_node_affinity)
        return self._node_filters.setdefault(_encode(terms), len(self._node_filters))


def _unsupported(spec: Json) -> str:
    required = [
        c for c in spec.get("topologySpreadConstraints") or () if c.get("whenUnsatisfiable") != "ScheduleAnyway"
    ]
    if required:
        return "the embedded scheduler does not implement required topologySpreadConstraints"
    # The embedded server has no PersistentVolumeClaims, so that those of a pod are never bound.
    if any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ()):
        return "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    return ""
