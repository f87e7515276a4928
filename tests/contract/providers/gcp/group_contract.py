"""Our condensed contract of managed instance groups, from the same discovery document as `contract`."""

from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import Operation
from tests.contract.providers.gcp.contract import (
    ERROR,
    INT64,
    MACHINE_TYPE,
    NAME,
    NUMBER,
    OPERATION,
    TEXT,
    TIME,
    UUID,
    a_list,
    an_object,
)

ACTIONS = [
    "ABANDONING",
    "CREATING",
    "CREATING_WITHOUT_RETRIES",
    "DELETING",
    "NONE",
    "RECREATING",
    "REFRESHING",
    "RESTARTING",
    "RESUMING",
    "STARTING",
    "STOPPING",
    "SUSPENDING",
    "VERIFYING",
]
_ERRORS = an_object(["errors"], errors=a_list(an_object(["code", "message"], code=TEXT, message=TEXT)))
MANAGED = an_object(
    ["name", "currentAction", "targetStatus"],
    name=NAME,
    id=INT64,
    instance=TEXT,
    instanceStatus=TEXT,
    currentAction={"type": "string", "enum": ACTIONS},
    targetStatus={"type": "string", "enum": ["RUNNING", "STOPPED", "SUSPENDED", "DELETED", "ABANDONED"]},
    lastAttempt=an_object(errors=_ERRORS),
    scheduling=an_object(terminationTimestamp=TIME),
)
GROUP = an_object(
    ["name", "targetSize", "instanceTemplate", "baseInstanceName"],
    kind=TEXT,
    name=NAME,
    zone=TEXT,
    region=TEXT,
    baseInstanceName=TEXT,
    instanceTemplate=TEXT,
    targetSize={"type": "integer", "minimum": 0},
    listManagedInstancesResults={"type": "string", "enum": ["PAGELESS", "PAGINATED"]},
    distributionPolicy=an_object(zones=a_list(an_object(zone=TEXT)), targetShape=TEXT),
    targetSizePolicy=an_object(mode={"type": "string", "enum": ["BULK", "INDIVIDUAL"]}),
    instanceLifecyclePolicy=an_object(
        defaultActionOnFailure={"type": "string", "enum": ["DO_NOTHING", "REPAIR"]},
    ),
    status=an_object(isStable={"type": "boolean"}, autoscaler=TEXT),
)
TEMPLATE = an_object(
    ["name", "properties"],
    kind=TEXT,
    name=NAME,
    properties=an_object(
        ["machineType"],
        machineType=TEXT,
        labels={"type": "object", "additionalProperties": TEXT},
        guestAccelerators=a_list(an_object(acceleratorType=TEXT, acceleratorCount=NUMBER)),
        scheduling=an_object(
            provisioningModel={"type": "string", "enum": ["SPOT", "STANDARD", "FLEX_START"]},
            onHostMaintenance=TEXT,
            automaticRestart={"type": "boolean"},
        ),
    ),
)
_NEW_GROUP = an_object(
    ["name", "baseInstanceName", "instanceTemplate", "targetSize"],
    name=NAME,
    baseInstanceName=TEXT,
    instanceTemplate=TEXT,
    targetSize={"type": "integer", "minimum": 0},
    updatePolicy=an_object(
        type={"type": "string", "enum": ["OPPORTUNISTIC", "PROACTIVE"]},
        instanceRedistributionType={"type": "string", "enum": ["NONE", "PROACTIVE"]},
    ),
    instanceLifecyclePolicy=an_object(
        defaultActionOnFailure={"type": "string", "enum": ["DO_NOTHING", "REPAIR"]},
    ),
)
_MANAGED_PAGE = an_object(managedInstances=a_list(MANAGED), nextPageToken=TEXT)
_CREATE = an_object(["instances"], instances=a_list(an_object(["name"], name=NAME)))
_DELETE = an_object(
    ["instances"],
    instances={"type": "array", "items": TEXT, "minItems": 1, "maxItems": 1000},
    skipInstancesOnValidationError={"type": "boolean"},
)
_RUN = an_object(["seconds"], seconds=INT64)
_REQUESTED = an_object(
    ["name", "instances", "requestedRunDuration"],
    name=NAME,
    description=TEXT,
    instances=a_list(an_object(["name"], name=NAME)),
    requestedRunDuration=_RUN,
)
_RESIZE = an_object(
    ["name", "state"],
    kind=TEXT,
    name=NAME,
    description=TEXT,
    resizeBy=NUMBER,
    instances=a_list(an_object(["name"], name=NAME)),
    requestedRunDuration=_RUN,
    state={"type": "string", "enum": ["ACCEPTED", "CANCELLED", "CREATING", "FAILED", "SUCCEEDED"]},
    status=an_object(error=_ERRORS, lastAttempt=an_object(error=_ERRORS)),
)
_PAGE = {"maxResults": {"type": "integer", "minimum": 1, "maximum": 500}, "pageToken": TEXT}
_REQUEST = {"query": {"requestId": UUID}, "required": ("requestId",)}
_PROJECT = "/compute/v1/projects/{project}"


