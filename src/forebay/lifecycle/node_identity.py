"""Which Node object is that of a rented machine.

A node is tied to its record by the name that was chosen for it, under which only its own machine gets a certificate,
and by spec.providerID, which the API server lets nobody change. Labels prove nothing: a node writes them itself.
"""

from collections.abc import Iterable
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.model.nodes import Node
from forebay.model.sources import Instance

_OWN_SCHEME: Final = "forebay://"


def own_provider_id(record: GPUInstance) -> str:
    """The spec.providerID that a machine registers with where Forebay writes what it boots: known before the launch."""
    return _own_id(record.spec.provider, record.uid)


def node_of_orphan(instance: Instance, provider: str, nodes: Iterable[Node]) -> Node | None:
    """The node of a machine that has lost its record: the one that registered with the spec.providerID that Forebay
    told the machine, or with the provider's own.
    """
    ids = {instance.provider_id, _own_id(provider, instance.owner) if instance.owner is not None else None} - {None}
    return next((node for node in nodes if node.provider_id in ids), None) if ids else None


def _own_id(provider: str, uid: str) -> str:
    return f"{_OWN_SCHEME}{provider}/{uid}"


def is_own_provider_id(provider_id: str | None) -> bool:
    return provider_id is not None and provider_id.startswith(_OWN_SCHEME)


def is_stranger(record: GPUInstance, node: Node) -> bool:
    """True where the node has the name that was planned for the record, but is another machine at its provider."""
    expected = record.status.provider_id if record.status is not None else None
    if policy_of(record).node_outlives_it or expected is None or node.provider_id is None:
        return False
    return node.provider_id != expected


def may_be_copy(record: GPUInstance, node: Node) -> bool:
    """True where another machine of the same provider and place has joined under the name planned for the record."""
    expected = record.status.provider_id if record.status is not None else None
    if expected is None or node.provider_id is None or record.spec.node is None or not is_stranger(record, node):
        return False
    return record.spec.node.name == node.name and _place(node.provider_id) == _place(expected)


def _place(provider_id: str) -> str:
    return provider_id.rpartition("/")[0]


def goes_with(record: GPUInstance, node: Node) -> bool:
    """True where the Node object is to be deleted with the machine of the record, which is proven gone."""
    return will_go_with(record, node) and not node.ready and node.deleted is None


def will_go_with(record: GPUInstance, node: Node) -> bool:
    """True where the Node object is that of the record's machine, and is to be deleted with it once it is not Ready.

    Not where the record is of something that was never launched, or that was found: such a record has a node only
    where spec.providerID says so.
    """
    status = record.status
    if policy_of(record).node_outlives_it or status is None or status.instance_id is None or is_stranger(record, node):
        return False
    proven = node.provider_id is not None and node.provider_id == status.provider_id
    planned = record.spec.node is not None and record.spec.node.name == node.name
    return proven or planned
