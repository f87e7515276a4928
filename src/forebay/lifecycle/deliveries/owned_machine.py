"""An owned machine, which is powered on and off: it never ceases to exist, and neither does its Node object."""

from datetime import datetime, timedelta
from typing import ClassVar, Final

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policy import UNHEALTHY_AFTER, DeliveryPolicy, DeliveryWords, boot_deadline
from forebay.model.nodes import Node
from forebay.model.sources import Capabilities, Instance, InstancePhase

#: Only a listing at most this old shows that a machine is on: older ones are kept while a provider does not answer.
LISTING_MAX_AGE: Final = timedelta(minutes=2)


class OwnedMachine(DeliveryPolicy):
    words: ClassVar[DeliveryWords] = DeliveryWords(
        launch="power on",
        launch_it="power it on",
        launched="powered on",
        launching="powering on",
        launch_call="power-on",
        terminate="power it off",
        terminates="powers off",
        terminated="powered off",
        terminating="powering off",
        terminating_it="powering it off",
        termination="power-off",
        gone="is off",
        proven="it is off",
        launch_again="power it on",
    )
    configured_by_name: ClassVar[bool] = True
    node_outlives_it: ClassVar[bool] = True
    #: Many report "off" until they have booted.
    listed_while_booting: ClassVar[bool] = False
    launches_alike: ClassVar[bool] = True
    repeats_launch: ClassVar[bool] = True
    has_power_on_interval: ClassVar[bool] = True
    adopted_when_found: ClassVar[bool] = True
    proven_by_node: ClassVar[bool] = True
    left_to_tolerating_pods: ClassVar[bool] = True
    held_by_cordon: ClassVar[bool] = True
    leaves_one_by_one: ClassVar[bool] = True
    #: Nothing newer could replace it.
    expires: ClassVar[bool] = False

    def instance_id(self, record: GPUInstance) -> str | None:
        """Its name, even before a launch was confirmed."""
        recorded = super().instance_id(record)
        if recorded is not None:
            return recorded
        return record.spec.offer.instance_type if record.spec.offer is not None else record.metadata.name

    def is_present(self, instance: Instance) -> bool:
        """One that is off counts as absent."""
        return instance.phase is not InstancePhase.STOPPED

    def sighting_holds(self, asked: datetime, now: datetime) -> bool:
        """It may have been powered off since."""
        return asked >= now - LISTING_MAX_AGE

    def has_registered(self, record: GPUInstance, node: Node) -> bool:
        del record
        return node.ready

    def launched_deadline(
        self, since: datetime, running_since: datetime | None, capabilities: Capabilities
    ) -> datetime:
        del running_since
        return since + capabilities.join_deadline

    def unhealthy_after(self, record: GPUInstance, capabilities: Capabilities) -> timedelta:
        """Somebody may reboot it by hand."""
        return max(UNHEALTHY_AFTER, boot_deadline(record) or capabilities.join_deadline)

    def still_on(self, node: Node | None) -> bool:
        return node is not None and node.ready

    def proof(self, record: GPUInstance, listings: int) -> str:
        del listings
        return f"node {record.node_name} is NotReady"

    def describe(self, record: GPUInstance) -> str:
        return record.spec.offer.instance_type if record.spec.offer is not None else record.metadata.name

    def accepted(self, record: GPUInstance, instance: Instance) -> str:
        del instance
        return f". Next: node {record.node_name} must become Ready."

    def already_there(self, record: GPUInstance, instance: Instance) -> str:
        del instance
        return f"{self.describe(record)} is already on. Adopting it."

    def unconfigured(self, record: GPUInstance) -> str:
        of_class = f" of GPUNodeClass {record.spec.node_class_name}" if record.spec.node_class_name else ""
        return (
            f"Machine {self.describe(record)}{of_class} is no longer configured, so Forebay can neither check it nor "
            "power it off; billing may continue. Configure the machine again; or power it off by hand, make sure that "
            "it is off, and remove the finalizer from this GPUInstance."
        )
