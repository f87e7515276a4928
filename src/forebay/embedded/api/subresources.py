"""Subresources that are not views of the object: binding, eviction and scale."""

from collections.abc import Mapping

from forebay.embedded.api import failures
from forebay.embedded.api.conditions import disrupted, is_condition_true
from forebay.embedded.api.custom_resources import custom_version
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import DISRUPTION_BUDGET_KIND, POD_KIND, REPLICA_SET_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.pods import bound
from forebay.embedded.api.selectors import selector_matches
from forebay.embedded.api.store import Store

_BINDINGS = ApiKind(plural="pods/binding", kind="Binding")
_OVER_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


def bind_pod(store: Store, namespace: str, name: str, binding: Json, *, dry_run: bool = False) -> Json:
    """Binds a pod to a node, once. Labels and annotations of the Binding are added to the pod in the same write."""
    target, meta = binding.get("target") or {}, binding.get("metadata") or {}
    if not target.get("name"):
        raise ApiFailure(500, "InternalError", "target.name: Required value")
    if target.get("kind") not in {None, "", "Node"}:
        why = f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise ApiFailure(500, "InternalError", why)
    pod = store.get(POD_KIND, namespace, name)
    actual = pod["metadata"]
    if meta.get("uid") and meta["uid"] != actual["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {actual['uid']}"
        raise failures.conflict(POD_KIND, name, why)
    if actual.get("deletionTimestamp"):
        raise failures.conflict(_BINDINGS, name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise failures.conflict(_BINDINGS, name, why)
    if pod["spec"].get("schedulingGates"):
        raise failures.conflict(_BINDINGS, name, f"pod {name} has non-empty .spec.schedulingGates")
    added = {
        field: {**(actual.get(field) or {}), **meta[field]} for field in ("labels", "annotations") if meta.get(field)
    }
    pod = bound(store, {**pod, "metadata": {**actual, **added}}, target["name"])
    return store.update(POD_KIND, pod, subresource="binding", dry_run=dry_run)


def evict_pod(store: Store, namespace: str, name: str, options: Mapping[str, object], *, dry_run: bool = False) -> None:
    """Deletes a pod if its PodDisruptionBudget allows it; 429 otherwise."""
    pod = store.get(POD_KIND, namespace, name)
    needs_no_budget = pod.get("status", {}).get("phase") in {"Succeeded", "Failed", "Pending"}
    if not needs_no_budget and "deletionTimestamp" not in pod["metadata"]:
        _use_disruption(store, pod, dry_run=dry_run)
    preconditions = options.get("preconditions")
    grace = options.get("gracePeriodSeconds")
    wanted = preconditions if isinstance(preconditions, dict) else {}
    if wanted.get("uid") and wanted["uid"] != pod["metadata"]["uid"]:
        raise failures.uid_mismatch(POD_KIND, pod["metadata"], wanted["uid"])
    if dry_run:
        return
    if "deletionTimestamp" not in pod["metadata"]:
        status, why = pod.get("status", {}), ("EvictionByEvictionAPI", "Eviction API: evicting")
        marked = {**pod, "status": disrupted(status, store.timestamp(), *why)}
        store.update(POD_KIND, marked, subresource="status")
    store.delete(POD_KIND, namespace, name, grace=grace if isinstance(grace, int) else None)


def _use_disruption(store: Store, pod: Json, *, dry_run: bool) -> None:
    """Uses one allowed disruption of the pod's PDB. An unhealthy pod needs none while enough others are healthy."""
    labels, meta = pod["metadata"].get("labels") or {}, pod["metadata"]
    budgets = [
        budget
        for budget in store.list(DISRUPTION_BUDGET_KIND, meta["namespace"])
        if budget["spec"].get("selector") is not None and selector_matches(budget["spec"]["selector"], labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiFailure(500, "", why)
    budget = budgets[0]
    status, name = budget["status"], budget["metadata"]["name"]
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    if not is_condition_true(pod["status"], "Ready") and (always or (healthy >= desired > 0)):
        return
    if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
        raise _over_budget(f"The disruption budget {name} is still being processed by the server.", retry_after=10)
    if status["disruptionsAllowed"] < 1:
        raise _over_budget(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    if not dry_run:
        disrupted = {**(status.get("disruptedPods") or {}), meta["name"]: store.timestamp()}
        used = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        store.update(DISRUPTION_BUDGET_KIND, {**budget, "status": used}, subresource="status")


def _over_budget(why: str, retry_after: int | None = None) -> ApiFailure:
    details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    return ApiFailure(429, "TooManyRequests", _OVER_BUDGET, details=details, retry_after=retry_after)


def scale_of(store: Store, kind: ApiKind, obj: Json) -> Json:
    """The Scale of an object: its desired and current replicas."""
    spec_path, status_path, selector_path = _scale_paths(store, kind)
    meta = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _value_at(obj, status_path) or 0}
    if kind.storage == REPLICA_SET_KIND.storage:
        labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
        status["selector"] = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    elif selector_path and _value_at(obj, selector_path):
        status["selector"] = _value_at(obj, selector_path)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": _value_at(obj, spec_path) or 0},
        "status": status,
    }


def scaled(store: Store, kind: ApiKind, obj: Json, scale: Json) -> Json:
    """The object with the replicas of a Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        cause = failures.bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise failures.invalid(
            ApiKind(group="autoscaling", plural="scales", kind="Scale"), obj["metadata"]["name"], [cause]
        )
    *path, last = _scale_paths(store, kind)[0]
    new = dict(obj)
    inner = new
    for step in path:
        inner[step] = dict(inner.get(step) or {})
        inner = inner[step]
    inner[last] = replicas
    expected_version = (scale.get("metadata") or {}).get("resourceVersion")
    return {**new, "metadata": {**new["metadata"], "resourceVersion": expected_version or ""}}


def _scale_paths(store: Store, kind: ApiKind) -> tuple[list[str], list[str], list[str]]:
    custom = custom_version(store, kind)
    paths = (custom.scale if custom else None) or {}
    spec = paths.get("specReplicasPath", ".spec.replicas")
    status = paths.get("statusReplicasPath", ".status.replicas")
    selector = paths.get("labelSelectorPath", "")
    return spec.split(".")[1:], status.split(".")[1:], selector.split(".")[1:]


def _value_at(obj: Json, path: list[str]) -> object:
    value: object = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
