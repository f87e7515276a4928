"""Snapshots as files: the input of a tick, to be inspected and planned for elsewhere.

Each pod shape is written once, because the many pods of a template share it. Orphans are not saved: every operator
starts without any. Of the budgets, usage over time is saved, and which of the running pods has used how much: the tick
that is replayed decides the same, also whom a budget evicts or pauses.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import asdict, replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.node_provisioner import NodeProvisioner
from forebay.budgets.accounts import Accounts, BudgetKey
from forebay.budgets.assessment import Assessor
from forebay.budgets.enforcement import EvictionBackoff, PausedJob
from forebay.budgets.ledger.ledger import Ledger, LedgerSummary
from forebay.budgets.usage import Interval
from forebay.demand.reservation import Reservations
from forebay.model.encoding import dec_hook, enc_hook
from forebay.model.nodes import Node
from forebay.model.quantities import Resources
from forebay.model.signing_requests import SigningRequest
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Owner, Phase, Pod, PodShape
from forebay.offload.departure import PortablePod
from forebay.reconcile.snapshot import BudgetState, Memory, OperatorRules, Snapshot

FORMAT: Final = "forebay.dev/snapshot.v1"


class NotASnapshot(ValueError):
    """The file is not a snapshot that this release reads; the message says why."""


class _Pod(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A pod, with the index of its shape in `_Saved.shapes`."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    created: datetime
    shape: int
    phase: Phase
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    owner: Owner | None = None
    node: str | None = None
    nominated_node: str | None = None
    deleted: datetime | None = None
    unschedulable_since: datetime | None = None
    unschedulable_message: str | None = None
    finalizers: tuple[str, ...] = ()
    started: datetime | None = None
    finished: datetime | None = None
    restarted: bool = False
    mirror: bool = False
    refusal: str | None = None
    scheduler_error_since: datetime | None = None
    capacity: str | None = None


class _Ledger(msgspec.Struct):
    #: Changes of the rate, by second. As text: they have more digits than JSON readers keep in a number.
    changes: tuple[tuple[int, str], ...]
    #: Number of pods that ended, by second.
    ends: tuple[tuple[int, int], ...]
    running: tuple[str, ...]


class _PodUsage(msgspec.Struct):
    """One interval in which a pod counted."""

    uid: str
    start: int
    #: None: it counts still.
    end: int | None
    rate: int


class _Account(msgspec.Struct):
    budget: BudgetKey
    gpu_hours: _Ledger
    dollars: _Ledger
    pods: tuple[_Pod, ...]
    #: Of these pods.
    usage: tuple[_PodUsage, ...] = ()


class _Backoff(msgspec.Struct):
    owner: str
    since: datetime
    until: datetime


class _BudgetState(msgspec.Struct, kw_only=True, omit_defaults=True):
    accounts: tuple[_Account, ...] = ()
    gated: tuple[_Pod, ...] = ()
    damages: tuple[tuple[BudgetKey, str], ...] = ()
    invalid: tuple[tuple[BudgetKey, str], ...] = ()
    rewritten: tuple[tuple[BudgetKey, str], ...] = ()
    unstored: str | None = None
    blocked: frozenset[str] = frozenset()
    backoffs: tuple[_Backoff, ...] = ()
    awaiting: frozenset[BudgetKey] = frozenset()
    paused: tuple[PausedJob, ...] = ()
    enforced: tuple[tuple[BudgetKey, datetime], ...] = ()
    pause_requested: tuple[_Pod, ...] = ()
    recorded: tuple[_Pod, ...] = ()


class _Unusable(msgspec.Struct):
    key: SourceKey
    why: str


class _UnreadablePod(msgspec.Struct):
    pod: _Pod
    why: str


class _Saved(msgspec.Struct, kw_only=True, omit_defaults=True):
    format: str
    now: datetime
    cluster: str = ""
    classes: tuple[GPUNodeClass, ...] = ()
    pools: tuple[GPUNodePool, ...] = ()
    provisioners: tuple[NodeProvisioner, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    nodes: Mapping[str, Node] = {}
    shapes: tuple[PodShape, ...] = ()
    pending: tuple[_Pod, ...] = ()
    used: Mapping[str, Resources] = {}
    ports: Mapping[str, frozenset[tuple[int, str]]] = {}
    daemons: tuple[int, ...] = ()
    last_seen_nodes: Mapping[str, Node] = {}
    pods_by_node: Mapping[str, tuple[_Pod, ...]] = {}
    container_pods: tuple[_Pod, ...] = ()
    portable: Mapping[str, PortablePod] = {}
    stranded: tuple[_Pod, ...] = ()
    unread: frozenset[str] = frozenset()
    records: tuple[GPUInstance, ...] = ()
    signing_requests: tuple[SigningRequest, ...] = ()
    sources: tuple[Source, ...] = ()
    unusable: tuple[_Unusable, ...] = ()
    claimed_twice: Mapping[str, Mapping[str, str]] = {}
    budgets: tuple[GPUWorkloadBudget, ...] = ()
    unserved_budgets: tuple[GPUWorkloadBudget, ...] = ()
    budget_state: _BudgetState | None = None
    gate_missing: str | None = None
    unrecorded_cost: frozenset[str] = frozenset()
    unreadable_pools: frozenset[tuple[str, str]] = frozenset()
    unreadable_classes: frozenset[str] = frozenset()
    unreadable_provisioners: frozenset[str] = frozenset()
    unreadable_records: Mapping[str, str] = {}
    unreadable_pods: tuple[_UnreadablePod, ...] = ()
    told_but_bound: tuple[_Pod, ...] = ()
    pending_claims: tuple[_Pod, ...] = ()
    intolerant: frozenset[str] = frozenset()
    #: Since when each pod (by UID) has seemed to fit on a ready node.
    fitting: Mapping[str, datetime] = {}
    #: When the status of each budget was last written.
    reported: tuple[tuple[BudgetKey, datetime], ...] = ()
    calls_in_flight: frozenset[str] = frozenset()
    rules: OperatorRules = OperatorRules()


class _Header(msgspec.Struct):
    format: str = ""


#: Fields that the file and the snapshot both have.
_COMMON: Final = tuple(
    sorted({field.name for field in msgspec.structs.fields(Snapshot)} & set(_Saved.__struct_fields__))
)
#: Common fields that the file stores in another form.
_CONVERTED: Final = frozenset(
    {
        "pending",
        "daemons",
        "classes",
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
_decoder = msgspec.json.Decoder(_Saved, dec_hook=dec_hook)


def is_snapshot(data: bytes) -> bool:
    """Whether the data is a snapshot of any version, by its `format` field."""
    try:
        return msgspec.json.decode(data, type=_Header).format.startswith("forebay.dev/snapshot")
    except (msgspec.MsgspecError, RecursionError):
        return False


def save_snapshot(snapshot: Snapshot) -> bytes:
    shapes = _Shapes()
    saved = _Saved(
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
        reported=tuple(sorted(snapshot.memory.reported.items())),
        budget_state=None if snapshot.budget_state is None else _saved_budgets(snapshot.budget_state, shapes),
        classes=tuple(_without_credentials(each) for each in snapshot.classes),
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
            pending=_pods(saved.pending, shapes),
            daemons=tuple(shapes[index] for index in saved.daemons),
            pods_by_node={name: _pods(pods, shapes) for name, pods in saved.pods_by_node.items()},
            container_pods={pod.uid: pod for pod in _pods(saved.container_pods, shapes)},
            stranded=_pods(saved.stranded, shapes),
            sources={source.key: source for source in saved.sources},
            unusable={each.key: each.why for each in saved.unusable},
            unreadable_pods=tuple((_pods((each.pod,), shapes)[0], each.why) for each in saved.unreadable_pods),
            told_but_bound=_pods(saved.told_but_bound, shapes),
            pending_claims=_pods(saved.pending_claims, shapes),
            memory=Memory(reservations=Reservations(fitting=saved.fitting), reported=dict(saved.reported)),
            budget_state=None
            if saved.budget_state is None
            else _loaded_budgets(saved.budget_state, saved.budgets, saved.now, shapes),
            **{name: getattr(saved, name) for name in _COMMON if name not in _CONVERTED},
        )
    except (msgspec.MsgspecError, IndexError, RecursionError) as error:
        raise NotASnapshot(f"the snapshot is incomplete or damaged: {error}") from error


def _without_credentials(node_class: GPUNodeClass) -> GPUNodeClass:
    """The class without what may be secret in the URLs of its machines: a saved snapshot is sent to other people."""
    return GPUNodeClass(
        metadata=node_class.metadata,
        spec=replace(
            node_class.spec,
            providers=tuple(
                replace(
                    entry,
                    machines=tuple(
                        replace(
                            machine,
                            scale_up_endpoint=_bare_url(machine.scale_up_endpoint),
                            scale_down_endpoint=_bare_url(machine.scale_down_endpoint),
                            status_endpoint=_bare_url(machine.status_endpoint),
                        )
                        for machine in entry.machines
                    ),
                )
                for entry in node_class.spec.providers
            ),
        ),
        status=node_class.status,
    )


def _bare_url(url: str | None) -> str | None:
    """The URL without user name, password, query and fragment."""
    if url is None:
        return None
    scheme, separator, rest = url.partition("://")
    # After the last `@`, wherever it is: a password may hold every other delimiter.
    return f"{scheme}{separator}{re.split('[?#]', rest.rpartition('@')[2], maxsplit=1)[0]}"


def _saved_budgets(state: BudgetState, shapes: "_Shapes") -> _BudgetState:
    accounts = sorted(state.accounts, key=lambda each: each.key)
    return _BudgetState(
        accounts=tuple(
            _Account(
                each.key,
                _saved_ledger(each.ledger),
                _saved_ledger(each.money),
                shapes.pods(each.pods.values()),
                tuple(_PodUsage(uid, *interval) for uid in each.pods for interval in each.ledger.intervals(uid)),
            )
            for each in accounts
        ),
        gated=shapes.pods(state.gated),
        damages=tuple(sorted(state.damages.items())),
        invalid=tuple(sorted(state.invalid.items())),
        rewritten=tuple(sorted(state.rewritten.items())),
        unstored=state.unstored,
        blocked=state.blocked,
        backoffs=tuple(_Backoff(uid, *each) for uid, each in sorted(state.backoffs.items())),
        awaiting=state.awaiting,
        paused=state.paused,
        enforced=tuple(sorted(state.enforced.items())),
        pause_requested=shapes.pods(state.pause_requested),
        recorded=shapes.pods(state.recorded),
    )


def _saved_ledger(ledger: Ledger) -> _Ledger:
    changes, ends, running = ledger.summary
    return _Ledger(tuple((at, str(part)) for at, part in changes.items()), tuple(ends.items()), running)


def _loaded_ledger(owner: str, saved: _Ledger, usage: Iterable[_PodUsage] = ()) -> Ledger:
    try:
        changes = {at: int(part) for at, part in saved.changes}
    except ValueError as error:
        raise NotASnapshot(f"the snapshot is incomplete or damaged: {error}") from error
    intervals: defaultdict[str, list[Interval]] = defaultdict(list)
    for each in usage:
        intervals[each.uid].append(Interval(each.start, each.end, each.rate))
    return Ledger.from_summary(owner, LedgerSummary(changes, dict(saved.ends), saved.running), intervals)


def _loaded_budgets(
    saved: _BudgetState, budgets: Iterable[GPUWorkloadBudget], now: datetime, shapes: tuple[PodShape, ...]
) -> BudgetState:
    by_key = {budget.key: budget for budget in budgets}
    accounts = Accounts()
    for each in saved.accounts:
        budget = by_key.get(each.budget)
        if budget is None:
            raise NotASnapshot(f"it has an account of budget {'/'.join(each.budget)} but not the budget itself")
        hours, dollars = (
            _loaded_ledger(budget.uid, each.gpu_hours, each.usage),
            _loaded_ledger(budget.uid, each.dollars),
        )
        account = accounts.open(budget, now, ledger=hours, money=dollars)
        account.pods.update((pod.uid, pod) for pod in _pods(each.pods, shapes))
    return BudgetState(
        accounts=accounts,
        assessor=Assessor(),
        gated=_pods(saved.gated, shapes),
        damages=dict(saved.damages),
        invalid=dict(saved.invalid),
        rewritten=dict(saved.rewritten),
        unstored=saved.unstored,
        blocked=saved.blocked,
        backoffs={each.owner: EvictionBackoff(each.since, each.until) for each in saved.backoffs},
        awaiting=saved.awaiting,
        paused=saved.paused,
        enforced=dict(saved.enforced),
        pause_requested=_pods(saved.pause_requested, shapes),
        recorded=_pods(saved.recorded, shapes),
    )


class _Shapes:
    """Pod shapes in the order in which they were first seen, each once."""

    def __init__(self) -> None:
        self.found: list[PodShape] = []
        self._by_content: dict[bytes, int] = {}
        self._by_id: dict[int, int] = {}

    def index(self, shape: PodShape) -> int:
        index = self._by_id.get(id(shape))
        if index is None:
            index = self._by_content.setdefault(_encoder.encode(shape), len(self.found))
            if index == len(self.found):
                self.found.append(shape)
            self._by_id[id(shape)] = index
        return index

    def pods(self, pods: Iterable[Pod]) -> tuple[_Pod, ...]:
        return tuple(_Pod(**{**asdict(pod), "shape": self.index(pod.shape)}) for pod in pods)


def _pods(saved: Iterable[_Pod], shapes: tuple[PodShape, ...]) -> tuple[Pod, ...]:
    return tuple(_pod(each, shapes) for each in saved)


def _pod(saved: _Pod, shapes: tuple[PodShape, ...]) -> Pod:
    fields: dict[str, Any] = asdict(saved)
    return Pod(**{**fields, "shape": shapes[saved.shape]})
