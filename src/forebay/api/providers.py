"""Providers that a GPUNodeClass may name, and how their machines can join the cluster.

Only what admission needs to know, from the providers' own documentation. The capabilities in a provider's code say the
same, and a test compares both.
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
    """Fields of a GPUNodeClass that say how a rented machine joins the cluster."""

    TALOS = "talosConfig"
    K3S = "k3sConfig"
    KUBEADM = "kubeadmConfig"
    CLOUD_INIT = "cloudInit"


class ProviderAdmission(msgspec.Struct, frozen=True, kw_only=True):
    #: Join methods of its machines. Empty: it runs containers, or machines that are already installed.
    joins: frozenset[Join]
    #: A cloud whose rented machines must be told how to join.
    rents_machines: bool = False
    #: Whether credentialsRef is required. Other providers use Forebay's own identity, or need none.
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
#: Without webhook: what an owned machine boots was decided when it was installed.
WITHOUT_TALOS: Final = tuple(
    name
    for name, admission in ADMISSION.items()
    if Join.TALOS not in admission.joins and name is not ProviderName.WEBHOOK
)
RUNS_CONTAINERS: Final = (ProviderName.RUNPOD, ProviderName.VAST)


def can_use(join: Join) -> tuple[ProviderName, ...]:
    return tuple(name for name, admission in ADMISSION.items() if join in admission.joins)
