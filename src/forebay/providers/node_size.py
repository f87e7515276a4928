"""What pods can use of a rented machine, from the size that its cloud states.

A cloud states nominal sizes. The kernel takes a part of the memory, and kubelet, container runtime and the eviction
thresholds take another before pods get any. Until a node of the same provider, type and join method has been Ready, and
its own figures are known (`reconcile.observed_sizes`), this is assumed, on the safe side of what each join method
leaves by default (docs/joining.md):

| resource          | kept back                                                      |
|-------------------|----------------------------------------------------------------|
| cpu               | 200 millicores, and one percent                                |
| memory            | 1 GiB, and four percent                                        |
| ephemeral-storage | 20 GiB for system and images, and the eviction threshold, 15 % |
"""

from typing import Final

from forebay.model.quantities import Resources

_PODS: Final = 110
_MIB: Final = 1024


def allocatable(
    *, vcpus: int, memory_gib: int, gpus: int, storage_gib: int | None = None, gpu_resource: str = "nvidia.com/gpu"
) -> Resources:
    """Resources for pods on a machine of this nominal size."""
    millicores = max(vcpus * 990 - 200, 100)
    memory_mib = max(memory_gib * _MIB * 96 // 100 - _MIB, 256)
    amounts: dict[str, str | int] = {
        "cpu": f"{millicores}m",
        "memory": f"{memory_mib}Mi",
        "pods": _PODS,
        gpu_resource: gpus,
    }
    if storage_gib is not None:
        amounts["ephemeral-storage"] = f"{max(storage_gib * 85 // 100 - 20, 1)}Gi"
    return Resources.parse(amounts)
