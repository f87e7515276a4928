"""Conformance server of Paperspace."""

import itertools

import msgspec

from forebay.model.sources import InstancePhase
from forebay.net.clock import now
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from tests.contract.providers.conformance import ConformanceServer, Refused
from tests.contract.providers.paperspace.contract import ERROR, OPERATIONS

SCRIPTS = "startup scripts"
_STATES = {
    InstancePhase.STARTING: "provisioning",
    InstancePhase.RUNNING: "ready",
    # What a machine shows that could not be made: only its event has more.
    InstancePhase.FAILED: "provisioning",
    InstancePhase.ENDING: "stopping",
    InstancePhase.STOPPED: "off",
}
_CODES = {
    400: "BAD_REQUEST",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    412: "PRECONDITION_FAILED",
    500: "INTERNAL_SERVER_ERROR",
}


class Paperspace(ConformanceServer):
    """One team. `shows_deleted`: listings also have machines that were deleted, with the time."""

    provider = "paperspace"
    prefix = "/v1"
    operations = OPERATIONS
    error = ERROR
    spec = ("paperspace/paperspace-v1-subset.openapi.yaml", "/v1")
    # Not published; this is what the tests assume.
    limits = ((None, 120, 60),)

    def __init__(self, skus, nodes=None, *, name="paperspace", shows_deleted=False, page_size=100, **options):
        super().__init__(skus, nodes, name=name, **options)
        self.shows_deleted = shows_deleted
        self._most = page_size
        self._script_numbers = itertools.count(1)
        #: What scripts say: the API never tells it again.
        self.texts = {}

    def refusal(self, status, message="", code=None):
        body = {"code": code or _CODES[status], "message": message}
        return MarketFault(status=status, body=msgspec.json.encode(body))

    def no_capacity(self):
        return self.refusal(412, "This machine type is out of capacity.")

    def quota_reached(self):
        return self.refusal(412, "Your team has reached its machine limit.")

    def rate_limited(self, seconds):  # noqa: ARG002 (it does not tell)
        return MarketFault(status=429, body=msgspec.json.encode({"code": "TOO_MANY_REQUESTS", "message": "Slow down."}))

    def leave_behind(self, instance_type, name):
        """Rents a machine of that name."""
        key = next(key for key, sku in self._skus.items() if sku.instance_type == instance_type)
        return self.rent(key, name=name)[0].id

    def on_list_machines(self, call):
        gone = [each for each in self.instances.values() if self.shows_deleted and each.gone_at is not None]
        return self._page(call, [*map(_shown, self.listed()), *map(_shown, gone)])

    def on_create(self, call):
        order = call.body
        key = self.key_of(order["machineType"], order["region"])
        if key is None:
            raise Refused(self.refusal(400, f"There is no {order['machineType']} there."))
        script = order.get("startupScriptId")
        if order["templateId"] != "t-ubuntu" or (script is not None and script not in self.others[SCRIPTS]):
            raise Refused(self.refusal(404, "There is no such template or script."))
        rented = self.rent(
            key,
            name=order["name"],
            owner=order["name"],
            boot=self.texts.get(script),
            copies=call.copies,
        )
        if script is not None:
            self.others[SCRIPTS][script]["assignedMachineIds"] += [each.id for each in rented]
        return {"event": _event(rented[0]), "data": _shown(rented[0])}

    def on_delete(self, call):
        instance_id = call.parameters["id"]
        if not self.end(instance_id):
            raise Refused(self.refusal(404, "Machine not found"))
        return {"data": _shown(self.instances[instance_id])}

    def on_availability(self, call):
        key = self.key_of(call.query["machineType"], call.query["region"])
        return {"available": key is not None and self._stock[key] != 0}

    def on_list_events(self, call):
        rented = self.instances.get(call.query["machineId"])
        return self._page(call, [] if rented is None else [_event(rented)])

    def on_list_templates(self, call):
        types = [{"machineTypeLabel": sku.instance_type, "isAvailable": True} for sku in self._skus.values()]
        common = {"agentType": "LinuxHeadless", "dtCreated": "2024-01-01T00:00:00Z", "defaultSizeGb": 50}
        return self._page(
            call,
            [
                {
                    **common,
                    "id": "t-windows",
                    "name": "Windows 10",
                    "operatingSystemLabel": "Windows 10",
                    "availableMachineTypes": types,
                },
                {
                    **common,
                    "id": "t-ubuntu",
                    "name": "ML-in-a-Box 22.04",
                    "operatingSystemLabel": "Ubuntu 22.04",
                    "availableMachineTypes": types,
                },
            ],
        )

    def on_list_scripts(self, call):
        return self._page(call, list(self.others[SCRIPTS].values()))

    def on_add_script(self, call):
        made = {
            "id": f"script-{next(self._script_numbers)}",
            "name": call.body["name"],
            "isRunOnce": call.body.get("isRunOnce", False),
            "isEnabled": True,
            "assignedMachineIds": [],
            "dtCreated": now().isoformat(),
        }
        self.others[SCRIPTS][made["id"]] = made
        self.texts[made["id"]] = call.body["script"]
        return made

    def on_delete_script(self, call):
        found = self.others[SCRIPTS].pop(call.parameters["id"], None)
        if found is None:
            raise Refused(self.refusal(404, "Startup script not found"))
        self.texts.pop(found["id"])
        return found

    def _page(self, call, items):
        first = int(call.query.get("after", 0))
        most = min(int(call.query.get("limit", 15)), self._most)
        more = len(items) > first + most
        return {
            "items": items[first : first + most],
            "hasMore": more,
            "nextPage": str(first + most) if more else None,
        }


def trial():
    """The cloud that is started by hand."""
    kinds = (
        ("A4000", "A4000", 16, 1, "0.76"),
        ("A100-80G", "A100", 80, 1, "3.18"),
        ("A100-80Gx8", "A100", 80, 8, "25.44"),
    )
    skus = [
        Sku(
            instance_type=name,
            gpus=count,
            hourly_price=price,
            gpu_type=model,
            gpu_memory_gib=memory,
            region=region,
            boot=20,
            minimum=0,
        )
        for name, model, memory, count, price in kinds
        for region in ("East Coast (NY2)", "Europe (AMS1)")
    ]
    return Paperspace(skus, key="trial-key")


def _shown(rented):
    return {
        "id": rented.id,
        "name": rented.order.name,
        "state": _STATES[rented.phase],
        "machineType": rented.sku.instance_type,
        "region": rented.sku.region,
        "publicIpType": "dynamic",
        "dtCreated": rented.line.created.isoformat(),
        "dtDeleted": rented.gone_at.isoformat() if rented.gone_at is not None else None,
    }


def _event(rented):
    state, error = {
        InstancePhase.STARTING: ("in progress", None),
        InstancePhase.FAILED: ("error", "the machine has failed"),
    }.get(rented.phase, ("done", None))
    return {"id": f"event-{rented.id}", "name": "create", "state": state, "machineId": rented.id, "error": error}
