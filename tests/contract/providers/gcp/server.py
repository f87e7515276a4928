"""Compute Engine and the catalog of Cloud Billing as one conformance server."""

import itertools
import re
from datetime import timedelta
from decimal import Decimal

import msgspec

from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.providers.simulated.wire import MarketOrder
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from tests.contract.providers.conformance import ConformanceServer, Refused, planned_node
from tests.contract.providers.discovery import discovered
from tests.contract.providers.gcp.contract import ERROR, OPERATIONS
from tests.contract.providers.gcp.group_contract import GROUP_OPERATIONS
from tests.contract.providers.gcp.group_server import GroupServer
from tests.contract.providers.gcp.tokens import PROJECT, TokenDesk, key_file

ZONES = ("us-central1-a", "us-central1-b", "europe-west4-a")
#: Machine type: cores, MiB of memory, accelerator type and number.
TYPES = {
    "g2-standard-8": (8, 32768, "nvidia-l4", 1),
    "g2-standard-48": (48, 196608, "nvidia-l4", 4),
    "g2-standard-96": (96, 393216, "nvidia-l4", 8),
    "a3-highgpu-8g": (208, 1916928, "nvidia-h100-80gb", 8),
}
#: N1 machines have no GPUs of their own: machine, accelerator type and number.
ATTACHED = {"n1-standard-8+1xT4": ("n1-standard-8", "nvidia-tesla-t4", 1)}
N1 = {"n1-standard-8": (8, 30720), "n1-standard-16": (16, 61440)}
#: Prices of an hour in nanodollars, on demand: of a core, of a GiB, of a GPU. As Google's were for Iowa in 2026.
CORES = {"g2": 24_988_000, "a3": 29_382_000, "n1": 31_611_000}
MEMORY = {"g2": 2_927_000, "a3": 2_561_000, "n1": 4_237_000}
GPUS = {"nvidia-l4": 560_041_000, "nvidia-h100-80gb": 9_796_550_000, "nvidia-tesla-t4": 350_000_000}
_NAMES = {
    "g2": "G2",
    "a3": "A3",
    "n1": "N1 Predefined",
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
}
#: Spot costs this share.
_SPOT = Decimal("0.4")
_STATUS = {
    InstancePhase.STARTING: "STAGING",
    InstancePhase.RUNNING: "RUNNING",
    InstancePhase.ENDING: "STOPPING",
    InstancePhase.STOPPED: "TERMINATED",
    InstancePhase.FAILED: "REPAIRING",
}
_LABEL_FILTER = re.compile(r'labels\.([a-z0-9_-]+)="([^"]*)"')
_NAME_FILTER = re.compile(r'name eq "(.*)"')


def region_of(zone):
    return zone.rpartition("-")[0]


def machine_types(zone):
    """The machine types of a zone."""
    types = {
        name: {
            "guestCpus": cores,
            "memoryMb": memory,
            "accelerators": [{"guestAcceleratorType": gpu, "guestAcceleratorCount": gpus}],
        }
        for name, (cores, memory, gpu, gpus) in TYPES.items()
    } | {name: {"guestCpus": cores, "memoryMb": memory} for name, (cores, memory) in N1.items()}
    return [{"name": name, "zone": zone, "architecture": "X86_64", **fields} for name, fields in types.items()]


def _share(nanos, *, spot):
    return int(Decimal(nanos) * (_SPOT if spot else 1))


def hourly_price(kind, *, spot=False):
    """What a machine costs, as text."""
    if kind in ATTACHED:
        machine, gpu, gpus = ATTACHED[kind]
        cores, memory = N1[machine]
    else:
        machine = kind
        cores, memory, gpu, gpus = TYPES[kind]
    series = machine.partition("-")[0]
    nanos = (
        _share(CORES[series], spot=spot) * cores
        + Decimal(_share(MEMORY[series], spot=spot)) * memory / 1024
        + _share(GPUS[gpu], spot=spot) * gpus
    )
    return str(nanos / 10**9)


