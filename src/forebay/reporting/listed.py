"""Long lists as pages: waiting pods and GPUInstances, filtered and sorted before anything is computed for a row."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.demand.planned_pods import planned_nodes
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.machines import MachineView, machine_view
from forebay.reporting.observation import Observation, pod_event_lines, records_by_pod
from forebay.reporting.status import WaitingPod, why_waiting

T = TypeVar("T")
V = TypeVar("V")

ROWS: Final = 50


class ListPage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The rows of one page, and of how many."""

    rows: list[T]
    #: From 1.
    page: int
    pages: int
    #: Rows that the filter admits, and all.
    matching: int
    total: int


def list_page(found: Sequence[V], total: int, page: int, view: Callable[[V], T], rows: int = ROWS) -> ListPage[T]:
    """Page `page` of what was found; the nearest one where there is no such page."""
    pages = max(1, -(-len(found) // rows))
    page = min(max(page, 1), pages)
    shown = found[(page - 1) * rows : page * rows]
    return ListPage(rows=[view(each) for each in shown], page=page, pages=pages, matching=len(found), total=total)


def waiting_page(seen: Observation, query: str = "", page: int = 1, rows: int = ROWS) -> ListPage[WaitingPod]:
    """Pods that wait, those that have waited longest first, each with its reason."""
    snapshot = seen.snapshot
    resources = snapshot.rules.gpu_resources
    events = pod_event_lines(seen.decisions, snapshot.now)
    launched = records_by_pod(snapshot.records)
    planned = planned_nodes(snapshot.records, {pod.uid for pod in snapshot.waiting})

    def reason(pod: Pod) -> str:
        return why_waiting(
            pod,
            launched.get(pod.uid, ()),
            latest_events=events,
            nodes=snapshot.nodes,
            planned_for_pod=planned.get(pod.uid, ()),
            gpu_resources=resources,
            now=snapshot.now,
        )

    def view(pod: Pod) -> WaitingPod:
        since = pod.unschedulable_since or pod.created
        return WaitingPod("/".join(pod.key), int(pod.shape.gpus(resources)), since, reason(pod))

    wanted = query.casefold()
    found = [
        pod
        for pod in snapshot.waiting
        if not wanted or _has(wanted, (*pod.key, pod.capacity or "", pod.owner.name if pod.owner is not None else ""))
    ]
    found.sort(key=lambda pod: (pod.created, pod.key))
    return list_page(found, len(snapshot.waiting), page, view, rows)


def waiting_reasons(snapshot: Snapshot) -> list[tuple[str, int, int]]:
    """How many pods wait for each reason that their condition states, and for how many GPUs; the most pods first."""
    found: dict[str, tuple[int, int]] = {}
    for pod in snapshot.waiting:
        reason = pod.capacity.partition(":")[0] if pod.capacity is not None else "NotYetScheduled"
        pods, gpus = found.get(reason, (0, 0))
        found[reason] = (pods + 1, gpus + int(pod.shape.gpus(snapshot.rules.gpu_resources)))
    return sorted(((reason, *counts) for reason, counts in found.items()), key=lambda each: (-each[1], each[0]))


def machine_page(
    snapshot: Snapshot, query: str = "", page: int = 1, rows: int = ROWS, *, state: str = ""
) -> ListPage[MachineView]:
    """GPUInstances, the newest first and those that are Gone last."""
    wanted = query.casefold()
    found = [
        record
        for record in snapshot.records
        if (not state or record.state == state) and (not wanted or _has(wanted, _words(record)))
    ]
    found.sort(key=_newest_first)
    return list_page(
        found,
        len(snapshot.records),
        page,
        lambda record: machine_view(record, snapshot.pods_by_node, snapshot.now),
        rows,
    )


def _words(record: GPUInstance) -> tuple[str, ...]:
    spec = record.spec
    pool = "" if spec.pool_ref is None else f"{spec.pool_ref.namespace}/{spec.pool_ref.name}"
    offer = "" if spec.offer is None else f"{spec.offer.instance_type} {spec.offer.gpu_type or ''}"
    reason = "" if record.status is None else record.status.reason or ""
    return (record.metadata.name, record.state, pool, spec.node_class_name or "", spec.provider, offer, reason)


def _newest_first(record: GPUInstance) -> tuple[bool, float, str]:
    created = record.metadata.creation_timestamp
    return (
        record.state is InstanceState.GONE,
        -created.timestamp() if created is not None else 0.0,
        record.metadata.name,
    )


def _has(wanted: str, words: Iterable[str]) -> bool:
    return any(wanted in word.casefold() for word in words)
