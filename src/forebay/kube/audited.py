"""Decoders for the audit of budgets, apart from those of the informers: requests and container times of pods, and when
somebody changed what a budget selects.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import msgspec

from forebay.budgets.audit import AuditedBudget, AuditedPod, ContainerTimes
from forebay.kube.decoders import ObjectDecoder
from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
from forebay.kube.resources import Resource
from forebay.kube.wire_metadata import WireMetadata
from forebay.model.notation import Quantity

_ENDED: Final = frozenset({"Succeeded", "Failed"})
#: A status shows the present and the last run of a container: of one that restarted more often, runs are missing.
_SHOWN_RESTARTS: Final = 1
_THOUSANDTH: Final = 10**6


class _ManagedFields(msgspec.Struct, rename="camel"):
    time: datetime | None = None
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class _Meta(WireMetadata):
    managed_fields: list[_ManagedFields] | None = None


class _Resources(msgspec.Struct):
    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None

    def amounts(self) -> dict[str, int]:
        """Billionths by resource."""
        asked = (self.limits or {}) | (self.requests or {})
        return {name: Quantity.parse(amount).nano for name, amount in asked.items()}


class _Container(msgspec.Struct, rename="camel"):
    resources: _Resources = msgspec.field(default_factory=_Resources)
    restart_policy: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    overhead: dict[str, str | int] | None = None
    resources: _Resources | None = None
    resource_claims: list[msgspec.Raw] | None = None


class _Times(msgspec.Struct, rename="camel"):
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(msgspec.Struct):
    running: _Times | None = None
    terminated: _Times | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    state: _State = msgspec.field(default_factory=_State)
    last_state: _State = msgspec.field(default_factory=_State)
    restart_count: int = 0


class _Condition(msgspec.Struct):
    type: str
    status: str


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None

    def containers(self) -> list[_ContainerStatus]:
        return [*(self.init_container_statuses or ()), *(self.container_statuses or ())]


class _Budget(msgspec.Struct):
    metadata: _Meta


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


class _OwnedMeta(msgspec.Struct):
    labels: Any = msgspec.field(default=None, name="f:labels")


class _OwnedSpec(msgspec.Struct):
    selector: Any = msgspec.field(default=None, name="f:selector")
    containers: Any = msgspec.field(default=None, name="f:containers")


class _Owned(msgspec.Struct):
    """Fields that one writer has set, as far as the audit looks at them."""

    metadata: _OwnedMeta = msgspec.field(default_factory=_OwnedMeta, name="f:metadata")
    spec: _OwnedSpec = msgspec.field(default_factory=_OwnedSpec, name="f:spec")


_owned = msgspec.json.Decoder(_Owned)


def _build(pod: _Pod) -> AuditedPod:
    meta, status = pod.metadata, pod.status
    runs = tuple(_runs(status.containers()))
    ended = status.phase in _ENDED
    conclusive = (
        not pod.spec.resource_claims
        and not _changed(meta)
        and all(each.restart_count <= _SHOWN_RESTARTS for each in status.containers())
        # The clock of the node is behind that of the API server.
        and all(run.start >= meta.creation_timestamp for run in runs)
        # Nobody has reported the end of a container of an ended pod, nor will: its node is lost.
        and (not ended or all(run.end is not None for run in runs))
        # A node that is lost, perhaps since long, or containers between two runs.
        and (ended or not any(each.type == "Ready" and each.status == "False" for each in status.conditions or ()))
    )
    return AuditedPod(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        requests=_requests(pod.spec),
        runs=runs,
        ended=ended,
        conclusive=conclusive,
    )


def _runs(containers: Iterable[_ContainerStatus]) -> Iterator[ContainerTimes]:
    for container in containers:
        for state in (container.state, container.last_state):
            times = state.running or state.terminated
            if times is not None and times.started_at is not None:
                yield ContainerTimes(times.started_at, times.finished_at)


def _changed(meta: _Meta) -> bool:
    """Whether somebody may have changed labels or requests after the creation: the API server notes every writer."""
    return any(
        each.subresource == "resize" or owned.metadata.labels is not None or owned.spec.containers is not None
        for each, owned in _later_writers(meta)
    )


def _later_writers(meta: _Meta) -> Iterator[tuple[_ManagedFields, _Owned]]:
    for each in meta.managed_fields or ():
        if each.time is not None and each.time > meta.creation_timestamp:
            yield each, _owned.decode(each.fields_v1)


def _requests(spec: _Spec) -> dict[str, int]:
    """Requests in thousandths as kube-scheduler reserves them (KEP-753), resource by resource."""
    names = {name for each in (*spec.containers, *(spec.init_containers or ())) for name in each.resources.amounts()}
    own = spec.resources.amounts() if spec.resources is not None else {}
    overhead = {name: Quantity.parse(amount).nano for name, amount in (spec.overhead or {}).items()}
    found = {}
    for name in names | own.keys():
        sidecars = peak = 0
        for each in spec.init_containers or ():
            amount = each.resources.amounts().get(name, 0)
            if each.restart_policy == "Always":
                sidecars += amount
                amount = 0
            peak = max(peak, sidecars + amount)
        together = sidecars + sum(each.resources.amounts().get(name, 0) for each in spec.containers)
        reserved = own.get(name, max(together, peak)) + overhead.get(name, 0)
        found[name] = -(-reserved // _THOUSANDTH)
    return found


AUDITED_PODS: Final = Resource(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    namespaced=True,
    type=AuditedPod,
    make_decoder=lambda: ObjectDecoder(_Pod, _build),
)


def _build_budget(budget: _Budget) -> AuditedBudget:
    meta = budget.metadata
    changes = [each.time for each, owned in _later_writers(meta) if owned.spec.selector is not None]
    return AuditedBudget(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        created=meta.creation_timestamp,
        selector_changed=max((each for each in changes if each is not None), default=None),
    )


AUDITED_BUDGETS: Final = Resource(
    group=GPU_WORKLOAD_BUDGETS.group,
    version=GPU_WORKLOAD_BUDGETS.version,
    plural=GPU_WORKLOAD_BUDGETS.plural,
    kind=GPU_WORKLOAD_BUDGETS.kind,
    namespaced=True,
    type=AuditedBudget,
    make_decoder=lambda: ObjectDecoder(_Budget, _build_budget),
)
