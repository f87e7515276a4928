"""Pods: defaults, admission, validation, and which fields an update may change."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from forebay.embedded.api import failures, metadata
from forebay.embedded.api.conditions import pod_condition, with_status_condition
from forebay.embedded.api.failures import FieldCause, bad_value, duplicate, not_allowed, required, unsupported
from forebay.embedded.api.kinds import POD_KIND, PRIORITY_CLASS_KIND, SERVICE_ACCOUNT_KIND, ApiKind
from forebay.embedded.api.objects import Json, object_key
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.store import Store
from forebay.model.notation import InvalidQuantity, Quantity

_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
#: Cached, since most pods have the same few amounts.
_quantity = lru_cache(maxsize=4096)(Quantity.parse)
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_IMMUTABLE_MESSAGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def default_pod_spec(spec: Json) -> None:
    """Sets the defaults of pods and pod templates."""
    for field, value in _DEFAULTS.items():
        spec.setdefault(field, {} if value == {} else value)
    for container in _containers(spec):
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        tag = str(container.get("image", "")).rpartition("/")[2]
        fixed = "@" in tag or (":" in tag and not tag.endswith(":latest"))
        container.setdefault("imagePullPolicy", "IfNotPresent" if fixed else "Always")
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")
        resources = container.setdefault("resources", {}) or {}
        for amounts in ("limits", "requests"):
            if amounts in resources:
                resources[amounts] = canonical_quantities(POD_KIND, resources[amounts])
        if "limits" in resources:
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def canonical_quantities(kind: ApiKind, amounts: Json | None) -> Json:
    """Quantities as the server stores them: 1000m becomes 1, and a number becomes text."""
    try:
        return {name: str(_quantity(amount)) for name, amount in (amounts or {}).items()}
    except InvalidQuantity as error:
        raise failures.cannot_handle(kind, error.reason) from None
    except TypeError:
        raise failures.cannot_handle(kind, "quantities must be strings or integers") from None


def pod_spec_causes(spec: Json, path: str) -> Iterator[FieldCause]:
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _container_causes(container, f"{path}.{field}[{index}]", names)
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, container in enumerate(spec.get("containers") or ()):
        for mount, one in enumerate(container.get("volumeMounts") or ()):
            if one.get("name") not in volumes:
                where = f"{path}.containers[{index}].volumeMounts[{mount}].name"
                yield FieldCause(where, "FieldValueNotFound", f"Not found: {failures.shown(one.get('name'))}")
    if spec.get("restartPolicy") not in {"Always", "OnFailure", "Never"}:
        yield unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), ["Always", "OnFailure", "Never"])
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield not_allowed(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")


def _container_causes(container: Json, path: str, names: set[str]) -> Iterator[FieldCause]:
    name = container.get("name")
    if not name:
        yield required(f"{path}.name")
    elif not metadata.IS_LABEL.fullmatch(name):
        yield bad_value(f"{path}.name", name, metadata.LABEL_RULE)
    elif name in names:
        yield duplicate(f"{path}.name", name)
    else:
        names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    resources = container.get("resources") or {}
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for field, amounts in (("limits", limits), ("requests", requests)):
        for resource, text in amounts.items():
            where, amount = f"{path}.resources.{field}[{resource}]", _quantity(text)
            if resource not in _NATIVE_RESOURCES and "/" not in resource and not resource.startswith("hugepages-"):
                yield bad_value(where, resource, "must be a standard resource type or fully qualified")
                yield bad_value(where, resource, "must be a standard resource for containers")
            elif "/" in resource and amount.nano % 10**9:
                yield bad_value(where, text, "must be an integer")
            if amount.nano < 0:
                yield bad_value(where, text, "must be greater than or equal to 0")
    for resource, text in requests.items():
        limit, where = limits.get(resource), f"{path}.resources.requests"
        if limit is None:
            if resource not in _NATIVE_RESOURCES and "/" in resource:
                yield required(f"{path}.resources.limits", "Limit must be set for non overcommitable resources")
        elif "/" in resource and _quantity(text) != _quantity(limit):
            yield bad_value(where, text, f"must be equal to {resource} limit of {limit}")
        elif _quantity(text).nano > _quantity(limit).nano:
            yield bad_value(where, text, f"must be less than or equal to {resource} limit of {limit}")


def _containers(spec: Json) -> Iterator[Json]:
    for field in ("initContainers", "containers"):
        yield from spec.get(field) or ()


class PodRules(KindRules):
    graceful = True

    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:
        spec = obj.setdefault("spec", {})
        default_pod_spec(spec)
        spec.setdefault("enableServiceLinks", True)
        _admit(store, kind, object_key(obj), spec)
        obj["status"] = {"phase": "Pending", "qosClass": _qos_class(spec)}
        if spec.get("schedulingGates"):
            message = "Scheduling is blocked due to non-empty scheduling gates"
            gated = pod_condition("PodScheduled", "False", reason="SchedulingGated", message=message)
            obj["status"] = with_status_condition(obj["status"], gated, store.timestamp())
        return list(pod_spec_causes(spec, "spec"))

    def update(
        self,
        store: Store,  # noqa: ARG002
        kind: ApiKind,  # noqa: ARG002
        old: Json,
        new: Json,
        subresource: str | None,
    ) -> Sequence[FieldCause]:
        if subresource == "binding":
            return ()
        if subresource == "status":
            return list(_status_causes(old, new))
        if new.get("spec") == old["spec"]:
            return ()
        default_pod_spec(new.setdefault("spec", {}))
        _add_default_tolerations(new["spec"])
        _remove_gated_condition(old, new)
        return list(_spec_change_causes(old["spec"], new["spec"]))

    def grace(self, obj: Json, asked: int | None) -> int:
        spec = obj["spec"]
        if not spec.get("nodeName") or obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
            return 0
        seconds = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        return int(seconds) if seconds >= 0 else 1


def _admit(store: Store, kind: ApiKind, key: tuple[str, str], spec: Json) -> None:
    """Does what the default admission plugins do: service account, priority and the two default tolerations."""
    namespace, name = key
    account = str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    if store.find(SERVICE_ACCOUNT_KIND, namespace, account) is None:
        why = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
        raise failures.forbidden(kind, name, why)
    class_name = spec.get("priorityClassName")
    if class_name:
        found = store.find(PRIORITY_CLASS_KIND, None, class_name)
        if found is None:
            raise failures.forbidden(kind, name, f"no PriorityClass with name {class_name} was found")
    else:
        found = next((one for one in store.list(PRIORITY_CLASS_KIND) if one.get("globalDefault")), None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found["value"] if found else 0
    if spec.get("priority") not in {None, value}:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
        )
        raise failures.forbidden(kind, name, f"{why}controller computed {value} from the given PriorityClass name")
    spec["priority"] = value
    policy = (found or {}).get("preemptionPolicy", "PreemptLowerPriority")
    spec.setdefault("preemptionPolicy", policy)
    _add_default_tolerations(spec)


def _add_default_tolerations(spec: Json) -> None:
    """Adds the default tolerations: a pod tolerates a not-ready or unreachable node for five minutes."""
    tolerations = spec.get("tolerations") or []
    for key in _NOT_READY:
        if not any(_tolerates(one, key) for one in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def _tolerates(toleration: Json, key: str) -> bool:
    return toleration.get("key") in {None, "", key} and toleration.get("effect") in {None, "", "NoExecute"}


def _qos_class(spec: Json) -> str:
    wanted = [container.get("resources") or {} for container in _containers(spec)]
    named = [one.get(field, {}) for one in wanted for field in ("requests", "limits")]
    if not any({"cpu", "memory"} & amounts.keys() for amounts in named):
        return "BestEffort"
    same = all(
        one.get("limits", {}).get(name) is not None and one["limits"][name] == one.get("requests", {}).get(name)
        for one in wanted
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if same else "Burstable"


def bound(store: Store, pod: Json, node: str) -> Json:
    """The pod as bound to the node."""
    status = with_status_condition(pod.get("status", {}), pod_condition("PodScheduled", "True"), store.timestamp())
    status.pop("nominatedNodeName", None)
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def _remove_gated_condition(old: Json, new: Json) -> None:
    """Removes the SchedulingGated condition when the last gate is removed."""
    if old["spec"].get("schedulingGates") and not new["spec"].get("schedulingGates"):
        new["spec"].pop("schedulingGates", None)
        status = new["status"]
        kept = [one for one in status.get("conditions", ()) if one.get("reason") != "SchedulingGated"]
        new["status"] = {**status, "conditions": kept}
        if not kept:
            del new["status"]["conditions"]


def _status_causes(old: Json, new: Json) -> Iterator[FieldCause]:
    before, after = old.get("status", {}), new.get("status") or {}
    nominated = after.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName") and old["spec"].get("nodeName"):
        yield not_allowed("status.nominatedNodeName", "may not be set on pods that are already bound to a node")
    policy = old["spec"].get("restartPolicy")
    ended = {one["name"]: one for one in before.get("containerStatuses") or () if _exit_code(one) is not None}
    if policy == "Always":
        return
    for index, one in enumerate(after.get("containerStatuses") or ()):
        if one.get("name") not in ended or (policy == "OnFailure" and _exit_code(ended[one["name"]]) != 0):
            continue
        if _exit_code(one) is None:
            where = f"status.containerStatuses[{index}].state"
            yield not_allowed(where, "may not be transitioned to non-terminated state")


def _exit_code(container: Json) -> Any:
    ended = (container.get("state") or {}).get("terminated")
    return None if ended is None else ended.get("exitCode", 0)


def _spec_change_causes(old: Json, new: Json) -> Iterator[FieldCause]:
    gates = {gate["name"] for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate["name"] not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield not_allowed(f"spec.schedulingGates[{index}].name", why)
    # The node selection of a gated pod may still change: a gate is there for a controller that decides about it.
    free = {"schedulingGates", "tolerations", "activeDeadlineSeconds", "terminationGracePeriodSeconds"}
    if gates:
        free |= {"nodeSelector", "affinity"}
    if _immutable_fields(old, free) != _immutable_fields(new, free):
        yield not_allowed("spec", _IMMUTABLE_MESSAGE)
    kept = [_without_seconds(one) for one in new.get("tolerations") or ()]
    if any(_without_seconds(one) not in kept for one in old.get("tolerations") or ()):
        yield not_allowed("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")


def _immutable_fields(spec: Json, free: set[str]) -> Json:
    rest = {field: value for field, value in spec.items() if field not in free}
    for field in ("containers", "initContainers"):
        if field in rest:
            rest[field] = [{**container, "image": ""} for container in rest[field]]
    return rest


def _without_seconds(toleration: Json) -> Json:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}
