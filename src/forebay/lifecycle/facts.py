"""What is known about one GPUInstance when its next step is thought about."""

from datetime import datetime, timedelta

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.api.values import duration
from forebay.model.nodes import Node
from forebay.model.sources import Capabilities, Delivery, Listing
from forebay.model.workloads import Pod


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    record: GPUInstance
    #: None: the provider it came from is no longer configured.
    capabilities: Capabilities | None
    #: None: its provider has not been listed yet, and nothing may be concluded from absence.
    listing: Listing | None = None
    node: Node | None = None
    #: Pods on its node that count: not of a DaemonSet, not a static pod's mirror, not ended.
    pods: tuple[Pod, ...] = ()
    #: Some pod it was asked for still waits.
    wanted: bool = True
    pool_exists: bool = True
    #: Too many of its pool's nodes are unhealthy at once.
    braked: bool = False
    #: From the cordon to the last look for pods that the scheduler was just placing.
    drain_settle: timedelta = timedelta(seconds=3)

    @property
    def status(self) -> GPUInstanceStatus:
        return self.record.status or GPUInstanceStatus()

    @property
    def deleting(self) -> bool:
        return self.record.metadata.deletion_timestamp is not None

    @property
    def owned(self) -> bool:
        """A machine that is switched on and off, and exists all the time."""
        return self.record.spec.delivers is Delivery.POWER

    @property
    def since(self) -> datetime | None:
        return self.status.since or self.record.metadata.creation_timestamp

    @property
    def name(self) -> str:
        return self.record.metadata.name


def instance_id(record: GPUInstance) -> str | None:
    """Its id at the provider. An owned machine has its own name there, whether or not a launch was ever confirmed."""
    known = record.status.instance_id if record.status is not None else None
    if known is None and record.spec.delivers is Delivery.POWER:
        return record.spec.offer.instance_type if record.spec.offer is not None else record.metadata.name
    return known


def boot_deadline(record: GPUInstance) -> timedelta | None:
    """Where this machine has a time of its own, from the call to a ready node."""
    stated = record.spec.offer.boot_deadline if record.spec.offer is not None else None
    return duration(stated) if stated is not None else None
