"""Crusoe Cloud's API v1 as a conformance server, with our condensed contract of it.

Written from Crusoe's published Swagger document (v1) and its Terraform provider, from which the signature is known.
"""

import base64
import hashlib
import hmac
import itertools
from datetime import datetime, timedelta
from urllib.parse import parse_qsl, quote_plus, urlsplit
from uuid import UUID

import msgspec

from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import ConformanceServer, Operation, Refused

PROJECT = "ab4a6b00-aa5f-408e-a9fb-ac6de5eb45ab"
KEY_ID = "AKIDexample"
#: Product name: cores, memory, GPU, number, dollars an hour by Crusoe's price list.
TYPES = {
    "l40s-48gb.1x": (8, 147, "L40S-48GB", 1, "1.00"),
    "a100-80gb.4x": (48, 480, "A100-PCIe-80GB", 4, "6.60"),
    "h100-80gb-sxm-ib.8x": (176, 960, "H100-SXM-80GB", 8, "31.20"),
    "mi300x-192gb-ib.8x": (176, 2000, "MI300X-192GB", 8, "27.60"),
}
LOCATIONS = ("us-east1-a", "us-southcentral1-a")
_STATE = {
    InstancePhase.STARTING: "STATE_CREATING",
    InstancePhase.RUNNING: "STATE_RUNNING",
    InstancePhase.ENDING: "STATE_DELETING",
    InstancePhase.STOPPED: "STATE_SHUTOFF",
    InstancePhase.FAILED: "STATE_FAILED",
}

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}


def _object(required, **properties):
    return {"type": "object", "required": list(required), "properties": properties}


def _list(item):
    return {"type": "array", "items": item}


_OPERATION = _object(
    ["operation_id", "state", "metadata", "started_at", "completed_at"],
    operation_id=_TEXT,
    state={"type": "string", "enum": ["IN_PROGRESS", "SUCCEEDED", "FAILED"]},
    metadata={"type": "object"},
    result={},
    started_at=_TEXT,
    completed_at=_TEXT,
)
_ACCEPTED = _object(["operation"], operation=_OPERATION)
_ATTACHED = _object(
    ["id", "name", "attachment_type", "mode"],
    **dict.fromkeys(("id", "name", "type", "size", "location", "created_at", "updated_at", "serial_number"), _TEXT),
    block_size=_NUMBER,
    attachment_type={"type": "string", "enum": ["os", "data"]},
    mode=_TEXT,
)
_VM = _object(
    ["id", "name", "state", "type", "location", "created_at", "disks"],
    **dict.fromkeys(
        ("id", "name", "state", "type", "location", "created_at", "updated_at", "project_id", "maintenance_policy"),
        _TEXT,
    ),
    billing_type=_TEXT,
    disks=_list(_ATTACHED),
    network_interfaces=_list({"type": "object"}),
    host_channel_adapters=_list({"type": "object"}),
)
_DISK = _object(
    ["id", "name", "attached_to"],
    **dict.fromkeys(("id", "name", "type", "size", "location", "created_at", "updated_at", "serial_number"), _TEXT),
    block_size=_NUMBER,
    attached_to=_list(_object(["vm_id", "attachment_type"], vm_id=_TEXT, attachment_type=_TEXT, mode=_TEXT)),
)
_TYPE = _object(
    ["product_name", "cpu_cores", "memory_gb", "num_gpu", "gpu_type"],
    **dict.fromkeys(("product_name", "description", "cpu_type", "memory_type", "disk_type", "gpu_type"), _TEXT),
    **dict.fromkeys(("cpu_cores", "memory_gb", "disk_gb", "num_gpu"), _NUMBER),
)
_ORDER = _object(
    ["name", "type", "location", "ssh_public_key"],
    name={"type": "string", "minLength": 1, "maxLength": 63},
    type=_TEXT,
    location=_TEXT,
    ssh_public_key={"type": "string", "pattern": "^ssh-"},
    image=_TEXT,
    custom_image=_TEXT,
    startup_script={"type": "string", "pattern": "^#!"},
    reservation_specification=_object(
        ["selection_strategy"], selection_strategy={"type": "string", "enum": ["lowest_cost", "on_demand"]}
    ),
)
_VMS = "/projects/{project}/compute/vms"
_DISKS = "/projects/{project}/storage/disks"


def goods(**terms):
    return [
        Sku(
            instance_type=name,
            gpus=gpus,
            hourly_price=price,
            region=location.rpartition("-")[0],
            zone=location,
            minimum=60,
            increment=60,
            **{"stock": 20, **terms},
        )
        for name, (_cores, _memory, _gpu, gpus, price) in TYPES.items()
        for location in LOCATIONS
    ]


def account_file(secret):
    """What the Secret holds."""
    fields = {"access_key_id": KEY_ID, "secret_key": secret, "project_id": PROJECT}
    return "".join(f'{name} = "{value}"\n' for name, value in fields.items())


def trial():
    return CrusoeCloud(goods(), key="dHJpYWwta2V5")


