"""The launch request for a GPUInstance, made from its record alone, so that the next leader makes the same one."""

from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.values import duration
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint as NodeTaint
from forebay.model.sources import AMPLE, Delivery, Offer
from forebay.model.workloads import POD_COUNT
from forebay.providers.base import LaunchRequest

#: Resources that every node has; an amount that the record does not state is taken to be ample.
_ON_EVERY_NODE: Final = ("cpu", "memory", POD_COUNT)


def launch_request(record: GPUInstance, cluster: str) -> LaunchRequest:
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
        gpu_memory_gib=spec.offer.gpu_memory_gib,
        price=UsdPerHour(str(spec.hourly_price or "0")),
        allocatable=Resources({**stated, **unstated}),
        boot_deadline=duration(spec.offer.boot_deadline) if spec.offer.boot_deadline is not None else None,
        node_name=node.name if spec.delivers is Delivery.POWER and node is not None else None,
    )
    return LaunchRequest(
        uid=record.uid,
        name=record.metadata.name,
        cluster=cluster,
        offer=offer,
        node_name=node.name if node is not None else record.metadata.name,
        labels=node.labels if node is not None else {},
        taints=tuple(NodeTaint(each.key, each.value or "", each.effect) for each in node.taints) if node else (),
        attempt=status.attempt if status is not None and status.attempt is not None else 1,
    )
