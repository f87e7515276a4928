"""A rented machine that joins the cluster as a node, and goes together with its Node object."""

from typing import ClassVar

from forebay.lifecycle.deliveries.policy import DeliveryPolicy


class RentedNode(DeliveryPolicy):
    """All other answers are the usual ones."""

    joins_as_new_node: ClassVar[bool] = True
    ends_while_booting: ClassVar[bool] = True
