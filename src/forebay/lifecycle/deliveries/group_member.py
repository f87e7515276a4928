"""A member of an instance group: a rented machine whose group belongs to the user, and whose name is its id."""

from typing import ClassVar

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policy import DeliveryPolicy
from forebay.model.sources import Listing


class GroupMemberNode(DeliveryPolicy):
    #: A member that Forebay did not launch stays, also where it does not become a node.
    adopted_when_found: ClassVar[bool] = True
    stays: ClassVar[str] = "It stays in its group"
    #: Its group may repair it; Forebay deletes only members without pods.
    replaced_when_unhealthy: ClassVar[bool] = False
    every_pod_keeps_it: ClassVar[bool] = True

    def instance_id(self, record: GPUInstance) -> str | None:
        """Group and name, even before the launch was confirmed."""
        recorded = super().instance_id(record)
        reference, node = record.spec.provisioner_ref, record.spec.node
        if recorded is not None or reference is None or reference.group is None or node is None:
            return recorded
        return f"{reference.group}/{node.name}"

    def was_created(self, record: GPUInstance, listing: Listing | None) -> bool:
        """A name is a member from the call on, but there is a machine only once its group has got one."""
        known = self.instance_id(record)
        ended = listing is not None and known in listing.found.ended
        return ended or (record.status is not None and record.status.provider_id is not None)

    def describe(self, record: GPUInstance) -> str:
        reference = record.spec.provisioner_ref
        group = reference.group if reference is not None else None
        return f"{record.node_name} of instance group {group} at {record.spec.provider}"

    def vanished(self, record: GPUInstance) -> str:
        del record
        return "Somebody else deleted it, or the provider did. Its pods count as demand again."
