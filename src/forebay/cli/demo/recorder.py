"""`DemoRecorder`: records events, pods and GPUInstances of a demo while it runs. `summary`: its result, exact."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final

import msgspec

from forebay.api.gpu_instance import GPUInstance
from forebay.embedded.api import kinds
from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.store import Store
from forebay.engine.views import Views
from forebay.kube.decoders import ADDED
from forebay.kube.events import CONTROLLER
from forebay.kube.view import Deleted, ObjectChange
from forebay.model.counts import counted
from forebay.model.quantities import GpuHours, Gpus, Usd, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.reporting.machines import NO_COST, cost, decimal
from forebay.simulate.lab import BUDGET_TEAM
from forebay.simulate.market import Market
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import PowerCall, PowerWorld


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the operator."""

    at: datetime
    kind: str
    name: str
    uid: str
    warning: bool
    reason: str
    sentence: str
    #: A copy of an event about another object (a GPUInstance).
    is_copy: bool


class PodTimes(msgspec.Struct, kw_only=True):
    """When one pod was created, started and finished."""

    name: str
    gpus: Gpus
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    #: Whether the pod had to wait for its budget.
    held: bool = False


class DemoRecorder:
    """Records a demo from its start. `listeners` are called with each event as it is recorded."""

    def __init__(self, store: Store, views: Views) -> None:
        #: GPU pods by UID, those that were deleted included.
        self.pods: dict[str, PodTimes] = {}
        #: GPUInstances by UID, in their last state.
        self.records: dict[str, GPUInstance] = {}
        #: On GPUInstances, pods and budgets, oldest first.
        self.events: list[RecordedEvent] = []
        #: The last event on each pod, by the pod's UID.
        self.last_pod_event: dict[str, RecordedEvent] = {}
        self.listeners: list[Callable[[RecordedEvent], None]] = []
        store.subscribe(kinds.EVENT_KIND, self._on_event)
        views.pods.subscribe(self._on_pod)
        views.instances.subscribe(self._on_record)

    def _on_event(self, change: StoredChange) -> None:
        stored = change.new
        if change.type != ADDED or stored.get("reportingComponent") != CONTROLLER:
            return
        about = stored["involvedObject"]
        event = RecordedEvent(
            at=datetime.fromisoformat(stored["eventTime"]),
            kind=about["kind"],
            name=about["name"],
            uid=about.get("uid", ""),
            warning=stored["type"] == "Warning",
            reason=stored["reason"],
            sentence=stored.get("message", ""),
            is_copy="related" in stored,
        )
        if event.kind == "Pod":
            self.last_pod_event[event.uid] = event
            if event.reason == Reason.HELD_BY_BUDGET and event.uid in self.pods:
                self.pods[event.uid].held = True
        if event.kind in _RECORDED_KINDS and not event.is_copy:
            self.events.append(event)
            for listener in self.listeners:
                listener(event)

    def _on_pod(self, change: ObjectChange[Pod]) -> None:
        pod = change.last if isinstance(change, Deleted) else change.new
        if not pod.shape.gpus():
            return
        times = self.pods.setdefault(pod.uid, PodTimes(name=pod.name, gpus=pod.shape.gpus(), created=pod.created))
        times.started = pod.started or times.started
        times.finished = pod.finished or times.finished

    def _on_record(self, change: ObjectChange[GPUInstance]) -> None:
        record = change.last if isinstance(change, Deleted) else change.new
        self.records[record.uid] = record


#: Kinds whose events are recorded. Events on pools, classes and nodes are copies of these.
_RECORDED_KINDS: Final = frozenset({"GPUInstance", "Pod", "GPUWorkloadBudget"})


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that never ran, with the operator's last event on it."""

    pod: str
    gpus: int
    reason: str
    sentence: str


class CloudUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one cloud was used for. Dollars as exact fractions."""

    cloud: str
    rented: int
    #: Of these, containers.
    containers: int
    reclaimed: int
    #: Launches that found no capacity.
    refused: int
    #: By the cloud's own bill, and by Forebay's GPUInstances.
    bill_exact: str
    on_record_exact: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a demo. Money in dollars (`_exact`: as an exact fraction), times in seconds."""

    seed: int
    complete: bool
    seconds: float
    pods: int
    served: int
    unserved: list[Unserved]
    wait_median_s: float | None
    wait_p95_s: float | None
    wait_longest_s: float | None
    #: Pods that waited for their budget, which the figures above leave out.
    held: int
    held_longest_s: float | None
    machines: int
    powered_on: int
    powered_off: int
    #: Errors of the operator: both must be 0.
    powered_off_in_use: int
    powered_on_twice: int
    gpu_hours_used: str
    gpu_hours_powered: str
    #: Cost of the time in which machines drew power; and cost by the GPUInstances, which are billed from before the
    #: first call until absence is proven.
    cost: str
    cost_exact: str
    cost_on_record: str
    cost_on_record_exact: str
    #: What all machines would have cost if left on for the whole time.
    always_on_cost: str
    always_on_cost_exact: str
    #: What clouds were used, where there are some.
    clouds: list[CloudUse]


def demo_summary(
    recorder: DemoRecorder,
    world: PowerWorld,
    markets: Sequence[Market] = (),
    *,
    seed: int,
    started: datetime,
    now: datetime,
) -> Summary:
    """The result of a demo that ran from `started` to `now`."""
    pods = recorder.pods
    started_pods = [pod for pod in pods.values() if pod.started is not None]
    waits = _waits(pod for pod in started_pods if not pod.held)
    held = _waits(pod for pod in started_pods if pod.held)
    unserved = [_unserved(pod, recorder.last_pod_event.get(uid)) for uid, pod in pods.items() if pod.started is None]
    calls = [call.asked for call in world.calls if call.acted]
    spent, always = metered(world, now), always_on(world, now - started)
    recorded = NO_COST
    for record in recorder.records.values():
        recorded += cost(record, now)
    return Summary(
        seed=seed,
        complete=all(pod.finished is not None or pod.started is None for pod in pods.values()),
        seconds=(now - started).total_seconds(),
        pods=len(pods),
        served=len(started_pods),
        unserved=sorted(unserved, key=lambda each: each.pod),
        wait_median_s=_percentile(waits, 50),
        wait_p95_s=_percentile(waits, 95),
        wait_longest_s=_percentile(waits, 100),
        held=len(held),
        held_longest_s=_percentile(held, 100),
        machines=len(world.machines),
        powered_on=calls.count(PowerCall.ON),
        powered_off=calls.count(PowerCall.OFF),
        powered_off_in_use=len(world.powered_off_in_use()),
        powered_on_twice=len(world.powered_on_twice()),
        gpu_hours_used=decimal(used(pods.values(), now).hours),
        gpu_hours_powered=decimal(sum((_rented_hours(each, now) for each in markets), world.gpu_hours()).hours),
        cost=decimal(spent.dollars),
        cost_exact=spent.exact(),
        cost_on_record=decimal(recorded.dollars),
        cost_on_record_exact=recorded.exact(),
        always_on_cost=decimal(always.dollars),
        always_on_cost_exact=always.exact(),
        clouds=[_cloud_use(market, recorder, now) for market in markets],
    )


def _rented_hours(market: Market, now: datetime) -> GpuHours:
    total = GpuHours.from_microseconds(0)
    for each in market.instances.values():
        total += Gpus(each.sku.gpus) * ((each.line.ended or now) - each.line.created)
    return total


def rented(markets: Iterable[Market]) -> Usd:
    """What clouds charge."""
    return sum((Usd.from_exact(str(market.bill())) for market in markets), NO_COST)


def _cloud_use(market: Market, recorder: DemoRecorder, now: datetime) -> CloudUse:
    recorded = NO_COST
    for record in recorder.records.values():
        if record.spec.node_class_name == market.name:
            recorded += cost(record, now)
    launches = market.calls_of(MarketCall.LAUNCH)
    return CloudUse(
        cloud=market.name,
        rented=len(market.instances),
        containers=sum(each.order.container is not None for each in market.instances.values()),
        reclaimed=sum(each.reclaim_at is not None for each in market.instances.values()),
        refused=sum(call.status == HTTPStatus.CONFLICT for call in launches),
        bill_exact=str(market.bill()),
        on_record_exact=recorded.exact(),
    )


