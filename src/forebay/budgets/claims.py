"""GPUs that pods hold by resource claims: budgets count these like requested ones.

A claim is allocated when the scheduler places its pod, and released after the pod has ended. A pod keeps what it was
seen to hold for as long as it exists, because the release may be seen before the end of the pod.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from forebay.model.devices import DeviceClass, ResourceClaim
from forebay.model.quantities import GPU_SUFFIX, Resources
from forebay.model.workloads import Pod, PodShape

#: Class names that say GPU, by the convention of vendors: the devices of `gpu.nvidia.com` are `nvidia.com/gpu`.
_GPU_CLASS: Final = "gpu."


def resource_of(name: str, device_class: DeviceClass | None) -> str | None:
    """Resource that devices of the class are counted as; None where nothing says that they are GPUs."""
    if device_class is not None and device_class.extended_resource is not None:
        return device_class.extended_resource
    vendor = name.removeprefix(_GPU_CLASS)
    return f"{vendor}{GPU_SUFFIX}" if vendor != name else None


class ClaimedGPUs:
    """GPUs by claims, by pod. Fed by the informer of ResourceClaims."""

    def __init__(self) -> None:
        #: Claims that were changed since the last `update`, by UID.
        self._changed: dict[str, ResourceClaim] = {}
        #: By pod UID, and by UID of the claim.
        self._held: dict[str, dict[str, Resources]] = {}
        #: Shapes with the claimed GPUs, and what they were made of, by pod UID.
        self._shapes: dict[str, tuple[PodShape, PodShape]] = {}

    def add(self, new: ResourceClaim) -> None:
        self._changed[new.uid] = new

    def change(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._changed.pop(old.uid, None)
        if new is not None:
            self.add(new)

    def update(self, class_named: Callable[[str], DeviceClass | None]) -> list[tuple[str, str]]:
        """Take the changes in. Returns the pods (namespace and name) that hold other GPUs than before."""
        changed, self._changed = self._changed, {}
        found: list[tuple[str, str]] = []
        for claim in changed.values():
            counted: Counter[str] = Counter()
            for name in claim.allocated:
                if (resource := resource_of(name, class_named(name))) is not None:
                    counted[resource] += 1
            if not counted or not claim.reserved_for:
                continue
            # Devices of a claim that several pods share count once, for the first of them.
            pod, uid = claim.reserved_for[0]
            held, gpus = self._held.setdefault(uid, {}), Resources(counted)
            if held.get(claim.uid) != gpus:
                held[claim.uid] = gpus
                self._shapes.pop(uid, None)
                found.append((claim.namespace, pod))
        return found

    def counted(self, pod: Pod) -> Pod:
        """The pod with the GPUs of its claims among its requests."""
        held = self._held.get(pod.uid) if pod.shape.resource_claims else None
        if held is None:
            return pod
        made = self._shapes.get(pod.uid)
        if made is None or made[0] is not pod.shape:
            requests = sum(held.values(), start=pod.shape.requests)
            made = self._shapes[pod.uid] = pod.shape, replace(pod.shape, requests=requests)
        return replace(pod, shape=made[1])

    def gone(self, pod: Pod) -> None:
        self._held.pop(pod.uid, None)
        self._shapes.pop(pod.uid, None)
