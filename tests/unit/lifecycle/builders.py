"""Records, nodes, pods and listings for the tests of this folder: a test states only the fields it is about."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState
from forebay.api.instance_order import OfferRecord, PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.names import CORDONED_ANNOTATION, INSTANCE_FINALIZER
from forebay.api.parts import PodRef, TaintEffect, TaintEntry
from forebay.lifecycle.cordon import cordon_time
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.transitions import transition
from forebay.model.nodes import Node
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint as NodeTaint
from forebay.model.sources import Capabilities, Delivery, Found, Instance, InstancePhase, Listing
from forebay.model.workloads import Phase, Pod, PodShape

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
S, R = InstanceState, Reason

RENTED = Capabilities(deliveries=(Delivery.NODE,))
IDEMPOTENT = Capabilities(deliveries=(Delivery.NODE,), idempotent_launch=True)
OWNED = Capabilities(deliveries=(Delivery.POWER,), idempotent_launch=True, settle_time=timedelta(seconds=10))

#: How a record comes into each state, as (state, reason) after its creation.
STEPS = {
    S.REQUESTED: ((S.REQUESTED, R.CAPACITY_NEEDED),),
    S.LAUNCHING: ((S.REQUESTED, R.CAPACITY_NEEDED), (S.LAUNCHING, R.LAUNCH_STARTED)),
}
STEPS[S.LAUNCHED] = (*STEPS[S.LAUNCHING], (S.LAUNCHED, R.LAUNCH_ACCEPTED))
STEPS[S.JOINED] = (*STEPS[S.LAUNCHED], (S.JOINED, R.NODE_JOINED))
STEPS[S.READY] = (*STEPS[S.JOINED], (S.READY, R.NODE_READY))
STEPS[S.RUNNING] = (*STEPS[S.LAUNCHED], (S.RUNNING, R.CONTAINER_RUNNING))
STEPS[S.FINISHED] = (*STEPS[S.RUNNING], (S.FINISHED, R.CONTAINER_FINISHED))
STEPS[S.DRAINING] = (*STEPS[S.READY], (S.DRAINING, R.IDLE))
STEPS[S.TERMINATING] = (*STEPS[S.DRAINING], (S.TERMINATING, R.IDLE))
STEPS[S.GONE] = (*STEPS[S.TERMINATING], (S.GONE, R.TERMINATED))

_CALLED = (S.LAUNCHING, S.LAUNCHED, S.JOINED, S.READY, S.RUNNING, S.FINISHED, S.DRAINING)
_REFUSED = (R.NO_CAPACITY, R.PROVIDER_QUOTA, R.BAD_CREDENTIALS, R.LAUNCH_REJECTED)
_NAMED = (S.LAUNCHED, S.JOINED, S.READY, S.RUNNING, S.FINISHED, S.DRAINING, S.TERMINATING, S.GONE)


def minutes(count):
    return timedelta(minutes=count)


def seconds(count):
    return timedelta(seconds=count)


def record(state=S.REQUESTED, *, since=NOW, because=None, owned=False, name=None, deleting=False, spec=None, **status):
    """In `state` since then; `because` is the last step's reason where it differs from the usual one."""
    name = name or ("gpu-1" if owned else "pool-abc")
    steps = STEPS[state]
    if because is not None:
        steps = (*steps[:-1], (state, because))
        if state is S.DRAINING and because in (R.JOIN_TIMEOUT, R.GPUS_MISSING):
            steps = (*STEPS[S.JOINED], (state, because))
        if state is S.TERMINATING and because not in (R.IDLE, R.EXPIRED, R.DELETED, R.POOL_GONE):
            from_ready = because is R.UNHEALTHY
            steps = (*STEPS[S.READY if from_ready else S.LAUNCHED], (state, because))
        if because in (R.LAUNCH_FAILED, R.NOT_NEEDED, *_REFUSED):
            steps = (*STEPS[S.LAUNCHING], (state, because))
        if because in (R.LEFTOVER, R.DUPLICATE):
            steps = ((state, because),)
    made = None
    for to, reason in steps:
        made = transition(made, to, reason, f"{to} because of {reason}.", since)
    usual = {}
    if state in _CALLED:
        usual = {"attempt": 1, "attempted_at": since, "billed_from": since}
    if state in _NAMED:
        usual |= {"instance_id": "gpu-1" if owned else "i-1", "billed_from": since, "node_name": name}
    return GPUInstance(
        metadata=ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="7",
            creation_timestamp=since,
            deletion_timestamp=NOW if deleting else None,
            finalizers=[INSTANCE_FINALIZER],
        ),
        spec=spec or (owned_spec(name) if owned else rented_spec(name)),
        status=replace(made, **{**usual, **status}),
    )


