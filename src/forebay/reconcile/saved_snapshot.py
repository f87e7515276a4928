"""Snapshots as files: the input of a tick, to be inspected and planned for elsewhere.

Orphans are not saved: every operator
starts without any. Of the budgets, usage over time is saved, and which of the running pods has used how much: the tick
that is replayed decides the same, also whom a budget evicts or pauses.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.budget_accounts import BudgetKey
from forebay.demand.reservation import Reservations
from forebay.demand.scheduler_waits import SchedulerWaits
from forebay.model.encoding import dec_hook, enc_hook
from forebay.model.nodes import Node
from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.quantities import Resources
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import PodShape
from forebay.offload.departure import PortablePod
from forebay.reconcile.saved_budgets import SavedBudgets, loaded_budgets, saved_budgets
from forebay.reconcile.saved_pods import NotASnapshot, SavedPod, SavedShapes, loaded_pods
from forebay.reconcile.snapshot import Memory, OperatorRules, Snapshot

FORMAT: Final = "forebay.dev/snapshot.v1"
#: Where `kubectl apply` keeps the whole object as it was written.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: URLs of machines, whose path may be secret as well.
_POWER_ENDPOINTS: Final = ("scaleUpEndpoint", "scaleDownEndpoint", "statusEndpoint")

_O = TypeVar("_O", GPUNodeClass, GPUNodePool, NodeProvisioner)


class _Unusable(msgspec.Struct):
    key: SourceKey
    why: str


class _UnreadablePod(msgspec.Struct):
    pod: SavedPod
    why: str


class _SavedSnapshot(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: str
    now: datetime
    cluster: str = ""
    classes: tuple[GPUNodeClass, ...] = ()
    pools: tuple[GPUNodePool, ...] = ()
    provisioners: tuple[NodeProvisioner, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    nodes: Mapping[str, Node] = {}
    shapes: tuple[PodShape, ...] = ()
    pending: tuple[SavedPod, ...] = ()
    used: Mapping[str, Resources] = {}
    ports: Mapping[str, frozenset[tuple[int, str]]] = {}
    daemons: tuple[int, ...] = ()
    last_seen_nodes: Mapping[str, Node] = {}
    pods_by_node: Mapping[str, tuple[SavedPod, ...]] = {}
    container_pods: tuple[SavedPod, ...] = ()
    portable: Mapping[str, PortablePod] = {}
    stranded: tuple[SavedPod, ...] = ()
    unread: frozenset[str] = frozenset()
    remote_prevented: str | None = None
    records: tuple[GPUInstance, ...] = ()
    signing_requests: tuple[SigningRequest, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    sources: tuple[Source, ...] = ()
    unusable: tuple[_Unusable, ...] = ()
    claimed_twice: Mapping[str, Mapping[str, str]] = {}
    budgets: tuple[GPUWorkloadBudget, ...] = ()
    unserved_budgets: tuple[GPUWorkloadBudget, ...] = ()
    budget_state: SavedBudgets | None = None
    gate_missing: str | None = None
    unrecorded_cost: frozenset[str] = frozenset()
    unreadable_pools: frozenset[tuple[str, str]] = frozenset()
    unreadable_classes: frozenset[str] = frozenset()
    unreadable_provisioners: frozenset[str] = frozenset()
    unreadable_records: Mapping[str, str] = {}
    unreadable_pods: tuple[_UnreadablePod, ...] = ()
    told_but_bound: tuple[SavedPod, ...] = ()
    pending_claims: tuple[SavedPod, ...] = ()
    intolerant: frozenset[str] = frozenset()
    #: Since when each pod (by UID) has seemed to fit on a ready node.
    fitting: Mapping[str, datetime] = {}
    scheduler_waits: SchedulerWaits = SchedulerWaits()
    #: When the status of each budget was last written.
    reported: tuple[tuple[BudgetKey, datetime], ...] = ()
    calls_in_flight: frozenset[str] = frozenset()
    rules: OperatorRules = OperatorRules()


class _Header(msgspec.Struct):
    format: str = ""


#: Fields that the file and the snapshot both have.
_COMMON: Final = tuple(
    sorted({field.name for field in msgspec.structs.fields(Snapshot)} & set(_SavedSnapshot.__struct_fields__))
)
#: Common fields that the file stores in another form.
_CONVERTED: Final = frozenset(
    {
        "pending",
        "daemons",
        "classes",
        "pools",
        "provisioners",
        "pods_by_node",
        "container_pods",
        "stranded",
        "sources",
        "unusable",
        "budget_state",
        "unreadable_pods",
        "told_but_bound",
        "pending_claims",
    }
)
_encoder = msgspec.json.Encoder(enc_hook=enc_hook, order="sorted")
_decoder = msgspec.json.Decoder(_SavedSnapshot, dec_hook=dec_hook)


def is_snapshot(data: bytes) -> bool:
    """Whether the data is a snapshot of any version, by its `format` field."""
    try:
        return msgspec.json.decode(data, type=_Header).format.startswith("forebay.dev/snapshot")
    except (msgspec.MsgspecError, RecursionError):
        return False


def save_snapshot(snapshot: Snapshot) -> bytes:
    shapes = SavedShapes()
    saved = _SavedSnapshot(
        format=FORMAT,
        pending=shapes.pods(snapshot.pending),
        daemons=tuple(map(shapes.index, snapshot.daemons)),
        pods_by_node={name: shapes.pods(pods) for name, pods in snapshot.pods_by_node.items()},
        container_pods=shapes.pods(snapshot.container_pods.values()),
        stranded=shapes.pods(snapshot.stranded),
        sources=tuple(snapshot.sources.values()),
        unusable=tuple(_Unusable(key, why) for key, why in snapshot.unusable.items()),
        unreadable_pods=tuple(_UnreadablePod(shapes.pods([pod])[0], why) for pod, why in snapshot.unreadable_pods),
        told_but_bound=shapes.pods(snapshot.told_but_bound),
        pending_claims=shapes.pods(snapshot.pending_claims),
        fitting=snapshot.memory.reservations.fitting,
        scheduler_waits=snapshot.memory.scheduler_waits,
        reported=tuple(sorted(snapshot.memory.reported.items())),
        budget_state=None if snapshot.budget_state is None else saved_budgets(snapshot.budget_state, shapes),
        classes=tuple(map(_without_credentials, snapshot.classes)),
        pools=tuple(map(_without_credentials, snapshot.pools)),
        provisioners=tuple(map(_without_credentials, snapshot.provisioners)),
        **{name: getattr(snapshot, name) for name in _COMMON if name not in _CONVERTED},
    )
    return _encoder.encode(replace(saved, shapes=tuple(shapes.found)))


def load_snapshot(data: bytes) -> Snapshot:
    """The snapshot in the file. Raises `NotASnapshot`."""
    try:
        version = msgspec.json.decode(data, type=_Header).format
        if version != FORMAT:
            raise NotASnapshot(f'its format is "{version}", and this release reads {FORMAT}')
        saved = _decoder.decode(data)
        shapes = saved.shapes
        return Snapshot(
            classes=saved.classes,
            pools=saved.pools,
            provisioners=saved.provisioners,
            pending=loaded_pods(saved.pending, shapes),
            daemons=tuple(shapes[index] for index in saved.daemons),
            pods_by_node={name: loaded_pods(pods, shapes) for name, pods in saved.pods_by_node.items()},
            container_pods={pod.uid: pod for pod in loaded_pods(saved.container_pods, shapes)},
            stranded=loaded_pods(saved.stranded, shapes),
            sources={source.key: source for source in saved.sources},
            unusable={each.key: each.why for each in saved.unusable},
            unreadable_pods=tuple((loaded_pods((each.pod,), shapes)[0], each.why) for each in saved.unreadable_pods),
            told_but_bound=loaded_pods(saved.told_but_bound, shapes),
            pending_claims=loaded_pods(saved.pending_claims, shapes),
            memory=Memory(
                reservations=Reservations(fitting=saved.fitting),
                scheduler_waits=saved.scheduler_waits,
                reported=dict(saved.reported),
            ),
            budget_state=None
            if saved.budget_state is None
            else loaded_budgets(saved.budget_state, saved.budgets, saved.now, shapes),
            **{name: getattr(saved, name) for name in _COMMON if name not in _CONVERTED},
        )
    except (msgspec.MsgspecError, IndexError, RecursionError) as error:
        raise NotASnapshot(f"the snapshot is incomplete or damaged: {error}") from error


def _without_credentials(found: _O) -> _O:
    """The object without what may be secret in its URLs, and without the copy of itself that `kubectl apply` keeps in
    an annotation: a saved snapshot is sent to other people.
    """
    public = _public(msgspec.to_builtins(found, enc_hook=enc_hook))
    return msgspec.convert(public, type(found), dec_hook=dec_hook)


def _public(value: Any, field: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _public(part, key) for key, part in value.items() if key != _LAST_APPLIED}
    if isinstance(value, list | tuple):
        return [_public(part, field) for part in value]
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return _bare_url(value, with_path=field not in _POWER_ENDPOINTS)
    return value


def _bare_url(url: str, *, with_path: bool) -> str:
    """The URL without user name, password, query and fragment."""
    scheme, separator, rest = url.partition("://")
    # After the last `@`, wherever it is: a password may hold every other delimiter.
    end = "[?#]" if with_path else "[/?#]"
    return f"{scheme}{separator}{re.split(end, rest.rpartition('@')[2], maxsplit=1)[0]}"
