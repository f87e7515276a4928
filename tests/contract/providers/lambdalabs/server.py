"""Conformance server of Lambda Cloud."""

import itertools

import msgspec

from forebay.model.sources import InstancePhase
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from tests.contract.providers.conformance import ConformanceServer, Refused
from tests.contract.providers.lambdalabs.contract import ERROR, OPERATIONS

#: Tag by which the tests tell for which GPUInstance a machine was rented.
OWNER_TAG = "forebay-uid"
CLUSTER_TAG = "forebay-cluster"
KEYS = "ssh keys"
_STATUS = {
    InstancePhase.STARTING: "booting",
    InstancePhase.RUNNING: "active",
    InstancePhase.FAILED: "unhealthy",
    InstancePhase.ENDING: "terminating",
    InstancePhase.STOPPED: "preempted",
}
_CODES = {
    400: "global/invalid-parameters",
    401: "global/invalid-api-key",
    403: "global/account-inactive",
    404: "global/object-does-not-exist",
    500: "global/internal-error",
    503: "provider/internal-unavailable",
}


class LambdaCloud(ConformanceServer):
    """One account. `shows_terminated`: listings also have what is gone, as terminated."""

    provider = "lambdalabs"
    prefix = "/api/v1"
    operations = OPERATIONS
    error = ERROR
    spec = ("lambda/lambda-cloud-v1.openapi.json", "")
    limits = ((None, 1, 1), ("launch", 1, 12))

    def __init__(self, skus, nodes=None, *, name="lambdalabs", shows_terminated=False, **options):
        super().__init__(skus, nodes, name=name, **options)
        self.shows_terminated = shows_terminated
        self._key_numbers = itertools.count(1)

    def refusal(self, status, message="", code=None):
        error = {"code": code or _CODES[status], "message": message, "suggestion": "Try something else."}
        return MarketFault(status=status, body=msgspec.json.encode({"error": error}))

    def no_capacity(self):
        message = "Not enough capacity to fulfill launch request."
        return self.refusal(400, message, "instance-operations/launch/insufficient-capacity")

    def quota_reached(self):
        return self.refusal(400, "Quota exceeded.", "global/quota-exceeded")

    def rate_limited(self, seconds):  # noqa: ARG002 (it does not tell)
        return MarketFault(status=429)

    def leave_behind(self, instance_type, cluster, owner="nobody"):
        key = next(key for key, sku in self._skus.items() if sku.instance_type == instance_type)
        (rented,) = self.rent(key, name="leftover", owner=owner, tags={CLUSTER_TAG: cluster, OWNER_TAG: owner})
        return rented.id

    def on_list_types(self, _call):
        found = {}
        for key, sku in self._skus.items():
            entry = found.setdefault(
                sku.instance_type, {"instance_type": _type(sku), "regions_with_capacity_available": []}
            )
            if self._stock[key] != 0:
                entry["regions_with_capacity_available"].append(_region(sku))
        return {"data": found}

    def on_list_regions(self, _call):
        return {"data": list({sku.region: _region(sku) for sku in self._skus.values()}.values())}

    def on_list_instances(self, _call):
        gone = [each for each in self.instances.values() if self.shows_terminated and each.gone_at is not None]
        return {"data": [*map(_shown, self.listed()), *(_shown(each, "terminated") for each in gone)]}

    def on_launch(self, call):
        order = call.body
        key = self.key_of(order["instance_type_name"], order["region_name"])
        if key is None:
            raise Refused(self.refusal(404, f"There is no {order['instance_type_name']} there."))
        if not {each["name"] for each in self.others[KEYS].values()} >= set(order["ssh_key_names"]):
            raise Refused(self.refusal(404, "There is no such SSH key."))
        tags = {each["key"]: each["value"] for each in order.get("tags", ())}
        rented = self.rent(
            key,
            name=order.get("name", ""),
            owner=tags.get(OWNER_TAG, ""),
            tags=tags,
            boot=order.get("user_data"),
            copies=call.copies,
        )
        return {"data": {"instance_ids": [rented[0].id]}}

    def on_terminate(self, call):
        ids = call.body["instance_ids"]
        if any(each not in self.running for each in ids):
            raise Refused(self.refusal(404, "Specified instance does not exist."))
        for each in ids:
            self.end(each)
        return {"data": {"terminated_instances": [_shown(self.instances[each]) for each in ids]}}

    def on_list_keys(self, _call):
        return {"data": list(self.others[KEYS].values())}

    def on_add_key(self, call):
        made = {"id": f"key-{next(self._key_numbers)}", "public_key": "ssh-ed25519 generated", **call.body}
        self.others[KEYS][made["id"]] = made
        return {"data": made}

    def on_delete_key(self, call):
        if self.others[KEYS].pop(call.parameters["id"], None) is None:
            raise Refused(self.refusal(404, "There is no such key.", "global/not-found"))
        return {"data": {}}


def trial():
    """The cloud that is started by hand."""
    skus = [
        Sku(
            instance_type=f"gpu_{count}x_{model.lower()}",
            gpus=count,
            hourly_price=price,
            gpu_type=model,
            gpu_memory_gib=memory,
            region=region,
            boot=20,
        )
        for model, memory, count, price in (("A10", 24, 1, "0.75"), ("H100", 80, 1, "2.49"), ("H100", 80, 8, "23.92"))
        for region in ("us-east-1", "us-west-1")
    ]
    return LambdaCloud(skus, key="trial-key")


def _region(sku):
    return {"name": sku.region, "description": f"Region {sku.region}"}


def _type(sku):
    memory = f" ({sku.gpu_memory_gib} GB SXM5)" if sku.gpu_memory_gib else ""
    return {
        "name": sku.instance_type,
        "description": f"{sku.gpus}x {sku.gpu_type}",
        "gpu_description": f"{sku.gpu_type or 'N/A'}{memory}",
        "price_cents_per_hour": round(float(sku.hourly_price) * 100),
        "specs": {
            "vcpus": int(sku.allocatable["cpu"]),
            "memory_gib": int(sku.allocatable["memory"].removesuffix("Gi")),
            "storage_gib": 512,
            "gpus": sku.gpus,
        },
    }


def _shown(rented, status=None):
    ending = rented.phase is InstancePhase.ENDING
    action = {"available": not ending, **({"reason_code": "vm-is-terminating"} if ending else {})}
    return {
        "id": rented.id,
        "name": rented.order.name,
        "status": status or _STATUS[rented.phase],
        "ssh_key_names": [],
        "file_system_names": [],
        "region": _region(rented.sku),
        "instance_type": _type(rented.sku),
        "tags": [{"key": key, "value": value} for key, value in rented.order.tags.items()],
        "actions": dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), action),
    }
