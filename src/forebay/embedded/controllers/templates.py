"""Pods created from the pod template of a Job or ReplicaSet."""

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
    """A pod of the owner, to be created. Its spec is the template's own object; the store copies it."""
    meta, template_meta = owner["metadata"], template.get("metadata") or {}
    return {
        "metadata": {
            "generateName": prefix,
            "namespace": meta["namespace"],
            "labels": {**(template_meta.get("labels") or {}), **(labels or {})},
            "annotations": {**(template_meta.get("annotations") or {}), **(annotations or {})},
            "finalizers": [*(template_meta.get("finalizers") or ()), *finalizers],
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
