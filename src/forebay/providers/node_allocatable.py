"""What pods can use of a rented machine: its capacity less a usual reservation for the kubelet and the system.

The formula is the one that managed Kubernetes services publish: a share that falls with the size of the machine, and
100 MiB below which the kubelet evicts. A node that reports less is corrected by what it reports.
"""

from fractions import Fraction
from typing import Final

from forebay.model.quantities import Resources

_GIB: Final = 2**30
_MIB: Final = 2**20
_EVICTION: Final = 100 * _MIB
#: Share reserved of each step of memory, in GiB; the rest is after them.
_MEMORY_STEPS: Final = ((4, Fraction(25, 100)), (4, Fraction(20, 100)), (8, Fraction(10, 100)), (112, Fraction(6, 100)))
_MEMORY_REST: Final = Fraction(2, 100)
#: Share reserved of each step of cores.
_CORE_STEPS: Final = ((1, Fraction(6, 100)), (1, Fraction(1, 100)), (2, Fraction(1, 200)))
_CORE_REST: Final = Fraction(1, 400)


def node_allocatable(*, cores: int, memory: int, gpus: int, gpu_resource: str, disk: int | None = None) -> Resources:
    """Allocatable resources of a machine with so many cores, bytes of memory and of disk."""
    amounts = {
        "cpu": cores * 1000 - _reserved(cores * 1000, 1000, _CORE_STEPS, _CORE_REST),
        "memory": max(memory - _reserved(memory, _GIB, _MEMORY_STEPS, _MEMORY_REST) - _EVICTION, 0),
        "pods": 110,
        gpu_resource: gpus,
    }
    if disk is not None:
        amounts["ephemeral-storage"] = disk * 9 // 10
    return Resources(amounts)


def _reserved(amount: int, unit: int, steps: tuple[tuple[int, Fraction], ...], rest: Fraction) -> int:
    reserved, left = Fraction(0), amount
    for size, share in steps:
        taken = min(left, size * unit)
        reserved += taken * share
        left -= taken
    return int(reserved + left * rest) + 1