def metered(world: PowerWorld, now: datetime) -> Usd:
    """Cost of the time in which machines drew power."""
    total = NO_COST
    for period in world.periods:
        total += UsdPerHour(world.machines[period.machine].hourly_price) * ((period.until or now) - period.since)
    return total


def always_on(world: PowerWorld, span: timedelta) -> Usd:
    """Cost of all machines if left on for that long."""
    total = NO_COST
    for machine in world.machines.values():
        total += UsdPerHour(machine.hourly_price) * span
    return total


def used(pods: Iterable[PodTimes], now: datetime) -> GpuHours:
    """GPU-hours in which pods ran."""
    total = GpuHours.from_microseconds(0)
    for pod in pods:
        if pod.started is not None:
            total += pod.gpus * ((pod.finished or now) - pod.started)
    return total


def summary_rows(summary: Summary) -> list[tuple[str, str]]:
    """The summary for people: rows of a title and a sentence."""
    span = human(timedelta(seconds=summary.seconds))
    rows = [("Pods", f"{summary.served} of {summary.pods} GPU pods ran, in {span} of simulated time")]
    rows += [
        ("", f"{each.pod} ({counted(each.gpus, 'GPU')}) did not run. {each.reason}: {each.sentence}")
        for each in summary.unserved
    ]
    if summary.wait_median_s is not None and summary.wait_p95_s is not None and summary.wait_longest_s is not None:
        median, p95, longest = (
            human(timedelta(seconds=wait))
            for wait in (summary.wait_median_s, summary.wait_p95_s, summary.wait_longest_s)
        )
        rows.append(("Waits", f"median {median}, p95 {p95}, longest {longest}"))
    if summary.held_longest_s is not None:
        longest = human(timedelta(seconds=summary.held_longest_s))
        held = f"{counted(summary.held, 'pod')} of {BUDGET_TEAM}, not among these waits"
        rows.append(("Budget", f"{held}, ran when the team's budget had room again, after up to {longest}"))
    used_hours, powered = (GpuHours.parse(text) for text in (summary.gpu_hours_used, summary.gpu_hours_powered))
    share = f" ({round(used_hours / powered * 100)} % in use)" if powered.hours else ""
    on = "powered on or rented" if summary.clouds else "powered on"
    rows.append(("GPUs", f"{used_hours} used of {powered} {on}{share}"))
    rows.append(("Power", f"on {summary.powered_on}x, off {summary.powered_off}x"))
    spent, always = (Usd.from_exact(text) for text in (summary.cost_exact, summary.always_on_cost_exact))
    saved = f": {round((1 - spent / always) * 100)} % saved" if always.dollars else ""
    left_on = f"{counted(summary.machines, 'machine')} left on would have cost {always}{saved}"
    rows.append(("Own machines" if summary.clouds else "Cost", f"{spent}; {left_on}"))
    for each in summary.clouds:
        bill, ours = Usd.from_exact(each.bill_exact), Usd.from_exact(each.on_record_exact)
        same = "as Forebay counted" if bill == ours else f"Forebay counted {ours}"
        what = "container" if each.rented and each.rented == each.containers else "machine"
        refused = counted(each.refused, "launch", "launches")
        told = f"{counted(each.rented, what)} rented ({each.reclaimed} reclaimed), {refused} without capacity"
        rows.append((f"Cloud {each.cloud}", f"{told}: {bill}, {same}"))
    if summary.clouds:
        bills = sum((Usd.from_exact(each.bill_exact) for each in summary.clouds), spent)
        rows.append(("Cost", f"{bills} in all"))
    return rows


def _waits(pods: Iterable[PodTimes]) -> list[timedelta]:
    return sorted(pod.started - pod.created for pod in pods if pod.started is not None)


def _unserved(pod: PodTimes, event: RecordedEvent | None) -> Unserved:
    return Unserved(
        pod=pod.name,
        gpus=int(pod.gpus),
        reason=event.reason if event is not None else "",
        sentence=event.sentence if event is not None else "The operator recorded no event about this pod.",
    )


def _percentile(waits: Sequence[timedelta], percent: int) -> float | None:
    """Nearest-rank percentile in seconds; None without waits."""
    return waits[max(0, -(-len(waits) * percent // 100) - 1)].total_seconds() if waits else None
