"""What can be said of a pod that does not decode: it holds its node, and uses what it requests.

A pod that nobody sees would use GPUs that no budget counts, on a node that seems idle.
"""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from forebay.model.quantities import GPU_SUFFIX, InvalidQuantity, Quantity
from forebay.model.workloads import ContainerResources, Phase, Pod, PodShape, effective_requests

#: Later dates count as this one, so that a date plus a duration is always a date. A pod with a grace period of
#: thousands of years is deleted in a year that Python does not know.
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
_PHASES: Final = {phase.value: phase for phase in Phase}


def salvaged_pod(body: dict[str, Any]) -> Pod | None:
    """The pod, as far as it can be read; None where it has no node, and so uses nothing."""
    metadata, spec, status = (_part(body, name) for name in ("metadata", "spec", "status"))
    node = spec.get("nodeName")
    if not node or not isinstance(node, str):
        return None
    phase = _PHASES.get(str(status.get("phase")), Phase.UNKNOWN)
    created = _time(metadata.get("creationTimestamp")) or LATEST
    return Pod(
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        resource_version=int(version) if (version := _text(metadata.get("resourceVersion"))).isdecimal() else 0,
        created=created,
        shape=PodShape(requests=_requests(spec)),
        phase=phase,
        labels={key: value for key, value in _part(metadata, "labels").items() if isinstance(value, str)},
        # Nobody knows what it is for, so it must not be disturbed.
        annotations={"forebay.dev/do-not-disrupt": "true"},
        owner=None,
        node=node,
        nominated_node=None,
        deleted=(_time(metadata["deletionTimestamp"]) or LATEST) if metadata.get("deletionTimestamp") else None,
        unschedulable_since=None,
        unschedulable_message=None,
        finalizers=tuple(each for each in _items(metadata, "finalizers") if isinstance(each, str)),
        started=None if phase is Phase.PENDING else _time(status.get("startTime")) or created,
    )


def _requests(spec: dict[str, Any]) -> Any:
    containers, starting = (
        [_resources(each) for each in _items(spec, name) if isinstance(each, dict)]
        for name in ("containers", "initContainers")
    )
    return effective_requests(containers, starting, _quantities(spec, "overhead"))


def _resources(container: dict[str, Any]) -> ContainerResources:
    resources = _part(container, "resources")
    return ContainerResources(
        _quantities(resources, "requests"), _quantities(resources, "limits"), container.get("restartPolicy") == "Always"
    )


def _quantities(body: dict[str, Any], name: str) -> dict[str, str | int]:
    """Quantities that can be read. Of a GPU resource that cannot be read the pod uses one at least."""
    found: dict[str, str | int] = {}
    for resource, written in _part(body, name).items():
        try:
            found[resource] = Quantity.parse(written).canonical()
        except (InvalidQuantity, TypeError):
            if resource.endswith(GPU_SUFFIX):
                found[resource] = 1
    return found


def _part(body: dict[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _items(body: dict[str, Any], name: str) -> list[Any]:
    found = body.get(name)
    return found if isinstance(found, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    try:
        return min(msgspec.convert(value, datetime), LATEST)
    except (msgspec.ValidationError, TypeError):
        return None
