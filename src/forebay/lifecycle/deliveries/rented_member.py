"""A rented machine that a NodeProvisioner keeps: the group is Forebay's own, so a lost member is replaced."""

from typing import ClassVar

from forebay.lifecycle.deliveries.rented_node import RentedNode


class RentedMember(RentedNode):
    """All other answers are those of a rented machine."""

    every_pod_keeps_it: ClassVar[bool] = True
