"""Our condensed contract of Compute Engine v1 and Cloud Billing v1: what Forebay sends and reads.

Written from Google's discovery documents (compute v1 revision 20261106, cloudbilling v1) and the reference of disks.
"""

from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import Operation

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
UUID = {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}
INT64 = {"type": "string", "pattern": "^[0-9]+$"}
TIME = {"type": "string", "format": "date-time"}
LABELS = {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z0-9_-]{0,63}$"}}


def an_object(required=(), **properties):
    return {"type": "object", "required": list(required), "properties": properties}


def a_list(item):
    return {"type": "array", "items": item}


ERROR = an_object(
    ["error"],
    error=an_object(
        ["code", "message"],
        code=NUMBER,
        message=TEXT,
        status=TEXT,
        errors=a_list(an_object(["reason", "message"], reason=TEXT, message=TEXT, domain=TEXT)),
    ),
)
_SCHEDULING = an_object(
    ["provisioningModel", "onHostMaintenance", "automaticRestart"],
    provisioningModel={"type": "string", "enum": ["SPOT", "STANDARD"]},
    # Machines with GPUs cannot be moved to another host.
    onHostMaintenance={"type": "string", "enum": ["TERMINATE"]},
    automaticRestart={"type": "boolean"},
    instanceTerminationAction={"type": "string", "enum": ["DELETE", "STOP"]},
    maxRunDuration=an_object(["seconds"], seconds=INT64),
)
ORDER = an_object(
    ["name", "machineType", "disks", "networkInterfaces", "scheduling", "labels"],
    name=NAME,
    description=TEXT,
    machineType={"type": "string", "pattern": "^zones/[^/]+/machineTypes/[^/]+$"},
    labels=LABELS,
    disks=a_list(
        an_object(
            ["boot", "autoDelete", "initializeParams"],
            boot={"type": "boolean"},
            autoDelete={"type": "boolean"},
            initializeParams=an_object(
                ["sourceImage"],
                sourceImage={"type": "string", "pattern": "^projects/[^/]+/global/images/"},
                diskSizeGb=INT64,
                diskType={"type": "string", "pattern": "^zones/[^/]+/diskTypes/(pd-balanced|hyperdisk-balanced)$"},
                labels=LABELS,
            ),
        )
    ),
    networkInterfaces=a_list(
        an_object(["network"], network=TEXT, accessConfigs=a_list(an_object(["type"], type=TEXT, name=TEXT)))
    ),
    guestAccelerators=a_list(
        an_object(["acceleratorType", "acceleratorCount"], acceleratorType=TEXT, acceleratorCount=NUMBER)
    ),
    metadata=an_object(
        items=a_list(
            an_object(["key", "value"], key={"type": "string", "enum": ["user-data", "startup-script"]}, value=TEXT)
        )
    ),
    scheduling=_SCHEDULING,
)
OPERATION = an_object(
    ["name", "status", "operationType"],
    kind=TEXT,
    id=INT64,
    name=TEXT,
    zone=TEXT,
    operationType=TEXT,
    targetLink=TEXT,
    status={"type": "string", "enum": ["PENDING", "RUNNING", "DONE"]},
    progress=NUMBER,
    insertTime=TIME,
    endTime=TIME,
    region=TEXT,
    error=an_object(["errors"], errors=a_list(an_object(["code", "message"], code=TEXT, message=TEXT))),
    httpErrorStatusCode=NUMBER,
    httpErrorMessage=TEXT,
)
INSTANCE = an_object(
    ["name", "zone", "status", "creationTimestamp"],
    kind=TEXT,
    id=INT64,
    name=NAME,
    zone=TEXT,
    status={
        "type": "string",
        "enum": ["PROVISIONING", "STAGING", "RUNNING", "STOPPING", "TERMINATED", "REPAIRING", "SUSPENDED"],
    },
    statusMessage=TEXT,
    labels=LABELS,
    creationTimestamp=TIME,
    machineType=TEXT,
    scheduling=an_object(provisioningModel=TEXT),
    resourceStatus=an_object(scheduling=an_object(terminationTimestamp=TIME)),
    guestAccelerators=a_list(an_object(acceleratorType=TEXT, acceleratorCount=NUMBER)),
)
DISK = an_object(
    ["name", "zone", "creationTimestamp"],
    kind=TEXT,
    name=NAME,
    zone=TEXT,
    labels=LABELS,
    users=a_list(TEXT),
    sizeGb=INT64,
    creationTimestamp=TIME,
    lastDetachTimestamp=TIME,
)
MACHINE_TYPE = an_object(
    ["name", "zone", "guestCpus", "memoryMb"],
    kind=TEXT,
    name=TEXT,
    zone=TEXT,
    guestCpus=NUMBER,
    memoryMb=NUMBER,
    architecture=TEXT,
    accelerators=a_list(an_object(guestAcceleratorType=TEXT, guestAcceleratorCount=NUMBER)),
)
ACCELERATOR_TYPE = an_object(["name", "zone"], kind=TEXT, name=TEXT, zone=TEXT, maximumCardsPerInstance=NUMBER)
_MONEY = an_object(["currencyCode"], currencyCode=TEXT, units=TEXT, nanos=NUMBER)
SKU = an_object(
    ["description", "category", "serviceRegions", "pricingInfo"],
    name=TEXT,
    skuId=TEXT,
    description=TEXT,
    category=an_object(resourceFamily=TEXT, resourceGroup=TEXT, usageType=TEXT, serviceDisplayName=TEXT),
    serviceRegions=a_list(TEXT),
    pricingInfo=a_list(
        an_object(
            pricingExpression=an_object(
                usageUnit=TEXT, tieredRates=a_list(an_object(startUsageAmount={"type": "number"}, unitPrice=_MONEY))
            )
        )
    ),
)
_WARNING = an_object(["code"], code=TEXT, message=TEXT)
_PAGED = {"filter": TEXT, "maxResults": {"type": "integer", "minimum": 1, "maximum": 500}, "pageToken": TEXT}
_PROJECT = "/compute/v1/projects/{project}"
_ZONE = f"{_PROJECT}/zones/{{zone}}"


