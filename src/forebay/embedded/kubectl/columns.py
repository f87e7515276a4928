"""Columns of the built-in kinds in `kubectl get`, and how each cell is computed."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from forebay.embedded.api import kinds
from forebay.embedded.api.objects import Json
from forebay.embedded.kubectl.ages import age, between, parse_time
from forebay.model.spans import human

Cell = Callable[[Json, datetime], Any]

_NONE = "<none>"


class TableColumn(msgspec.Struct, frozen=True):
    name: str
    cell: Cell
    type: str = "string"
    #: 0: always shown; more: only with `-o wide`.
    priority: int = 0
    format: str = ""

    def definition(self) -> Json:
        kept = {"name": self.name, "type": self.type, "format": self.format}
        return {**kept, "description": "", "priority": self.priority}


def _at(*path: str, otherwise: Any = _NONE) -> Cell:
    def cell(obj: Json, _now: datetime) -> Any:
        value: Any = obj
        for step in path:
            value = (value or {}).get(step)
        return otherwise if value is None or value == "" else value

    return cell


def _count(*path: str) -> Cell:
    return _at(*path, otherwise=0)


def _size(*fields: str) -> Cell:
    return lambda obj, _now: sum(len(obj.get(field) or ()) for field in fields)


def _pairs(*path: str) -> Cell:
    find = _at(*path, otherwise={})
    return lambda obj, now: ",".join(f"{key}={value}" for key, value in sorted(find(obj, now).items())) or _NONE


def _containers(field: str) -> Cell:
    find = _at("spec", "template", "spec", "containers", otherwise=())
    return lambda obj, now: ",".join(container.get(field, "") for container in find(obj, now))


NAME_COLUMN = TableColumn("Name", _at("metadata", "name"), format="name")
AGE_COLUMN = TableColumn("Age", age)


def pod_status(pod: Json) -> str:
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or "Unknown"
    if any(one.get("reason") == "SchedulingGated" for one in status.get("conditions") or ()):
        reason = "SchedulingGated"
    running = False
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        ended = state.get("terminated")
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif ended is not None:
            reason = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
        running = running or ("running" in state and bool(container.get("ready")))
    if reason == "Completed" and running:
        reason = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _pod_ready(pod: Json, _now: datetime) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{len(pod['spec'].get('containers') or ())}"


def _pod_restarts(pod: Json, now: datetime) -> str:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [((one.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    last = max(filter(None, ends), default=None)
    return f"{count} ({between(last, now)} ago)" if count and last else str(count)


def _node_status(node: Json, _now: datetime) -> str:
    ready = [one for one in (node.get("status") or {}).get("conditions") or () if one["type"] == "Ready"]
    statuses = [("Ready" if one.get("status") == "True" else "NotReady") for one in ready] or ["Unknown"]
    return ",".join([*statuses, *(["SchedulingDisabled"] if node["spec"].get("unschedulable") else [])])


def _node_roles(node: Json, _now: datetime) -> str:
    labels = node["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    return ",".join(sorted(filter(None, roles))) or _NONE


def _node_address(kind: str) -> Cell:
    def cell(node: Json, _now: datetime) -> str:
        addresses = (node.get("status") or {}).get("addresses") or ()
        return next((one["address"] for one in addresses if one["type"] == kind), _NONE)

    return cell


def _job_status(job: Json, _now: datetime) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = {one["type"] for one in conditions if one.get("status") == "True"}
    for condition, status in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in true:
            return status
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    others = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((condition for condition in others if condition in true), "Running")


def _job_completions(job: Json, _now: datetime) -> str:
    spec, done = job["spec"], (job.get("status") or {}).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism", 0)
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(job: Json, now: datetime) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = parse_time(status["completionTime"]) if status.get("completionTime") else now
    return human(end - parse_time(status["startTime"]))


def _event_first(event: Json, now: datetime) -> str:
    return between(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_last(event: Json, now: datetime) -> str:
    series = event.get("series") or {}
    return between(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime"), now)


def _event_object(event: Json, _now: datetime) -> str:
    involved = event.get("involvedObject") or {}
    return (
        f"{involved.get('kind', '').lower()}/{involved['name']}"
        if involved.get("name")
        else involved.get("kind", "").lower()
    )


def _event_source(event: Json, _now: datetime) -> str:
    source = event.get("source") or {}
    parts = (source.get("component") or event.get("reportingComponent"), source.get("host"))
    return ", ".join(filter(None, parts))


def _event_count(event: Json, _now: datetime) -> str:
    return str((event.get("series") or {}).get("count") or event.get("count") or 1)


def _number(name: str, *path: str) -> TableColumn:
    return TableColumn(name, _count(*path), "integer")


_TEMPLATE = (
    TableColumn("Containers", _containers("name"), priority=1),
    TableColumn("Images", _containers("image"), priority=1),
    TableColumn("Selector", _pairs("spec", "selector", "matchLabels"), priority=1),
)

BUILT_IN_COLUMNS: dict[str, tuple[TableColumn, ...]] = {
    kinds.POD_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Ready", _pod_ready),
        TableColumn("Status", lambda pod, _now: pod_status(pod)),
        TableColumn("Restarts", _pod_restarts),
        AGE_COLUMN,
        TableColumn("IP", _at("status", "podIP"), priority=1),
        TableColumn("Node", _at("spec", "nodeName"), priority=1),
        TableColumn("Nominated Node", _at("status", "nominatedNodeName"), priority=1),
        TableColumn("Readiness Gates", lambda _pod, _now: _NONE, priority=1),
    ),
    kinds.NODE_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Status", _node_status),
        TableColumn("Roles", _node_roles),
        AGE_COLUMN,
        TableColumn("Version", _at("status", "nodeInfo", "kubeletVersion", otherwise="")),
        TableColumn("Internal-IP", _node_address("InternalIP"), priority=1),
        TableColumn("External-IP", _node_address("ExternalIP"), priority=1),
        TableColumn("OS-Image", _at("status", "nodeInfo", "osImage", otherwise="<unknown>"), priority=1),
        TableColumn("Kernel-Version", _at("status", "nodeInfo", "kernelVersion", otherwise="<unknown>"), priority=1),
        TableColumn(
            "Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", otherwise="<unknown>"), priority=1
        ),
    ),
    kinds.NAMESPACE_KIND.storage: (NAME_COLUMN, TableColumn("Status", _at("status", "phase")), AGE_COLUMN),
    kinds.EVENT_KIND.storage: (
        TableColumn("Last Seen", _event_last),
        TableColumn("Type", _at("type")),
        TableColumn("Reason", _at("reason")),
        TableColumn("Object", _event_object),
        TableColumn("Subobject", _at("involvedObject", "fieldPath", otherwise=""), priority=1),
        TableColumn("Source", _event_source, priority=1),
        TableColumn("Message", _at("message", otherwise="")),
        TableColumn("First Seen", _event_first, priority=1),
        TableColumn("Count", _event_count, priority=1),
        TableColumn("Name", _at("metadata", "name"), priority=1, format="name"),
    ),
    kinds.CONFIG_MAP_KIND.storage: (NAME_COLUMN, TableColumn("Data", _size("data", "binaryData")), AGE_COLUMN),
    kinds.SECRET_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Type", _at("type")),
        TableColumn("Data", _size("data")),
        AGE_COLUMN,
    ),
    kinds.JOB_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Status", _job_status),
        TableColumn("Completions", _job_completions),
        TableColumn("Duration", _job_duration),
        AGE_COLUMN,
        *_TEMPLATE,
    ),
    kinds.REPLICA_SET_KIND.storage: (
        NAME_COLUMN,
        _number("Desired", "spec", "replicas"),
        _number("Current", "status", "replicas"),
        _number("Ready", "status", "readyReplicas"),
        AGE_COLUMN,
        *_TEMPLATE,
    ),
    kinds.DAEMON_SET_KIND.storage: (
        NAME_COLUMN,
        _number("Desired", "status", "desiredNumberScheduled"),
        _number("Current", "status", "currentNumberScheduled"),
        _number("Ready", "status", "numberReady"),
        _number("Up-to-date", "status", "updatedNumberScheduled"),
        _number("Available", "status", "numberAvailable"),
        TableColumn("Node Selector", _pairs("spec", "template", "spec", "nodeSelector")),
        AGE_COLUMN,
        *_TEMPLATE,
    ),
    kinds.DISRUPTION_BUDGET_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Min Available", lambda obj, now: str(_at("spec", "minAvailable", otherwise="N/A")(obj, now))),
        TableColumn("Max Unavailable", lambda obj, now: str(_at("spec", "maxUnavailable", otherwise="N/A")(obj, now))),
        _number("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE_COLUMN,
    ),
    kinds.LEASE_KIND.storage: (
        NAME_COLUMN,
        TableColumn("Holder", _at("spec", "holderIdentity", otherwise="")),
        AGE_COLUMN,
    ),
    kinds.PRIORITY_CLASS_KIND.storage: (
        NAME_COLUMN,
        _number("Value", "value"),
        TableColumn("Global-Default", _at("globalDefault", otherwise=False), "boolean"),
        AGE_COLUMN,
        TableColumn("PreemptionPolicy", _at("preemptionPolicy")),
    ),
    kinds.RUNTIME_CLASS_KIND.storage: (NAME_COLUMN, TableColumn("Handler", _at("handler")), AGE_COLUMN),
    kinds.CRD_KIND.storage: (NAME_COLUMN, TableColumn("Created At", _at("metadata", "creationTimestamp"), "date")),
}