class CrusoeCloud(ConformanceServer):
    """One project. A machine exists from its order on; the operation is done `operation_seconds` later."""

    provider = "crusoe"
    prefix = "/v1"
    spec = ("crusoe/crusoe-cloud-api-gateway-v1.json", "/v1")
    error = _object(["code", "message"], code=_TEXT, message=_TEXT)
    operations = (
        Operation("list_types", "GET", f"{_VMS}/types", _object(["items"], items=_list(_TYPE)), asks=MarketCall.OFFERS),
        Operation(
            "list_capacities",
            "GET",
            "/capacities",
            _object(
                ["items"],
                items=_list(_object(["location", "quantity"], location=_TEXT, quantity=_NUMBER, type=_TEXT)),
            ),
        ),
        Operation(
            "list_instances",
            "GET",
            f"{_VMS}/instances",
            _object(["items"], items=_list(_VM), next_page_token=_TEXT),
            query=dict.fromkeys(("ids", "names", "limit", "next_token"), _TEXT),
            asks=MarketCall.LIST,
        ),
        Operation("create", "POST", f"{_VMS}/instances", _ACCEPTED, _ORDER, asks=MarketCall.LAUNCH),
        Operation("get_operation", "GET", f"{_VMS}/instances/operations/{{operation}}", _OPERATION),
        Operation("delete", "DELETE", f"{_VMS}/instances/{{id}}", _ACCEPTED, asks=MarketCall.TERMINATE),
        Operation("list_disks", "GET", _DISKS, _object(["items"], items=_list(_DISK))),
        Operation("delete_disk", "DELETE", f"{_DISKS}/{{id}}", _ACCEPTED),
    )

    def __init__(self, skus, nodes=None, *, name="crusoe", operation_seconds=4.0, leaves_disks=False, **options):
        super().__init__(skus, nodes, name=name, **options)
        self.operation_seconds = operation_seconds
        #: Deleted machines leave their disks behind.
        self.leaves_disks = leaves_disks
        self._operations = {}
        #: Machines by the operation that deletes them.
        self._deleted_by = {}
        self._operation_numbers = itertools.count(1)

    # The forms of this cloud's refusals.

    def refusal(self, status, message="", code=None):
        return MarketFault(
            status=status, body=msgspec.json.encode({"code": code or str(status), "message": message or "bad_request"})
        )

    def failed_operation(self, code, message):
        """A launch that is accepted and fails."""
        return MarketFault(
            status=200,
            body=msgspec.json.encode({"operation": self._operation("", failure={"code": code, "message": message})}),
        )

    def no_capacity(self):
        return self.failed_operation("out_of_stock", "The requested type is out of stock in this location.")

    def quota_reached(self):
        return self.failed_operation("quota_exceeded", "The project's quota for this type is used up.")

    def rate_limited(self, seconds):
        fault = self.refusal(429, "too_many_requests")
        return msgspec.structs.replace(fault, headers={"Retry-After": str(seconds)})

    def bad_credentials(self):
        return self.refusal(401, "bad_credential")

    def credentials(self, base):  # noqa: ARG002 (of all clouds)
        return account_file(self.key)

    def _unauthorized(self, request):
        """Whether the signature is wrong: computed here from the description, not by our code."""
        if self.refuses_all:
            return True
        stamp, given = request.headers.get("X-Crusoe-Timestamp", ""), request.headers.get("Authorization", "")
        parts = urlsplit(request.url)
        pairs = sorted(parse_qsl(parts.query, keep_blank_values=True), key=lambda pair: pair[0])
        query = "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in pairs)
        message = f"{parts.path}\n{query}\n{request.method}\n{stamp}\n"
        secret = base64.urlsafe_b64decode(self.key + "=" * (-len(self.key) % 4))
        digest = base64.urlsafe_b64encode(hmac.new(secret, message.encode(), hashlib.sha256).digest())
        right = f"Bearer 1.0:{KEY_ID}:{digest.decode().rstrip('=')}"
        fresh = stamp in {f"{now() - timedelta(seconds=late):%Y-%m-%dT%H:%M:%SZ}" for late in range(-1, 60)}
        return None if hmac.compare_digest(right, given) and fresh else True

    # What can be rented.

    def on_list_types(self, _call):
        return {
            "items": [
                {
                    "product_name": name,
                    "description": f"{gpus}x {gpu}",
                    "cpu_cores": cores,
                    "cpu_type": "amd",
                    "memory_gb": memory,
                    "memory_type": "RAM",
                    "disk_gb": 0,
                    "disk_type": "",
                    "num_gpu": gpus,
                    "gpu_type": gpu,
                }
                for name, (cores, memory, gpu, gpus, _price) in TYPES.items()
            ]
        }

    def on_list_capacities(self, _call):
        return {
            "items": [
                {"type": name, "location": zone, "quantity": 99 if stock is None else stock}
                for (name, _region, zone, _spot), stock in self._stock.items()
            ]
        }

    # Machines.

    def on_create(self, call):
        body = call.body
        key = self.key_of(body["type"], body["location"].rpartition("-")[0], zone=body["location"])
        if key is None:
            raise Refused(self.refusal(400, "no such type or location"))
        try:
            rented = self.rent(key, name=body["name"], boot=body.get("startup_script"), copies=call.copies)
        except Refused as refused:
            # As Crusoe does: the request is accepted, and the operation fails.
            failure = msgspec.json.decode(refused.fault.body)["operation"]["result"]
            return {"operation": self._shown(self._operation("", failure=failure))}
        for each in rented:
            disk = str(UUID(int=len(self.others["disks"]) + 10_000))
            self.others["disks"][disk] = self._disk(disk, f"{body['name']}-os", body["location"], each.id)
        return {"operation": self._shown(self._operation(rented[0].id))}

    def _new_id(self, order):  # noqa: ARG002 (of all clouds)
        return str(UUID(int=next(self._numbers)))

    def on_get_operation(self, call):
        found = self._operations.get(call.parameters["operation"])
        if found is None:
            raise Refused(self.refusal(404, "no such operation"))
        return self._shown(found)

    def on_list_instances(self, call):
        asked, first = call.query, int(call.query.get("next_token") or 0)
        shown = [
            each
            for each in self.listed()
            if each.id in asked.get("ids", each.id).split(",")
            and each.order.name in asked.get("names", each.order.name).split(",")
        ]
        size = min(int(asked.get("limit", 100)), self._page_size)
        more = {"next_page_token": str(first + size)} if len(shown) > first + size else {}
        return {"items": [self._vm(each) for each in shown[first : first + size]], **more}

    def on_delete(self, call):
        if not self.end(call.parameters["id"]):
            raise Refused(self.refusal(404, "no such instance"))
        return {"operation": self._shown(self._operation(call.parameters["id"], deletes=True))}

    def on_list_disks(self, _call):
        return {"items": list(self.others["disks"].values())}

    def on_delete_disk(self, call):
        disk = self.others["disks"].get(call.parameters["id"])
        if disk is None:
            raise Refused(self.refusal(404, "no such disk"))
        if disk["attached_to"]:
            raise Refused(self.refusal(400, "the disk is attached"))
        del self.others["disks"][call.parameters["id"]]
        return {"operation": self._shown(self._operation(call.parameters["id"]))}

    def _end(self, rented):
        super()._end(rented)
        own = [
            name
            for name, disk in self.others["disks"].items()
            if rented.id in {each["vm_id"] for each in disk["attached_to"]}
        ]
        for name in own:
            if self.leaves_disks or self.others["disks"][name]["attached_to"][0]["attachment_type"] == "data":
                self.others["disks"][name]["attached_to"] = []
            else:
                del self.others["disks"][name]

    # Parts.

    def _operation(self, about, failure=None, *, deletes=False):
        name = f"operation-{next(self._operation_numbers)}"
        if deletes:
            self._deleted_by[name] = self.instances[about]
        operation = {
            "operation_id": name,
            "state": "FAILED" if failure and about is None else "IN_PROGRESS",
            "metadata": {"id": about} if about else {},
            "started_at": _time(now()),
            "completed_at": "",
        }
        if failure is not None:
            operation |= {"state": "FAILED", "result": failure}
        self._operations[name] = operation
        return operation

    def _shown(self, operation):
        done = datetime.fromisoformat(operation["started_at"]) + timedelta(seconds=self.operation_seconds)
        deleted = self._deleted_by.get(operation["operation_id"])
        if deleted is not None:
            done = deleted.line.ended
        if done is None or done > now():
            return {key: each for key, each in operation.items() if key != "result"} | {"state": "IN_PROGRESS"}
        state = "FAILED" if "result" in operation else "SUCCEEDED"
        return operation | {"state": state, "completed_at": _time(done)}

    def _vm(self, rented):
        created = _time(rented.line.created)
        own = [disk for disk in self.others["disks"].values() if rented.id in str(disk["attached_to"])]
        return {
            "id": rented.id,
            "project_id": PROJECT,
            "name": rented.order.name,
            "type": rented.order.instance_type,
            "state": _STATE[rented.phase],
            "location": rented.order.zone,
            "created_at": created,
            "updated_at": created,
            "billing_type": "On-demand",
            "maintenance_policy": "unspecified",
            "disks": [
                {key: each for key, each in disk.items() if key != "attached_to"}
                | {"attachment_type": disk["attached_to"][0]["attachment_type"], "mode": "read-write"}
                for disk in own
            ],
            "network_interfaces": [],
            "host_channel_adapters": [],
        }

    @staticmethod
    def _disk(disk_id, name, location, vm_id):
        return {
            "id": disk_id,
            "name": name,
            "type": "persistent-ssd",
            "size": "128GiB",
            "location": location,
            "block_size": 4096,
            "serial_number": disk_id[-12:],
            "created_at": _time(now()),
            "updated_at": _time(now()),
            "attached_to": [{"vm_id": vm_id, "attachment_type": "os", "mode": "read-write"}],
        }


def _time(moment):
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"
