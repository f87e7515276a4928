"""Objects that the tests of this suite create."""

from typing import Any

Json = dict[str, Any]


def config_map(name: str, labels: Json | None = None, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _meta(name, labels), "data": data}


def pod(name: str, labels: Json | None = None, **spec: Any) -> Json:
    """A pod that stays unbound: no scheduler has its `schedulerName`."""
    container = {"name": "main", "image": "registry.example/main:1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _meta(name, labels),
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def node(name: str, labels: Json | None = None, **spec: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": _meta(name, labels), "spec": spec}


def binding(name: str, target: str, uid: str | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **({"uid": uid} if uid else {}), **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": target},
    }


def eviction(name: str, namespace: str, **options: Any) -> Json:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    return body | ({"deleteOptions": options} if options else {})


def budget(name: str, match: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": match}, **spec},
    }


def owned(body: Json, owner: Json, **fields: Any) -> Json:
    """`body` with `owner` among its owners."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        **fields,
    }
    metadata = body["metadata"]
    return body | {"metadata": metadata | {"ownerReferences": [*metadata.get("ownerReferences", []), reference]}}


def finalized(body: Json, *finalizers: str) -> Json:
    return body | {"metadata": body["metadata"] | {"finalizers": list(finalizers)}}


def names(listing: Json) -> list[str]:
    return [item["metadata"]["name"] for item in listing["items"]]


def version(obj: Json) -> str:
    """The resourceVersion of an object or a list."""
    return obj["metadata"]["resourceVersion"]


def _meta(name: str, labels: Json | None) -> Json:
    return {"name": name, **({"labels": labels} if labels else {})}
