"""What Forebay reads and writes of Paperspace's API. Fields that it does not use are left out.

    GET    /machines?limit=&after=          pages of PaperspaceMachine
    POST   /machines                        PaperspaceOrder; answers {event, data}
    DELETE /machines/{id}                   200 with a body; 404 once it is gone
    GET    /machine-availability?machineType=&region=
    GET    /machine-events?machineId=       pages of PaperspaceEvent: why a machine failed is only there
    GET    /os-templates                    pages of PaperspaceTemplate
    GET    /startup-scripts                 pages of PaperspaceScript
    POST   /startup-scripts                 PaperspaceNewScript
    DELETE /startup-scripts/{id}

An error is {"code", "message"}.
"""

from typing import Final, Generic, TypeVar

import msgspec

BASE: Final = "https://api.paperspace.com/v1"
MACHINES: Final = "/machines"
AVAILABILITY: Final = "/machine-availability"
EVENTS: Final = "/machine-events"
TEMPLATES: Final = "/os-templates"
SCRIPTS: Final = "/startup-scripts"

T = TypeVar("T")


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that Forebay does not know are ignored."""


class PaperspacePage(msgspec.Struct, Generic[T], frozen=True, kw_only=True, rename="camel"):
    items: tuple[T, ...]
    has_more: bool = False
    next_page: str | None = None


class PaperspaceMachine(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    #: off, starting, stopping, restarting, serviceready, ready, upgrading or provisioning; a later API may have others.
    state: str
    machine_type: str = ""
    dt_created: str | None = None
    #: None or "" while it exists.
    dt_deleted: str | None = None


class PaperspaceEvent(_Wire, frozen=True, kw_only=True):
    name: str = ""
    #: new, in progress, done, error or cancelled.
    state: str = ""
    error: str | None = None


class PaperspaceMade(_Wire, frozen=True, kw_only=True):
    data: PaperspaceMachine


class PaperspaceAvailability(_Wire, frozen=True, kw_only=True):
    available: bool = False


class PaperspaceTypeUse(_Wire, frozen=True, kw_only=True):
    machine_type_label: str
    is_available: bool = False


class PaperspaceTemplate(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    operating_system_label: str = ""
    default_size_gb: int | None = None
    available_machine_types: tuple[PaperspaceTypeUse, ...] = ()

    def runs_on(self, machine_type: str) -> bool:
        return any(
            each.machine_type_label == machine_type and each.is_available for each in self.available_machine_types
        )


class PaperspaceScript(_Wire, frozen=True, kw_only=True):
    id: str
    name: str
    dt_created: str | None = None
    #: None or "" while it exists.
    dt_deleted: str | None = None


class PaperspaceNewScript(_Wire, frozen=True, kw_only=True):
    """A startup script. Holds secrets."""

    name: str
    script: str
    is_run_once: bool = True

    def __repr__(self) -> str:
        return f"PaperspaceNewScript({self.name})"


class PaperspaceOrder(_Wire, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    machine_type: str
    template_id: str
    disk_size: int
    region: str
    startup_script_id: str | None = None
    # What the API would do otherwise is not what a node needs, or costs: each is stated.
    public_ip_type: str
    start_on_create: bool
    email_password: bool
    auto_shutdown_enabled: bool
    auto_snapshot_enabled: bool
    take_initial_snapshot: bool
    restore_point_enabled: bool


class PaperspaceError(_Wire, frozen=True, kw_only=True):
    code: str = ""
    message: str = ""
