"""The policy of each delivery."""

from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.container import Container
from forebay.lifecycle.deliveries.group_member import GroupMemberNode
from forebay.lifecycle.deliveries.owned_machine import OwnedMachine
from forebay.lifecycle.deliveries.policy import DeliveryPolicy
from forebay.lifecycle.deliveries.rented_member import RentedMember
from forebay.lifecycle.deliveries.rented_node import RentedNode
from forebay.model.sources import Delivery

_POLICIES: Final[Mapping[Delivery, DeliveryPolicy]] = {
    Delivery.NODE: RentedNode(),
    Delivery.POWER: OwnedMachine(),
    Delivery.CONTAINER: Container(),
}

#: What a NodeProvisioner's members are, whoever launches them.
MEMBERS_ARE: Final = Delivery.NODE

_GROUP_MEMBER: Final = GroupMemberNode()
_RENTED_MEMBER: Final = RentedMember()


def policy_for(delivery: Delivery) -> DeliveryPolicy:
    return _POLICIES[delivery]


def policy_of(record: GPUInstance) -> DeliveryPolicy:
    if record.spec.provisioner_ref is None:
        return _POLICIES[record.spec.delivers]
    return _GROUP_MEMBER if record.in_instance_group else _RENTED_MEMBER
