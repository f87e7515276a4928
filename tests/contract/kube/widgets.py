"""A custom resource with one of everything: what our own CRDs rely on."""

from typing import Any

GROUP = "contract.forebay.dev"
VERSION = f"{GROUP}/v1"

_GPU_HOURS_RULE = "type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))"

_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "mode": {"type": "string", "enum": ["Sampled", "Exact"], "default": "Sampled"},
        "note": {"type": "string", "maxLength": 10, "pattern": "^[a-z]*$"},
        "gpuHours": {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-validations": [
                {"rule": _GPU_HOURS_RULE, "message": "gpuHours must be a quantity greater than 0"}
            ],
        },
        "region": {
            "type": "string",
            "default": "anywhere",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "region is immutable"}],
        },
        "window": {
            "type": "object",
            "properties": {
                "hours": {"type": "integer"},
                "days": {"type": "integer"},
                "timezone": {"type": "string", "default": "UTC"},
            },
            "x-kubernetes-validations": [
                {
                    "rule": "[has(self.hours), has(self.days)].filter(x, x).size() == 1",
                    "message": "exactly one of hours and days must be set",
                }
            ],
        },
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
            },
        },
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
    "x-kubernetes-validations": [
        {
            "rule": "self.replicas <= self.size",
            "message": "replicas must not exceed size",
            "fieldPath": ".replicas",
        }
    ],
}

_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string"},
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
    },
}

WIDGETS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": "Widget",
            "listKind": "WidgetList",
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "categories": ["gadgets"],
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {"spec": _SPEC, "status": _STATUS},
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
                "selectableFields": [{"jsonPath": ".spec.mode"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
            }
        ],
    },
}


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 5, **spec}}