def goods(**terms):
    """What the server rents out: every kind in every zone, on demand and spot."""
    return [
        Sku(
            instance_type=kind,
            gpus=(TYPES.get(kind) or ATTACHED[kind])[-1],
            hourly_price=hourly_price(kind, spot=spot),
            region=region_of(zone),
            zone=zone,
            spot=spot,
            **terms,
        )
        for kind in (*TYPES, *ATTACHED)
        for zone in ZONES
        for spot in (False, True)
    ]


class ComputeEngine(GroupServer, ConformanceServer):
    """One project. An instance exists from its insert on; the operation is done `operation_seconds` later."""

    provider = "gcp"
    operations = (*OPERATIONS, *GROUP_OPERATIONS)
    error = ERROR
    limits = ((None, 1500, 60),)

    def __init__(self, skus, nodes=None, *, name="gcp", operation_seconds=2.0, leaves_disks=False, **options):
        super().__init__(skus, nodes, name=name, **options)
        self.published = discovered(
            "gcp/compute.v1.mig-subset.discovery.json",
            "gcp/cloudbilling.v1.discovery.json",
            # The cut of the document has no disks.
            ignoring=("/aggregated/disks$", "/zones/[^/]+/disks/"),
        )
        self.desk = TokenDesk()
        self.operation_seconds = operation_seconds
        #: Zones that cannot be listed.
        self.unreachable = set()
        #: Deleted instances leave their disks behind.
        self.leaves_disks = leaves_disks
        self._done = {}
        self._by_request = {}
        self._operation_numbers = itertools.count(1001)

    # The forms of this cloud's refusals.

    def refusal(self, status, message="", code=None):
        reason = code or {400: "invalid", 401: "authError", 403: "forbidden", 404: "notFound"}.get(
            status, "backendError"
        )
        item = {"domain": "global", "reason": reason, "message": message}
        return MarketFault(
            status=status, body=msgspec.json.encode({"error": {"code": status, "message": message, "errors": [item]}})
        )

    def failed_operation(self, code, message):
        """An operation that is accepted and fails."""
        return MarketFault(status=200, body=msgspec.json.encode(self._operation("insert", "", error=(code, message))))

    def no_capacity(self):
        return self.failed_operation(
            "ZONE_RESOURCE_POOL_EXHAUSTED", "The zone does not have enough resources available to fulfill the request."
        )

    def quota_reached(self):
        return self.failed_operation(
            "QUOTA_EXCEEDED", "Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 1.0 in region us-central1."
        )

    def rate_limited(self, seconds):  # noqa: ARG002 (Google says nothing about it)
        return self.refusal(403, "Quota exceeded for quota metric 'Queries'.", "rateLimitExceeded")

    def bad_credentials(self):
        return self.refusal(401, "Request had invalid authentication credentials.")

    def credentials(self, base):
        """The key file in one line."""
        return msgspec.json.encode(msgspec.json.decode(key_file(self.key, base))).decode()

    def _unauthorized(self, request):
        accepted = self.desk.accepts(request.headers.get("Authorization"), self.key)
        return None if accepted and not self.refuses_all else True

    async def answer(self, request):
        key = "revoked" if self.refuses_all else self.key
        return self.desk.answer(request, key) or await super().answer(request)

    # Instances.

    def on_insert(self, call):
        request_id = call.query["requestId"]
        if request_id in self._by_request:
            return self._shown(self._by_request[request_id])
        zone, body = call.parameters["zone"], call.body
        name = f"{zone}/{body['name']}"
        self._check_project(call)
        if self._existing(name) is not None:
            raise Refused(self.refusal(409, f"The resource '{name}' already exists", "alreadyExists"))
        key = self.key_of(
            _kind(body), region_of(zone), zone=zone, spot=body["scheduling"]["provisioningModel"] == "SPOT"
        )
        if key is None:
            raise Refused(
                self.refusal(400, f"Invalid value for field 'resource.machineType': '{body['machineType']}'.")
            )
        try:
            self._take(key, body, zone)
        except Refused as refused:
            # As Google does: the request is accepted, and the operation fails.
            failed = msgspec.json.decode(refused.fault.body)
            operation = self._operation("insert", zone, error=_first_error(failed))
        else:
            operation = self._operation("insert", zone)
        self._by_request[request_id] = operation
        return self._shown(operation)

    def _take(self, key, body, zone):
        if self.quota is not None and len(self.running) >= self.quota:
            raise Refused(self.quota_reached())
        if self._stock[key] == 0:
            raise Refused(self.no_capacity())
        boot = next((each["value"] for each in body.get("metadata", {}).get("items", ())), "")
        run = body["scheduling"].get("maxRunDuration")
        if run is not None and body["scheduling"].get("instanceTerminationAction") is None:
            raise Refused(self.refusal(400, "maxRunDuration needs instanceTerminationAction"))
        order = MarketOrder(
            instance_type=self._skus[key].instance_type,
            region=region_of(zone),
            zone=zone,
            spot=key[-1],
            cluster=body["labels"].get("forebay-cluster", ""),
            owner=body["labels"].get("forebay-instance", ""),
            name=body["name"],
            tags=body["labels"],
            boot=boot,
            node=planned_node(boot),
            max_run_seconds=None if run is None else int(run["seconds"]),
        )
        self.free_name(self._new_id(order))
        rented = self._rent(self._skus[key], order)
        rented.provider_id = f"gce://{PROJECT}/{rented.id}"
        rented.deletes = body["scheduling"].get("instanceTerminationAction") == "DELETE"
        disk = body["disks"][0]
        self.others["disks"][rented.id] = {
            "kind": "compute#disk",
            "name": body["name"],
            "zone": _url(f"zones/{zone}"),
            "labels": disk["initializeParams"].get("labels", {}),
            "sizeGb": disk["initializeParams"]["diskSizeGb"],
            "users": [_url(f"zones/{zone}/instances/{body['name']}")],
            "creationTimestamp": _time(now()),
        }

    def _new_id(self, order):
        return f"{order.zone}/{order.name}"

    def leave_behind(self, instance_type, cluster, owner="nobody"):
        sku = next(sku for sku in self._skus.values() if sku.instance_type == instance_type)
        order = MarketOrder(
            instance_type=instance_type,
            region=sku.region,
            zone=sku.zone,
            cluster=cluster,
            owner=owner,
            name=f"leftover-{len(self.instances)}",
            tags={"forebay-cluster": cluster, "forebay-instance": owner},
        )
        rented = self._rent(sku, order)
        rented.deletes = False
        return rented.id

    def _preempt(self, rented):
        super()._preempt(rented)
        if (group := self._group_of(rented)) is not None:
            group.preempted(rented)
        elif rented.deletes:
            rented.later(30, lambda: self._end(rented))

    def _end(self, rented):
        super()._end(rented)
        self._member_ended(rented)
        disk = self.others["disks"].get(rented.id)
        if disk is None or not disk["users"]:
            return
        if self.leaves_disks:
            disk |= {"users": [], "lastDetachTimestamp": _time(now())}
        else:
            del self.others["disks"][rented.id]

    def on_get_instance(self, call):
        return self._instance(self._one(call))

    def on_delete_instance(self, call):
        rented = self._one(call)
        self.end(rented.id)
        return self._shown(self._operation("delete", call.parameters["zone"]))

    def on_get_operation(self, call):
        found = self._done.get(call.parameters["operation"])
        if found is None:
            raise Refused(self.refusal(404, "The operation was not found"))
        return self._shown(found)

    def on_get_disk(self, call):
        return self._disk(call)

    def on_delete_disk(self, call):
        disk = self._disk(call)
        if disk["users"]:
            raise Refused(self.refusal(400, "The disk is in use", "resourceInUseByAnotherResource"))
        del self.others["disks"][f"{call.parameters['zone']}/{call.parameters['name']}"]
        return self._shown(self._operation("delete", call.parameters["zone"]))

    # Lists.

    def on_list_instances(self, call):
        shown = [(each.order.zone, self._instance(each)) for each in self.listed()]
        return self._aggregated(call, "instances", [each for each in shown if _matches(call, each[1])])

    def on_list_disks(self, call):
        shown = [(name.partition("/")[0], disk) for name, disk in self.others["disks"].items()]
        return self._aggregated(call, "disks", [each for each in shown if _matches(call, each[1])])

    def on_list_machine_types(self, call):
        shown = [(zone, each) for zone in ZONES for each in machine_types(zone)]
        return self._aggregated(call, "machineTypes", [each for each in shown if _matches(call, each[1])])

    def on_list_accelerator_types(self, call):
        shown = [
            (zone, {"name": name, "zone": _url(f"zones/{zone}"), "maximumCardsPerInstance": 8})
            for zone in ZONES
            for name in GPUS
        ]
        return self._aggregated(call, "acceleratorTypes", [each for each in shown if _matches(call, each[1])])

    def on_list_skus(self, call):
        skus = [_sku(*each, spot=spot) for each in _PRICED for spot in (False, True)]
        # Prices that are for something else, and must not be taken for these.
        skus += [_sku("Commitment v1: Nvidia L4 GPU", "GPU", 1, usage="Commit1Yr")]
        skus += [_sku("Nvidia L4 GPU attached to DWS Defined Duration VMs", "GPU", 1)]
        first = int(call.query.get("pageToken") or 0)
        shown = skus[first : first + 5]
        more = {"nextPageToken": str(first + 5)} if len(skus) > first + 5 else {}
        return {"skus": shown, **more}

    def _aggregated(self, call, field, found):
        first = int(call.query.get("pageToken") or 0)
        size = min(int(call.query.get("maxResults", 500)), self._page_size)
        items = {}
        for zone in ZONES:
            scope = f"zones/{zone}"
            shown = [each for where, each in found[first : first + size] if where == zone]
            if zone in self.unreachable:
                items[scope] = {"warning": {"code": "UNREACHABLE", "message": "The zone does not answer."}}
            elif shown:
                items[scope] = {field: shown}
            else:
                items[scope] = {
                    "warning": {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results on {scope}."}
                }
        more = {"nextPageToken": str(first + size)} if len(found) > first + size else {}
        unreachable = {"unreachables": sorted(f"zones/{each}" for each in self.unreachable)} if self.unreachable else {}
        return (
            {"kind": f"compute#{field}AggregatedList", "id": f"projects/{PROJECT}", "items": items} | more | unreachable
        )

    # Parts.

    def on_get_machine_type(self, call):
        for each in machine_types(call.parameters["zone"]):
            if each["name"] == call.parameters["name"] and call.parameters["zone"] in ZONES:
                return each
        raise Refused(self.refusal(404, "The machine type was not found"))

    def parts_of(self, kind):
        """Machine type of a kind, and its accelerators where they are attached."""
        return (kind, None) if kind in TYPES else (ATTACHED[kind][0], ATTACHED[kind][1:])

    def region_of(self, zone):
        return region_of(zone)

    def url(self, path):
        return _url(path)

    def status_of(self, rented):
        return _STATUS[rented.phase]

    def _check_project(self, call):
        if call.parameters["project"] != PROJECT:
            raise Refused(self.refusal(404, f"The project {call.parameters['project']} was not found"))

    def _existing(self, name):
        rented = self.instances.get(name)
        return rented if rented is not None and rented.gone_at is None else None

    def _one(self, call):
        self._check_project(call)
        rented = self._existing(f"{call.parameters['zone']}/{call.parameters['name']}")
        if rented is None:
            raise Refused(self.refusal(404, "The resource was not found"))
        return rented

    def _disk(self, call):
        disk = self.others["disks"].get(f"{call.parameters['zone']}/{call.parameters['name']}")
        if disk is None:
            raise Refused(self.refusal(404, "The disk was not found"))
        return disk

    def _operation(self, kind, zone, error=None, region=None):
        number = next(self._operation_numbers)
        name = f"operation-{number}"
        operation = {
            "kind": "compute#operation",
            "id": str(number),
            "name": name,
            "operationType": kind,
            "status": "DONE" if error and not (zone or region) else "RUNNING",
            "insertTime": _time(now()),
        }
        if zone:
            operation["zone"] = _url(f"zones/{zone}")
        if region:
            operation["region"] = _url(f"regions/{region}")
        if error is not None:
            # Shown once the operation is done.
            operation["error"] = {"errors": [{"code": error[0], "message": error[1]}]}
        self._done[name] = operation
        return operation

    def _shown(self, operation):
        began = operation["insertTime"]
        done = operation["status"] == "DONE" or _time(now() - timedelta(seconds=self.operation_seconds)) >= began
        if not done:
            return {key: value for key, value in operation.items() if key != "error"}
        operation["status"] = "DONE"
        return operation

    def _instance(self, rented):
        status = _STATUS[rented.phase]
        said = {"statusMessage": rented.shown().message} if rented.shown().message else {}
        if (attached := ATTACHED.get(rented.order.instance_type)) is not None:
            gpu = _url(f"zones/{rented.order.zone}/acceleratorTypes/{attached[1]}")
            said["guestAccelerators"] = [{"acceleratorType": gpu, "acceleratorCount": attached[2]}]
        if (longest := rented.order.max_run_seconds) is not None:
            ends = _time(rented.line.created + timedelta(seconds=longest))
            said["resourceStatus"] = {"scheduling": {"terminationTimestamp": ends}}
        return {
            "kind": "compute#instance",
            "id": self.number_of(rented),
            "name": rented.order.name,
            "zone": _url(f"zones/{rented.order.zone}"),
            "status": status,
            "labels": dict(rented.order.tags),
            "scheduling": {"provisioningModel": "SPOT" if rented.sku.spot else "STANDARD"},
            "creationTimestamp": _time(rented.line.created),
            "machineType": _url(
                f"zones/{rented.order.zone}/machineTypes/{rented.order.instance_type.partition('+')[0]}"
            ),
        } | said


_PRICED = [
    *((f"{_NAMES[each]} Instance Core", "CPU", nanos) for each, nanos in CORES.items()),
    *((f"{_NAMES[each]} Instance Ram", "RAM", nanos) for each, nanos in MEMORY.items()),
    *((_NAMES[each], "GPU", nanos) for each, nanos in GPUS.items()),
]


def _sku(what, group, nanos, *, spot=False, usage=None):
    usage = usage or ("Preemptible" if spot else "OnDemand")
    if spot:
        what = f"{what} attached to Spot Preemptible VMs" if group == "GPU" else f"Spot Preemptible {what}"
    amount = _share(nanos, spot=spot)
    price = {"currencyCode": "USD", "units": str(amount // 10**9), "nanos": amount % 10**9}
    return {
        "name": f"services/6F81-5844-456A/skus/{what}",
        "description": f"{what} running in Americas",
        "category": {"resourceFamily": "Compute", "resourceGroup": group, "usageType": usage},
        "serviceRegions": sorted({region_of(zone) for zone in ZONES}),
        "pricingInfo": [
            {
                "pricingExpression": {
                    "usageUnit": "GiBy.h" if group == "RAM" else "h",
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}],
                }
            }
        ],
    }


def _kind(body):
    """The kind of machine that an order asks for, as the server's goods name it."""
    machine = body["machineType"].rpartition("/")[2]
    attached = body.get("guestAccelerators")
    if not attached:
        return machine
    asked = (machine, attached[0]["acceleratorType"].rpartition("/")[2], attached[0]["acceleratorCount"])
    return next((kind for kind, parts in ATTACHED.items() if parts == asked), "")


def _matches(call, shown):
    matching = call.query.get("filter", "")
    if (found := _LABEL_FILTER.fullmatch(matching)) is not None:
        return shown.get("labels", {}).get(found[1]) == found[2]
    if (found := _NAME_FILTER.fullmatch(matching)) is not None:
        return re.fullmatch(found[1], shown["name"]) is not None
    return not matching


def _first_error(answer):
    if "error" in answer and "errors" in answer["error"]:
        error = answer["error"]["errors"][0]
        return error.get("code") or error.get("reason"), error["message"]
    return "INTERNAL_ERROR", "no reason"


def _url(path):
    return f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/{path}"


def _time(moment):
    return moment.isoformat(timespec="milliseconds")