def _of_groups(prefix, scope, *, calls):
    """The operations of one kind of groups. `calls`: faults are scripted by what they are for markets, too."""
    groups = f"{_PROJECT}/{scope}/instanceGroupManagers"
    one = f"{groups}/{{group}}"

    def call(asked):
        return asked if calls else None

    return (
        Operation(f"{prefix}get_group", "GET", one, GROUP),
        Operation(f"{prefix}insert_group", "POST", groups, OPERATION, _NEW_GROUP, **_REQUEST),
        Operation(
            f"{prefix}list_members",
            "POST",
            f"{one}/listManagedInstances",
            _MANAGED_PAGE,
            query=_PAGE,
            asks=call(MarketCall.GROUP),
        ),
        Operation(
            f"{prefix}create_members",
            "POST",
            f"{one}/createInstances",
            OPERATION,
            _CREATE,
            **_REQUEST,
            asks=call(MarketCall.GROW),
        ),
        Operation(
            f"{prefix}delete_members",
            "POST",
            f"{one}/deleteInstances",
            OPERATION,
            _DELETE,
            **_REQUEST,
            asks=call(MarketCall.SHRINK),
        ),
        Operation(
            f"{prefix}resize_group",
            "POST",
            f"{one}/resize",
            OPERATION,
            query={"requestId": UUID, "size": NUMBER},
            required=("requestId", "size"),
        ),
        Operation(f"{prefix}insert_request", "POST", f"{one}/resizeRequests", OPERATION, _REQUESTED, **_REQUEST),
        Operation(
            f"{prefix}list_requests",
            "GET",
            f"{one}/resizeRequests",
            an_object(kind=TEXT, items=a_list(_RESIZE), nextPageToken=TEXT),
            query=_PAGE,
        ),
        Operation(f"{prefix}cancel_request", "POST", f"{one}/resizeRequests/{{name}}/cancel", OPERATION, **_REQUEST),
        Operation(f"{prefix}delete_request", "DELETE", f"{one}/resizeRequests/{{name}}", OPERATION, **_REQUEST),
    )


GROUP_OPERATIONS = (
    *_of_groups("", "zones/{zone}", calls=True),
    *_of_groups("regional_", "regions/{region}", calls=False),
    Operation("get_template", "GET", f"{_PROJECT}/global/instanceTemplates/{{template}}", TEMPLATE),
    Operation("get_regional_operation", "GET", f"{_PROJECT}/regions/{{region}}/operations/{{operation}}", OPERATION),
    Operation("get_machine_type", "GET", f"{_PROJECT}/zones/{{zone}}/machineTypes/{{name}}", MACHINE_TYPE),
    Operation(
        "list_operations",
        "GET",
        f"{_PROJECT}/zones/{{zone}}/operations",
        an_object(kind=TEXT, items=a_list(OPERATION), nextPageToken=TEXT),
        query={"filter": TEXT, "orderBy": {"type": "string", "enum": ["creationTimestamp desc"]}, **_PAGE},
    ),
)

__all__ = ["ERROR", "GROUP_OPERATIONS"]
