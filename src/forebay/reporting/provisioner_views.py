"""NodeProvisioners as `forebay status` shows them."""

import msgspec

from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerStatus
from forebay.api.parts import Truth
from forebay.reconcile.group_reports import GROWTH_BLOCKED


class ProvisionerView(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of the groups of one NodeProvisioner. None: not known yet."""

    name: str
    size: int | None
    target: int | None
    in_use: int | None
    tainted: int | None
    #: Status of the Ready condition: True, False or Unknown. Unknown also where no operator has set it.
    ready: str
    #: What asks for attention, else why the target is what it is.
    reason: str


def provisioner_view(provisioner: NodeProvisioner) -> ProvisionerView:
    status = provisioner.status or NodeProvisionerStatus()
    told = {each.type: each for each in status.conditions}
    ready, blocked = told.get("Ready"), told.get(GROWTH_BLOCKED)
    reason = status.message or "no operator has reconciled this NodeProvisioner yet"
    if ready is not None and ready.status is not Truth.TRUE:
        reason = f"{ready.reason}: {ready.message}"
    elif blocked is not None and blocked.status is Truth.TRUE:
        reason = f"{GROWTH_BLOCKED}: {blocked.message}"
    return ProvisionerView(
        name=provisioner.metadata.name,
        size=status.current_size,
        target=status.target_size,
        in_use=status.utilized_nodes,
        tainted=status.tainted_nodes,
        ready=ready.status if ready is not None else "Unknown",
        reason=reason,
    )