def fresh_record(**fields):
    """As it was created: without a status."""
    made = record(**fields)
    return GPUInstance(metadata=made.metadata, spec=made.spec)


def rented_spec(name="pool-abc", **fields):
    return GPUInstanceSpec(
        **{
            "provider": "simulated",
            "delivers": Delivery.NODE,
            "node_class_name": "cheap",
            "offer": OfferRecord(instance_type="a100x2", region="us-east", gpu_count=2),
            "hourly_price": "1.29",
            "node": PlannedNode(
                name=name,
                allocatable={"cpu": "8000m", "nvidia.com/gpu": "2"},
                startup_taints=(
                    TaintEntry(key="forebay.dev/startup", effect=TaintEffect.NO_SCHEDULE),
                    TaintEntry(key="example.com/agent", effect=TaintEffect.NO_EXECUTE),
                ),
            ),
            "pods": (PodRef(namespace="team", name="train", uid="uid-train"),),
            **fields,
        }
    )


def owned_spec(name="gpu-1", boot_deadline="15m"):
    return GPUInstanceSpec(
        provider="webhook",
        delivers=Delivery.POWER,
        offer=OfferRecord(instance_type=name, gpu_count=2, boot_deadline=boot_deadline),
        hourly_price="0.4",
        node=PlannedNode(name=name, allocatable={"nvidia.com/gpu": "2"}),
        pods=(PodRef(namespace="team", name="train", uid="uid-train"),),
    )


def node(name="pool-abc", *, ready=True, gpus=2, cordoned=None, users_cordon=False, taints=(), **fields):
    room = Resources({"cpu": 8000, "nvidia.com/gpu": gpus})
    return Node(
        name=name,
        uid=f"node-{name}",
        resource_version=1,
        created=NOW,
        labels={},
        annotations={CORDONED_ANNOTATION: cordon_time(cordoned)} if cordoned is not None else {},
        unschedulable=users_cordon or cordoned is not None,
        taints=tuple(NodeTaint(*each) for each in taints),
        capacity=room,
        allocatable=room,
        ready=ready,
        **fields,
    )


def pod(name="train", *, gpus=1, deleted=None):
    return Pod(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        resource_version=1,
        created=NOW,
        shape=PodShape(requests=Resources({"cpu": 1000, "nvidia.com/gpu": gpus})),
        phase=Phase.RUNNING,
        labels={},
        annotations={},
        owner=None,
        node="pool-abc",
        nominated_node=None,
        deleted=deleted,
        unschedulable_since=None,
        unschedulable_message=None,
        finalizers=(),
    )


def instance(name="i-1", phase=InstancePhase.RUNNING, owner="uid-pool-abc", **fields):
    return Instance(id=name, phase=phase, owner=owner, **{"price": UsdPerHour("1.29"), **fields})


def listed(*instances, asked=NOW, unknown=()):
    return Listing(asked=asked, found=Found(instances=instances, unknown=frozenset(unknown)))


def facts(of, capabilities=None, **fields):
    if capabilities is None:
        capabilities = OWNED if of.spec.delivers is Delivery.POWER else RENTED
    return Facts(record=of, capabilities=capabilities, **fields)


def next_step(seen, now):
    return step_or_wait(seen, now)[0]


def requeue_at(seen, now):
    """When time alone may bring the next step; None: only a change of the facts can."""
    return step_or_wait(seen, now)[1]


def after(step):
    """The record once the step's status has been written."""
    return GPUInstance(metadata=step.record.metadata, spec=step.record.spec, status=step.status)


def condition_of(status: GPUInstanceStatus, kind):
    return next(each for each in status.conditions if each.type == kind)
