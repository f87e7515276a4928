"""Our condensed contract of Lambda Cloud's API v1.10.0, after https://docs.lambda.ai/api/cloud."""

from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.conformance import Operation

TEXT = {"type": "string"}
NUMBER = {"type": "integer", "minimum": 0}


def listed(schema):
    return {"type": "array", "items": schema}


def record(required, optional=None):
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


def data(schema):
    return record({"data": schema})


REGION = record({"name": TEXT, "description": TEXT})
INSTANCE_TYPE = record(
    {
        "name": TEXT,
        "description": TEXT,
        "gpu_description": TEXT,
        "price_cents_per_hour": NUMBER,
        "specs": record({"vcpus": NUMBER, "memory_gib": NUMBER, "storage_gib": NUMBER, "gpus": NUMBER}),
    }
)
ACTION = record({"available": {"type": "boolean"}}, {"reason_code": TEXT, "reason_description": TEXT})
TAG = record({"key": TEXT, "value": TEXT})
INSTANCE = record(
    {
        "id": TEXT,
        "status": {"enum": ["booting", "active", "unhealthy", "terminated", "terminating", "preempted"]},
        "ssh_key_names": listed(TEXT),
        "file_system_names": listed(TEXT),
        "region": REGION,
        "instance_type": INSTANCE_TYPE,
        "actions": record(dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot", "terminate"), ACTION)),
    },
    {
        "name": {"type": "string", "maxLength": 64},
        "ip": TEXT,
        "private_ip": TEXT,
        "hostname": TEXT,
        "tags": listed(TAG),
    },
)
SSH_KEY = record({"id": TEXT, "name": {"type": "string", "minLength": 1, "maxLength": 64}, "public_key": TEXT})
LAUNCH = record(
    {
        "region_name": TEXT,
        "instance_type_name": TEXT,
        # Exactly one, by the text of the documentation.
        "ssh_key_names": {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 1},
    },
    {
        "name": {"type": "string", "maxLength": 64},
        "hostname": {"type": "string", "pattern": "^[a-z0-9][0-9a-z-]{0,62}$"},
        "image": {"anyOf": [record({"id": TEXT}), record({"family": TEXT})]},
        "user_data": {"type": "string", "maxLength": 1024 * 1024},
        "tags": listed(
            record(
                {
                    "key": {"type": "string", "maxLength": 55, "pattern": "^[a-z][a-z0-9-:]+$"},
                    "value": {"type": "string", "maxLength": 128},
                }
            )
        ),
    },
)
ERROR = record({"error": record({"code": TEXT, "message": TEXT}, {"suggestion": TEXT})})

OPERATIONS = (
    Operation(
        "list_types",
        "GET",
        "/instance-types",
        data(
            {
                "type": "object",
                "additionalProperties": record(
                    {"instance_type": INSTANCE_TYPE, "regions_with_capacity_available": listed(REGION)}
                ),
            }
        ),
        asks=MarketCall.OFFERS,
    ),
    Operation("list_regions", "GET", "/regions", data(listed(REGION)), asks=MarketCall.ACCOUNT),
    Operation("list_instances", "GET", "/instances", data(listed(INSTANCE)), asks=MarketCall.LIST),
    Operation(
        "launch",
        "POST",
        "/instance-operations/launch",
        data(record({"instance_ids": listed(TEXT)})),
        LAUNCH,
        asks=MarketCall.LAUNCH,
    ),
    Operation(
        "terminate",
        "POST",
        "/instance-operations/terminate",
        data(record({"terminated_instances": listed(INSTANCE)})),
        record({"instance_ids": listed(TEXT)}),
        asks=MarketCall.TERMINATE,
    ),
    Operation("list_keys", "GET", "/ssh-keys", data(listed(SSH_KEY))),
    Operation(
        "add_key",
        "POST",
        "/ssh-keys",
        data(SSH_KEY),
        record({"name": {"type": "string", "minLength": 1, "maxLength": 64}}, {"public_key": TEXT}),
    ),
    Operation("delete_key", "DELETE", "/ssh-keys/{id}", data({"type": "object"})),
)
