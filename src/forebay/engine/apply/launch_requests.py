"""The launch request for a GPUInstance, made from its record alone, so that the next leader makes the same one."""

from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import STARTUP_TAINT
from forebay.api.parts import Taints
from forebay.api.values import duration
from forebay.demand.startup_taint import startup_taint
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.containers import ContainerSpec
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint as NodeTaint
from forebay.model.sources import AMPLE, Offer
from forebay.model.workloads import POD_COUNT
from forebay.providers.base import BootPayload, LaunchRequest

#: Resources that every node has; an amount that the record does not state is taken to be ample.
_ON_EVERY_NODE: Final = ("cpu", "memory", POD_COUNT)


def launch_request(
    record: GPUInstance,
    cluster: str,
    *,
    boot: BootPayload | None = None,
    container: ContainerSpec | None = None,
) -> LaunchRequest:
    """The request of the record. `boot` and `container` hold secrets that the record does not: they are made anew for
    each request.
    """
    spec, status = record.spec, record.status
    assert spec.offer is not None, "only a record with an offer is launched"
    node = spec.node
    stated = Resources.parse(node.allocatable) if node is not None else Resources()
    unstated = {name: AMPLE for name in _ON_EVERY_NODE if name not in stated}
    offer = Offer(
        provider=spec.provider,
        instance_type=spec.offer.instance_type,
        region=spec.offer.region,
        zone=spec.offer.zone,
        spot=spec.offer.spot,
        gpu_type=spec.offer.gpu_type,
        gpu_count=spec.offer.gpu_count,
        gpu_resource=spec.offer.gpu_resource,
        gpu_memory_gib=spec.offer.gpu_memory_gib,
        price=UsdPerHour(str(spec.hourly_price or "0")),
        allocatable=Resources({**stated, **unstated}),
        billing=record.billing,
        delivers=spec.delivers,
        boot_deadline=duration(spec.offer.boot_deadline) if spec.offer.boot_deadline is not None else None,
        node_name=node.name if policy_of(record).configured_by_name and node is not None else None,
    )
    return LaunchRequest(
        uid=record.uid,
        name=record.metadata.name,
        cluster=cluster,
        offer=offer,
        node_name=node.name if node is not None else "",
        labels=node.labels if node is not None else {},
        taints=_taints(node.taints) if node is not None else (),
        startup_taints=_startup_taints(record),
        attempt=status.attempt if status is not None and status.attempt is not None else 1,
        boot=boot,
        image=spec.image,
        container=container,
        tags=spec.tags,
        max_run_time=duration(spec.max_run_time) if spec.max_run_time is not None else None,
        group=spec.provisioner_ref.group if spec.provisioner_ref is not None and record.in_instance_group else None,
    )


def _startup_taints(record: GPUInstance) -> tuple[NodeTaint, ...]:
    """Forebay's own, whose value is the UID of the record, and those of the plan."""
    node = record.spec.node
    if node is None:
        return ()
    return (startup_taint(record), *(each for each in _taints(node.startup_taints) if each.key != STARTUP_TAINT))


def _taints(taints: Taints) -> tuple[NodeTaint, ...]:
    return tuple(NodeTaint(each.key, each.value or "", each.effect) for each in taints)
