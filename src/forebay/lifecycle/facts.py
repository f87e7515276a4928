"""The facts from which the next step of one GPUInstance follows."""

from datetime import datetime, timedelta

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.api.values import duration
from forebay.model.nodes import Node
from forebay.model.sources import Capabilities, Delivery, Listing
from forebay.model.workloads import Pod


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    record: GPUInstance
    #: None: the provider of the record is no longer configured.
    capabilities: Capabilities | None
    #: None: the provider has not been listed yet, so nothing may be concluded from absence.
    listing: Listing | None = None
    node: Node | None = None
    #: Pods on the node for which `Pod.occupies_node` holds: no DaemonSet pod, no mirror pod, none that has ended.
    pods: tuple[Pod, ...] = ()
    #: Some pod that the record was created for is still pending.
    wanted: bool = True
    #: Some pending pod would fit on the node if that were empty and not cordoned.
    needed: bool = False
    pool_exists: bool = True
    #: Too many nodes of the pool are unhealthy at once, so none of them is replaced.
    replacement_paused: bool = False
    #: Wait between the cordon and the last check for pods that the scheduler was just binding.
    cordon_wait: timedelta = timedelta(seconds=3)

    @property
    def status(self) -> GPUInstanceStatus:
        return self.record.status or GPUInstanceStatus()

    @property
    def deleting(self) -> bool:
        return self.record.metadata.deletion_timestamp is not None

    @property
    def owned(self) -> bool:
        """True for an owned machine, which is powered on and off and never ceases to exist."""
        return self.record.spec.delivers is Delivery.POWER

    @property
    def since(self) -> datetime | None:
        return self.status.since or self.record.metadata.creation_timestamp

    @property
    def name(self) -> str:
        return self.record.metadata.name


def instance_id(record: GPUInstance) -> str | None:
    """Id at the provider, once known. An owned machine's id is its name, even before a launch was confirmed."""
    recorded = record.status.instance_id if record.status is not None else None
    if recorded is None and record.spec.delivers is Delivery.POWER:
        return record.spec.offer.instance_type if record.spec.offer is not None else record.metadata.name
    return recorded


def boot_deadline(record: GPUInstance) -> timedelta | None:
    """The machine's own limit from the launch call to an initialized node; None where the provider's limits hold."""
    stated = record.spec.offer.boot_deadline if record.spec.offer is not None else None
    return duration(stated) if stated is not None else None
