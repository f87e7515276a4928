"""`metadata.managedFields` as the API server derives them: a third of a real pod's JSON says who wrote the rest."""

import json
from typing import Any

#: Lists that are maps in disguise, by the fields that identify an item. Other lists are owned whole.
MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "hostIPs": ("ip",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "podIPs": ("ip",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}


def owned(value: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, part in value.items():
        if isinstance(part, dict):
            fields[f"f:{name}"] = {".": {}, **owned(part)} if part else {}
        elif isinstance(part, list) and name in MERGE_KEYS:
            fields[f"f:{name}"] = {".": {}, **{_item(name, item): {".": {}, **owned(item)} for item in part}}
        else:
            fields[f"f:{name}"] = {}
    return fields


def _item(name: str, item: dict[str, Any]) -> str:
    return "k:" + json.dumps({key: item[key] for key in MERGE_KEYS[name]}, separators=(",", ":"))


def entry(manager: str, time: str, fields: dict[str, Any], subresource: str | None = None) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }
