"""Our condensed contract of Paperspace's API v1, after docs.digitalocean.com/reference/paperspace/api-reference."""

from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import Operation

TEXT = {"type": "string"}
NULLABLE = {"type": "string", "nullable": True}
TIME = {"type": "string", "format": "date-time"}
FLAG = {"type": "boolean"}
REGION = {"enum": ["East Coast (NY2)", "West Coast (CA1)", "Europe (AMS1)"]}
PAGES = {"after": TEXT, "limit": {"type": "integer", "minimum": 1, "maximum": 120}}


def record(required, optional=None):
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def page(schema):
    return record({"hasMore": FLAG, "items": {"type": "array", "items": schema}}, {"nextPage": NULLABLE})


MACHINE = record(
    {
        "id": TEXT,
        "name": TEXT,
        "state": {
            "enum": ["off", "starting", "stopping", "restarting", "serviceready", "ready", "upgrading", "provisioning"]
        },
        "machineType": TEXT,
        "region": TEXT,
    },
    {
        "dtCreated": TIME,
        "dtDeleted": {**TIME, "nullable": True},
        "publicIpType": {"enum": ["static", "dynamic", "none"]},
    },
)
EVENT = record(
    {"id": TEXT, "name": TEXT, "state": {"enum": ["new", "in progress", "done", "error", "cancelled"]}},
    {"machineId": TEXT, "error": NULLABLE, "dtCreated": TIME},
)
ENVELOPE = record({"data": MACHINE}, {"event": EVENT})
SCRIPT = record(
    {"id": TEXT, "name": TEXT},
    {"isEnabled": FLAG, "isRunOnce": FLAG, "assignedMachineIds": {"type": "array", "items": TEXT}, "dtCreated": TIME},
)
TEMPLATE = record(
    {
        "id": TEXT,
        "name": TEXT,
        "agentType": TEXT,
        "operatingSystemLabel": TEXT,
        "dtCreated": TIME,
        "defaultSizeGb": {"type": "integer", "nullable": True},
        "availableMachineTypes": {
            "type": "array",
            "items": record({"machineTypeLabel": TEXT, "isAvailable": FLAG}),
        },
    }
)
CREATE = record(
    {
        "name": {"type": "string", "minLength": 1, "maxLength": 63},
        "machineType": TEXT,
        "templateId": TEXT,
        "diskSize": {"enum": [50, 100, 250, 500, 1000, 2000]},
        "region": REGION,
    },
    {
        "startupScriptId": TEXT,
        "publicIpType": {"enum": ["static", "dynamic", "none"]},
        **dict.fromkeys(
            (
                "startOnCreate",
                "emailPassword",
                "autoShutdownEnabled",
                "autoSnapshotEnabled",
                "takeInitialSnapshot",
                "restorePointEnabled",
            ),
            FLAG,
        ),
    },
)
ERROR = record(
    {
        "code": {
            "enum": [
                "BAD_REQUEST",
                "CONFLICT",
                "FORBIDDEN",
                "INTERNAL_SERVER_ERROR",
                "NOT_FOUND",
                "PRECONDITION_FAILED",
                "TOO_MANY_REQUESTS",
                "UNAUTHORIZED",
            ]
        },
        "message": TEXT,
    },
    {"details": {"type": "object"}},
)

OPERATIONS = (
    Operation("list_machines", "GET", "/machines", page(MACHINE), query=PAGES, asks=MarketCall.LIST),
    Operation("create", "POST", "/machines", ENVELOPE, CREATE, asks=MarketCall.LAUNCH),
    Operation("delete", "DELETE", "/machines/{id}", ENVELOPE, asks=MarketCall.TERMINATE),
    Operation(
        "availability",
        "GET",
        "/machine-availability",
        record({"available": FLAG}),
        query={"machineType": TEXT, "region": REGION},
        required=("machineType", "region"),
        asks=MarketCall.OFFERS,
    ),
    Operation(
        "list_events",
        "GET",
        "/machine-events",
        page(EVENT),
        query={**PAGES, "machineId": TEXT},
        required=("machineId",),
        published=False,
    ),
    Operation("list_templates", "GET", "/os-templates", page(TEMPLATE), query=PAGES, published=False),
    # The published excerpt has no parameters of pages there, but says that there are pages.
    Operation("list_scripts", "GET", "/startup-scripts", page(SCRIPT), query=PAGES, published=False),
    Operation(
        "add_script",
        "POST",
        "/startup-scripts",
        SCRIPT,
        record({"name": TEXT, "script": TEXT}, {"isRunOnce": FLAG}),
    ),
    Operation("delete_script", "DELETE", "/startup-scripts/{id}", SCRIPT),
)