def _aggregated(name, resource, field, item, asks=None):
    scoped = an_object(**{field: a_list(item)}, warning=_WARNING)
    answer = an_object(
        ["items"],
        kind=TEXT,
        id=TEXT,
        items={"type": "object", "additionalProperties": scoped},
        nextPageToken=TEXT,
        unreachables=a_list(TEXT),
        warning=_WARNING,
    )
    return Operation(name, "GET", f"{_PROJECT}/aggregated/{resource}", answer, query=_PAGED, asks=asks)


OPERATIONS = (
    Operation(
        "insert",
        "POST",
        f"{_ZONE}/instances",
        OPERATION,
        ORDER,
        query={"requestId": UUID},
        required=("requestId",),
        asks=MarketCall.LAUNCH,
    ),
    Operation("get_instance", "GET", f"{_ZONE}/instances/{{name}}", INSTANCE),
    Operation(
        "delete_instance",
        "DELETE",
        f"{_ZONE}/instances/{{name}}",
        OPERATION,
        query={"requestId": UUID},
        required=("requestId",),
        asks=MarketCall.TERMINATE,
    ),
    Operation("get_operation", "GET", f"{_ZONE}/operations/{{operation}}", OPERATION),
    Operation("get_disk", "GET", f"{_ZONE}/disks/{{name}}", DISK),
    Operation("delete_disk", "DELETE", f"{_ZONE}/disks/{{name}}", OPERATION),
    _aggregated("list_instances", "instances", "instances", INSTANCE, MarketCall.LIST),
    _aggregated("list_disks", "disks", "disks", DISK),
    _aggregated("list_machine_types", "machineTypes", "machineTypes", MACHINE_TYPE, MarketCall.OFFERS),
    _aggregated("list_accelerator_types", "acceleratorTypes", "acceleratorTypes", ACCELERATOR_TYPE),
    Operation(
        "list_skus",
        "GET",
        "/v1/services/6F81-5844-456A/skus",
        an_object(skus=a_list(SKU), nextPageToken=TEXT),
        query={"currencyCode": TEXT, "pageSize": NUMBER, "pageToken": TEXT},
    ),
)
