"""Which providers a class may name, and how their machines can come into the cluster.

Only what admission needs to know: the facts are those of the providers' own documentation. A provider's code says the
same in its capabilities, and a test holds both together.
"""

from enum import StrEnum
from typing import Final

import msgspec


class ProviderName(StrEnum):
    AWS = "aws"
    CRUSOE = "crusoe"
    GCP = "gcp"
    LAMBDALABS = "lambdalabs"
    NEBIUS = "nebius"
    PAPERSPACE = "paperspace"
    RUNPOD = "runpod"
    SIMULATED = "simulated"
    VAST = "vast"
    WEBHOOK = "webhook"


class Join(StrEnum):
    """The fields of a class that say how a rented machine becomes a node."""

    TALOS = "talosConfig"
    K3S = "k3sConfig"
    KUBEADM = "kubeadmConfig"
    CLOUD_INIT = "cloudInit"


class ProviderAdmission(msgspec.Struct, frozen=True, kw_only=True):
    #: Ways its machines can be made to join. None: it runs containers, or machines that are installed already.
    joins: frozenset[Join]
    #: A cloud that rents machines which are nobody's until they join.
    rents_machines: bool = False
    #: Must name a Secret. Others take the identity Forebay runs with, or need none.
    needs_credentials: bool = True


_TALOS_TOO: Final = frozenset(Join)
_SCRIPTED: Final = frozenset(Join) - {Join.TALOS}
_NOTHING: Final[frozenset[Join]] = frozenset()

ADMISSION: Final[dict[ProviderName, ProviderAdmission]] = {
    ProviderName.AWS: ProviderAdmission(joins=_TALOS_TOO, rents_machines=True, needs_credentials=False),
    ProviderName.CRUSOE: ProviderAdmission(joins=_SCRIPTED, rents_machines=True),
    ProviderName.GCP: ProviderAdmission(joins=_TALOS_TOO, rents_machines=True, needs_credentials=False),
    ProviderName.LAMBDALABS: ProviderAdmission(joins=_SCRIPTED, rents_machines=True),
    ProviderName.NEBIUS: ProviderAdmission(joins=_SCRIPTED, rents_machines=True),
    ProviderName.PAPERSPACE: ProviderAdmission(joins=_SCRIPTED, rents_machines=True),
    ProviderName.RUNPOD: ProviderAdmission(joins=_NOTHING),
    ProviderName.SIMULATED: ProviderAdmission(joins=_TALOS_TOO, needs_credentials=False),
    ProviderName.VAST: ProviderAdmission(joins=_NOTHING),
    ProviderName.WEBHOOK: ProviderAdmission(joins=_NOTHING, needs_credentials=False),
}

RENTS_MACHINES: Final = tuple(name for name, admission in ADMISSION.items() if admission.rents_machines)
NEEDS_CREDENTIALS: Final = tuple(name for name, admission in ADMISSION.items() if admission.needs_credentials)
#: Owned machines are left out: what they boot was decided when they were installed.
WITHOUT_TALOS: Final = tuple(
    name
    for name, admission in ADMISSION.items()
    if Join.TALOS not in admission.joins and name is not ProviderName.WEBHOOK
)
RUNS_CONTAINERS: Final = (ProviderName.RUNPOD, ProviderName.VAST)


def can_use(join: Join) -> tuple[ProviderName, ...]:
    return tuple(name for name, admission in ADMISSION.items() if join in admission.joins)
