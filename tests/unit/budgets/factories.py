"""Budgets, pods and machines with defaults, and a store for the chunks of a ledger."""

from datetime import UTC, datetime, timedelta

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.gpu_workload_budget import (
    Enforcement,
    EnforcementAction,
    GPUWorkloadBudget,
    GPUWorkloadBudgetSpec,
    GPUWorkloadBudgetStatus,
    Quota,
)
from forebay.api.meta import ObjectMeta
from forebay.api.parts import Condition, LabelSelectorEntry, PodRef, Truth
from forebay.budgets.accounts import Accounts
from forebay.budgets.assessment import Assessor
from forebay.budgets.ledger.ledger import Ledger
from forebay.model.quantities import Resources
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner, Phase, Pod, PodShape

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
GPU = "nvidia.com/gpu"
DAY = 86_400
MICRO = 10**6


def at(seconds=0, **span) -> datetime:
    return START + timedelta(seconds=seconds, **span)


def budget(name="team-a", *, namespace="default", hours="100", window=24, labels=None, **fields) -> GPUWorkloadBudget:
    """Budget of team a; `since` is when QuotaExceeded became true, as its status says."""
    since = fields.pop("since", None)
    status = None
    if since is not None:
        condition = Condition(
            type="QuotaExceeded", status=Truth.TRUE, reason="QuotaReached", last_transition_time=since
        )
        status = GPUWorkloadBudgetStatus(conditions=(condition,))
    return GPUWorkloadBudget(
        metadata=ObjectMeta(name=name, namespace=namespace, uid=f"uid-of-{name}"),
        spec=GPUWorkloadBudgetSpec(
            selector=fields.pop("selector", None) or LabelSelectorEntry(match_labels=labels or {"team": "a"}),
            quota=Quota(gpu_hours=hours, usd=fields.pop("usd", None), window_hours=window),
            enforcement=Enforcement(
                action=fields.pop("action", EnforcementAction.EVICT), grace_period_seconds=fields.pop("grace", 30)
            ),
            **fields,
        ),
        status=status,
    )


def shape(gpus=1, *, cpu=1000, gates=()) -> PodShape:
    return PodShape(requests=Resources({"cpu": cpu, GPU: gpus, "pods": 1}), scheduling_gates=gates)


def pod(name="train", gpus=1, *, started=None, finished=None, version=1, job=None, gates=(), **fields) -> Pod:
    """Pod of team a; `started` and `finished` are in seconds."""
    phase = Phase.PENDING if started is None else Phase.RUNNING if finished is None else Phase.SUCCEEDED
    return Pod(
        **{
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "resource_version": version,
            "created": at(-DAY),
            "shape": shape(gpus, gates=gates),
            "phase": phase,
            "labels": {"team": "a"},
            "annotations": {},
            "owner": None if job is None else Owner("Job", job, f"uid-of-job-{job}"),
            "node": None if started is None else "n1",
            "nominated_node": None,
            "deleted": None,
            "unschedulable_since": None,
            "unschedulable_message": None,
            "finalizers": (),
            "started": None if started is None else at(started),
            "finished": None if finished is None else at(finished),
            **fields,
        }
    )


class Store:
    """Stored chunks of one ledger by serial, each written or deleted as a whole."""

    def __init__(self) -> None:
        self.objects: dict[int, bytes] = {}

    def save(self, ledger: Ledger, now: int, *, steps: int | None = None) -> bool:
        """Store everything, or make only `steps` requests, as if the operator died then: False."""
        left = 10**9 if steps is None else steps
        for write in ledger.chunk_log.writes(now):
            if not left:
                return False
            left -= 1
            self.objects[write.serial] = write.data
            ledger.chunk_log.wrote(write)
        for serial in ledger.chunk_log.obsolete():
            if not left:
                return False
            left -= 1
            del self.objects[serial]
            ledger.chunk_log.deleted(serial)
        return True

    def load(self, owner="uid-of-team-a") -> Ledger:
        ledger, damages = Ledger.load(owner, self.objects)
        assert damages == ()
        return ledger


def machine(name="gi-1", *, price="3.60", start=0, end=None, since=0, pods=(), pool="h100", **fields) -> GPUInstance:
    """Machine that is billed from `start` to `end`, in seconds, and was launched for `pods`."""
    state = fields.pop("state", InstanceState.READY if end is None else InstanceState.GONE)
    node = fields.pop("node", "n1")
    billing = fields.pop("billing", None)
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=GPUInstanceSpec(
            provider="webhook",
            delivers=Delivery.NODE,
            pool_ref=None if pool is None else PoolRef(namespace="infra", name=pool),
            node_class_name="cloud",
            hourly_price=price,
            billing=billing,
            pods=tuple(PodRef(namespace=each.namespace, name=each.name, uid=each.uid) for each in pods),
        ),
        status=GPUInstanceStatus(
            state=state,
            since=at(since),
            node_name=node,
            billed_from=None if start is None else at(start),
            billed_until=None if end is None else at(end),
            **fields,
        ),
    )


def assessed(*pods, budgets=None, when=0):
    """Accounts, standings at `when` seconds, and budgets by key."""
    budgets = budgets or [budget()]
    accounts = Accounts()
    for each in budgets:
        accounts.open(each, at(when))
    for each in pods:
        accounts.see(each, at(when))
    return accounts, Assessor().assess(budgets, accounts, at(when)), {each.key: each for each in budgets}
