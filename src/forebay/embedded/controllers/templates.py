"""Pods made from the template of their owner."""

from collections.abc import Mapping, Sequence

from forebay.embedded.api.objects import Json


def pod_from(
    owner: Json,
    template: Json,
    prefix: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Sequence[str] = (),
) -> Json:
    """The spec is the template's own: the store copies it."""
    meta, said = owner["metadata"], template.get("metadata") or {}
    return {
        "metadata": {
            "generateName": prefix,
            "namespace": meta["namespace"],
            "labels": {**(said.get("labels") or {}), **(labels or {})},
            "annotations": {**(said.get("annotations") or {}), **(annotations or {})},
            "finalizers": [*(said.get("finalizers") or ()), *finalizers],
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }
