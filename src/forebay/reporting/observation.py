"""`Observation`: what a leading operator last saw and decided; the dashboard is computed from it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.model.workloads import Pod
from forebay.reconcile.decisions import Decision, PodEvent
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.cluster_view import ClusterView, EventLine
from forebay.reporting.decision_log import DecisionLog
from forebay.reporting.receipts import Receipt


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The last snapshot, what was decided from it, and what the operator keeps over time."""

    snapshot: Snapshot
    decisions: tuple[Decision, ...]
    log: DecisionLog
    #: Ledgers of the bill, which change between two ticks.
    bill: Mapping[BillKey, Ledger]
    #: Of a dry run, the receipts of its days, today's first.
    receipts: tuple[Receipt, ...] | None = None


class Standby(msgspec.Struct, frozen=True):
    """A replica that has nothing to show, because it does not lead, or has not reconciled yet."""

    #: Who leads; "" where nobody is known to.
    leader: str
    #: Of a replica that leads: what it waits for.
    waits_for: str | None = None


def cluster_view(snapshot: Snapshot) -> ClusterView:
    """The view that explanations are computed from. Whoever has a snapshot has an operator that runs, or ran."""
    return ClusterView(
        now=snapshot.now,
        records=snapshot.records,
        pools=snapshot.pools,
        classes=snapshot.classes,
        nodes=snapshot.nodes,
        pods_by_node=snapshot.pods_by_node,
        operator_running=True,
        gpu_resources=snapshot.rules.gpu_resources,
    )


def pod_event_lines(decisions: Iterable[Decision], now: datetime) -> dict[str, EventLine]:
    """The last event on each pod that these decisions record, by the pod's namespace/name."""
    return {
        "/".join(each.pod.key): EventLine(
            about="/".join(each.pod.key),
            at=now,
            type="Warning" if each.warning else "Normal",
            reason=each.reason,
            note=each.sentence,
        )
        for each in decisions
        if isinstance(each, PodEvent)
    }


def records_by_pod(records: Iterable[GPUInstance]) -> dict[str, list[GPUInstance]]:
    """GPUInstances that were launched for each pod, by the pod's UID."""
    found: dict[str, list[GPUInstance]] = {}
    for record in records:
        for planned in record.spec.pods:
            found.setdefault(planned.uid, []).append(record)
    return found


def every_pod(snapshot: Snapshot) -> Iterator[Pod]:
    """Pods that the snapshot knows: waiting ones, those on nodes of GPUInstances, and those in remote containers."""
    yield from snapshot.waiting
    for pods in snapshot.pods_by_node.values():
        yield from pods
    yield from snapshot.container_pods.values()


def find_pod(snapshot: Snapshot, namespace: str, name: str) -> Pod | None:
    return next((pod for pod in every_pod(snapshot) if pod.key == (namespace, name)), None)
