"""Nodes whose machine is proven off under their pods: nobody reports the end of these, and they use nothing."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.demand.planned_pods import is_gone
from forebay.model.kept import among
from forebay.model.nodes import Node
from forebay.reconcile.node_changes import out_of_service_taint


def machines_off(
    records: Iterable[GPUInstance],
    nodes: Iterable[Node],
    node_named: Callable[[str], Node | None],
    before: Mapping[str, datetime],
) -> dict[str, datetime]:
    """Such nodes, and since when: the GPUInstance is Gone; later, when it is deleted, our taint on the node says so.

    Those of `before` stay until their node is Ready again: while the machine boots, its former pods run no more than
    while it is off.
    """
    found = {}
    for node in among(nodes, out_of_service_taint):
        if node.unready_since is not None:
            found[node.name] = node.unready_since
    for record in among(records, is_gone):
        name, status = record.node_name, record.status
        if name is not None and status is not None:
            there, since = node_named(name), status.billed_until or status.since
            if since is not None and (there is None or not there.ready):
                found[name] = since
    for record in records if found else ():
        if record.state is not InstanceState.GONE and record.node_name is not None:
            found.pop(record.node_name, None)
    for name, since in before.items():
        there = node_named(name)
        if there is not None and not there.ready:
            found[name] = since
    return found
