"""Drift: nodes that were launched from an earlier template of their pool, or an earlier class."""

from collections.abc import Mapping

from forebay.demand.maintenance import may_be_moved
from forebay.disruption.machine_use import MachineUse


def drifted(machine: MachineUse, templates: Mapping[tuple[str, str], str]) -> str | None:
    """Why the node is to be replaced; None where it is not, or not while its pods run.

    `templates` has, by pool, the hash of what its machines are made of now.
    """
    spec = machine.record.spec
    if spec.pool_ref is None or spec.template_hash is None or not machine.policy.expires or not machine.in_service:
        return None
    current = templates.get((spec.pool_ref.namespace, spec.pool_ref.name))
    if current is None or current == spec.template_hash:
        return None
    if machine.held is not None or any(not may_be_moved(pod) for pod in machine.pods):
        return None
    return (
        f"Node {machine.record.node_name} was launched from an earlier template of pool {spec.pool_ref.namespace}/"
        f"{spec.pool_ref.name} or of its class. Draining and terminating it; its pods get a new node."
    )
