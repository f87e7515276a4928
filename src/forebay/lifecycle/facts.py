"""The facts from which the next step of one GPUInstance follows."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus
from forebay.demand.maintenance import held_by_people, keeps_machine
from forebay.lifecycle.deliveries.policies import policy_for, policy_of
from forebay.lifecycle.deliveries.policy import DeliveryPolicy
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Listing, Source, SourceKey
from forebay.model.workloads import Pod


class Withdrawal(NamedTuple):
    """Why an order would not be made any more, as a clause."""

    reason: Reason
    sentence: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    record: GPUInstance
    #: None: the provider of the record is no longer configured.
    capabilities: Capabilities | None
    #: None: the provider has not been listed yet, so nothing may be concluded from absence.
    listing: Listing | None = None
    #: The listing is of another account than the one that the machine is in, so nothing may be concluded from it.
    other_account: bool = False
    #: The account that the machine is found to be in, where its record does not say so yet.
    account: str | None = None
    node: Node | None = None
    #: A node of the planned name that is another machine. It is neither used nor drained for this record.
    stranger: Node | None = None
    #: Pods on the node for which `Pod.occupies_node` holds: no DaemonSet pod, no mirror pod, none that has ended.
    pods: tuple[Pod, ...] = ()
    #: Resources by which pods request GPUs; None: every `<vendor>/gpu`.
    gpu_resources: frozenset[str] | None = None
    #: What it was created for still holds, asked by its purpose.
    wanted: bool = True
    #: Some pending pod would fit on the node if that were empty and not cordoned.
    needed: bool = False
    #: Whether the pods that are still on a node which is drained to save cost have room on others.
    room_elsewhere: bool = True
    #: Why it would not be ordered any more; None where it would.
    withdrawn: Withdrawal | None = None
    #: What its pool allows a machine to cost; None where it has none, or is past the time at which that matters.
    most_hourly_price: UsdPerHour | None = None
    #: Why its offer, zone or source is not tried now; None where it may be.
    cooling_down: str | None = None
    #: The last machines of its pool at its source did not become usable nodes: if this one does not either, none of
    #: their offers is to blame.
    others_unusable: bool = False
    #: Versions of the configuration and Secrets of its source.
    revision: Mapping[str, str] = {}
    #: A pool that was deleted may come back (`kubectl replace --force`); a class that is being deleted cannot.
    pool_exists: bool = True
    class_exists: bool = True
    #: The environment variable that states the number of GPUs of the machine; None: its GPUNodeClass does.
    gpu_count_variable: str | None = None
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
    def policy(self) -> DeliveryPolicy:
        return policy_of(self.record)

    @property
    def users(self) -> tuple[Pod, ...]:
        """Those of the pods that keep an idle machine; the others are evicted from one."""
        if self.policy.every_pod_keeps_it:
            return self.pods
        return tuple(pod for pod in self.pods if keeps_machine(pod, self.gpu_resources))

    @property
    def held(self) -> str | None:
        """Why people keep the machine as it is, as a clause; None where nobody does."""
        return held_by_people(self.record, self.node, held_by_cordon=self.policy.held_by_cordon)

    @property
    def since(self) -> datetime | None:
        return self.status.since or self.record.metadata.creation_timestamp

    @property
    def name(self) -> str:
        return self.record.metadata.name


def source_of(record: GPUInstance) -> SourceKey:
    """The source that the GPUInstance came from."""
    spec = record.spec
    if spec.provisioner_ref is not None and record.in_instance_group:
        return SourceKey.of_provisioner(spec.provisioner_ref.name, spec.provider)
    return SourceKey(spec.node_class_name or "", spec.provider)


def kept_by(record: GPUInstance) -> tuple[str, str]:
    """Namespace and name of its pool; "" and the name of its NodeProvisioner; ("", "") without either."""
    provisioner = record.spec.provisioner_ref
    return record.pool_key if provisioner is None else ("", provisioner.name)


def machine_sources(sources: Mapping[SourceKey, Source]) -> dict[str, SourceKey]:
    """The source that names each owned machine, by the machine's name."""
    return {
        offer.instance_type: key
        for key, source in sorted(sources.items(), reverse=True)
        for offer in source.offers or ()
        if policy_for(source.delivery_of(offer)).configured_by_name
    }


def serving_source(record: GPUInstance, machines: Mapping[str, SourceKey]) -> SourceKey:
    """The source that serves the GPUInstance: the one it came from, or the one that names its owned machine now.

    A user may move a machine from environment variables to a GPUNodeClass, or to another class, while it runs.
    """
    if not policy_of(record).configured_by_name:
        return source_of(record)
    return machines.get(instance_id(record) or "", source_of(record))


def instance_id(record: GPUInstance) -> str | None:
    """Id at the provider, once known. An owned machine's id is its name, even before a launch was confirmed."""
    return policy_of(record).instance_id(record)


def may_take_effect_late(record: GPUInstance) -> bool:
    """True where a launch call was made whose effect nobody has seen: it may be under way still, even after the end."""
    status = record.status
    if status is None or not status.attempt:
        return False
    return status.instance_id is None or status.attempt > 1
