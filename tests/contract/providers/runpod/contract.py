"""Our condensed contract of RunPod's REST API v2, after https://docs.runpod.io/api-reference-v2."""

from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import Operation

TEXT = {"type": "string"}
NAME = {"type": "string", "minLength": 1}
FLAG = {"type": "boolean"}
MAYBE_TEXT = {"type": ["string", "null"]}
COUNT = {"type": "integer", "minimum": 0}
DOLLARS = {"type": "number", "minimum": 0}
TIME = {"type": "string", "format": "date-time"}
CLOUD = {"enum": ["SECURE", "COMMUNITY"]}
LEVEL = {"enum": ["NONE", "LOW", "MEDIUM", "HIGH"]}
STATUS = {"enum": ["PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"]}


def listed(schema):
    return {"type": "array", "items": schema}


def record(required, optional=None):
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


GPU = record({"id": NAME}, {"count": {"type": "integer", "minimum": 1}})
ENV = {"type": "object", "additionalProperties": TEXT}
PORTS = listed({"type": "string", "pattern": r"^\d{1,5}/(http|tcp)$"})
#: Exactly one of gpu and cpu; Forebay rents GPUs.
CREATE = record(
    {"name": NAME, "image": NAME, "gpu": GPU},
    {
        "cloud": CLOUD,
        "dataCenterIds": listed(NAME),
        "args": TEXT,
        "env": ENV,
        "ports": PORTS,
        "disk": {"type": "integer", "minimum": 1},
        "registry": MAYBE_TEXT,
        "templateId": NAME,
        "startSsh": FLAG,
    },
)
POD = record(
    {
        "id": NAME,
        "name": NAME,
        "status": STATUS,
        "actions": listed({"enum": ["start", "stop", "restart", "terminate"]}),
        "image": TEXT,
        "args": TEXT,
        "disk": COUNT,
        "mounts": record({}),
        "ports": PORTS,
        "env": ENV,
        "registry": MAYBE_TEXT,
        "cloud": CLOUD,
        "dataCenterId": MAYBE_TEXT,
        "cudaVersion": MAYBE_TEXT,
        "ssh": record({"proxy": {"type": "null"}, "direct": {"type": "null"}}),
        "template": MAYBE_TEXT,
        "cost": DOLLARS,
        "locked": FLAG,
        "runtime": {"anyOf": [record({"uptime": COUNT, "gpus": listed(record({"util": COUNT}))}), {"type": "null"}]},
        "createdAt": TIME,
        "startedAt": {"anyOf": [TIME, {"type": "null"}]},
        "globalNetworking": record({"enabled": FLAG}),
    },
    {"gpu": GPU},
)
PLACE = record({"id": NAME, "name": NAME, "availability": LEVEL})
GPU_TYPE = record(
    {
        "id": NAME,
        "name": NAME,
        "pool": MAYBE_TEXT,
        "manufacturer": {"enum": ["NVIDIA", "AMD", "UNKNOWN"]},
        "memory": COUNT,
        "secure": FLAG,
        "community": FLAG,
        "price": record({"secure": DOLLARS, "community": DOLLARS}),
        "maxCount": record({"secure": COUNT, "community": COUNT}),
    },
    {"availability": LEVEL, "dataCenters": listed(PLACE)},
)
REGISTRY = record({"id": NAME, "name": NAME})
ERROR = record({"title": TEXT, "status": COUNT, "detail": TEXT}, {"errors": listed(TEXT)})
DATA_CENTER = record(
    {
        "id": NAME,
        "name": NAME,
        "region": TEXT,
        "networkVolumeTypes": listed(TEXT),
        "compliance": listed(TEXT),
        "globalNetwork": FLAG,
    }
)

OPERATIONS = (
    Operation("create_pod", "POST", "/v2/pods", POD, CREATE, status=201, asks=MarketCall.LAUNCH),
    Operation("list_pods", "GET", "/v2/pods", record({"pods": listed(POD)}), asks=MarketCall.LIST),
    Operation("get_pod", "GET", "/v2/pods/{id}", POD),
    Operation("delete_pod", "DELETE", "/v2/pods/{id}", status=204, asks=MarketCall.TERMINATE),
    # A stream of events: see the server.
    Operation(
        "logs",
        "GET",
        "/v2/pods/{id}/logs",
        query={
            "source": {"enum": ["container", "system"]},
            "tail": {"type": "integer", "minimum": 0, "maximum": 5000},
            "since": TIME,
        },
    ),
    Operation(
        "list_gpus",
        "GET",
        "/v2/catalog/gpus",
        record({"gpus": listed(GPU_TYPE)}),
        query={
            "include": {"const": "AVAILABILITY"},
            "product": {"const": "POD"},
            "count": {"type": "integer", "minimum": 1},
            "cloud": CLOUD,
        },
        # `product` is required with `include`, and `count` and `cloud` mean nothing without.
        required=("include", "product"),
        asks=MarketCall.OFFERS,
    ),
    Operation("list_data_centers", "GET", "/v2/catalog/datacenters", record({"dataCenters": listed(DATA_CENTER)})),
    Operation("list_registries", "GET", "/v2/registries", record({"registries": listed(REGISTRY)})),
    Operation(
        "create_registry",
        "POST",
        "/v2/registries",
        REGISTRY,
        record({"name": NAME, "username": NAME, "password": NAME}),
        status=201,
    ),
    Operation("delete_registry", "DELETE", "/v2/registries/{id}", status=204),
)
