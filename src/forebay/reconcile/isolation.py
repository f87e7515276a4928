"""Isolation: an object that Forebay cannot handle costs that object its turn, and nobody else's."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

import msgspec

from forebay.model.boundary import Boundary
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot

_R = TypeVar("_R")
_K = TypeVar("_K")


class ObjectId(NamedTuple):
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Faults:
    """Objects that one tick could not handle because of a bug of Forebay, with the error."""

    def __init__(self) -> None:
        self._boundary: Boundary[ObjectId] = Boundary()
        self.errors = self._boundary.errors

    def add(self, kind: str, errors: Mapping[tuple[str, str], Exception]) -> None:
        self.errors.update({ObjectId(kind, *key): error for key, error in errors.items()})

    def of(self, kind: str, namespace: str, name: str) -> AbstractContextManager[None, bool]:
        """Catches whatever the block raises: it then counts as a fault of this object."""
        return self._boundary.of(ObjectId(kind, namespace, name))

    def told(self, kind: str, key: tuple[str, str]) -> str | None:
        """Sentence about the fault of an object; None where there is none."""
        error = self.errors.get(ObjectId(kind, *key))
        if error is None:
            return None
        return (
            f"Forebay failed to handle this object ({type(error).__name__}: {error}), which is a bug. The log has the "
            "details: please report it. Changing the spec may help meanwhile."
        )


def without_faulty(snapshot: Snapshot, stages: Callable[[Snapshot], _R], faults: Faults) -> tuple[_R, tuple[Pod, ...]]:
    """Result of the stages that serve pods, and the pods that these stages could not handle.

    If they fail, they run again without the pods with which they fail by themselves, then without such pools. Raises
    the error where no single object causes it.
    """
    attempt: Boundary[None] = Boundary()
    with attempt.of(None):
        return stages(snapshot), ()
    error = attempt.errors[None]
    for pods, pools in _suspects(snapshot, stages):
        left_out = tuple(pod for pod in snapshot.pending if pod.uid in pods)
        reduced = msgspec.structs.replace(
            snapshot,
            pending=tuple(pod for pod in snapshot.pending if pod.uid not in pods),
            pools=tuple(pool for pool in snapshot.pools if pool.key not in pools),
        )
        # Where they fail again, the next suspects are tried.
        with attempt.of(None):
            result = stages(reduced)
            faults.add("Pod", {pod.key: pods[pod.uid] for pod in left_out})
            faults.add("GPUNodePool", pools)
            return result, left_out
    raise error


_Suspects = tuple[dict[str, Exception], dict[tuple[str, str], Exception]]


def _suspects(snapshot: Snapshot, stages: Callable[[Snapshot], object]) -> Iterator[_Suspects]:
    """Pods by UID and pools that may cause a failure of the stages, the likeliest first."""
    replace = msgspec.structs.replace
    # A pod that fails without any pool is to blame. What fails then with one pool only is that pool's doing.
    pods = _failing({pod.uid: replace(snapshot, pending=(pod,), pools=()) for pod in snapshot.pending}, stages)
    yield pods, {}
    healthy = tuple(pod for pod in snapshot.pending if pod.uid not in pods)
    pools = _failing({pool.key: replace(snapshot, pending=healthy, pools=(pool,)) for pool in snapshot.pools}, stages)
    if len(pools) < len(snapshot.pools) or len(pools) == 1:
        yield pods, pools
    # A pod that fails with every pool.
    yield _failing({pod.uid: replace(snapshot, pending=(pod,)) for pod in snapshot.pending}, stages), {}
    yield pods, pools


def _failing(parts: Mapping[_K, Snapshot], stages: Callable[[Snapshot], object]) -> dict[_K, Exception]:
    boundary: Boundary[_K] = Boundary()
    for key, part in parts.items():
        with boundary.of(key):
            stages(part)
    return boundary.errors
