"""What happened in a demo, noted while it happens, and the summary of it. All sums are exact."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from forebay.embedded.api import kinds
from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.store import Store
from forebay.engine.views import Views
from forebay.kube.decoders import ADDED
from forebay.kube.events import CONTROLLER
from forebay.kube.view import Deleted
from forebay.kube.view import ObjectChange as Seen
from forebay.model.quantities import GpuHours, Gpus, Usd, UsdPerHour
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.reporting.machines import FREE, cost, decimal
from forebay.simulate.power import PowerCall, PowerWorld


class RecordedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that Forebay said: the text of one of its events."""

    at: datetime
    kind: str
    name: str
    uid: str
    warning: bool
    reason: str
    sentence: str
    #: It is about another object (a machine), and was only repeated here.
    repeated: bool


class PodLife(msgspec.Struct, kw_only=True):
    """One pod's."""

    name: str
    gpus: Gpus
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    node: str | None = None


class DemoRecorder:
    """Listens to the cluster from its making on."""

    def __init__(self, store: Store, views: Views) -> None:
        #: By uid. Pods that have been deleted meanwhile included.
        self.pods: dict[str, PodLife] = {}
        #: Records by uid, in their last state.
        self.records: dict[str, Any] = {}
        self.words: list[RecordedEvent] = []
        #: To each pod, by uid.
        self.last_word: dict[str, RecordedEvent] = {}
        self.listeners: list[Callable[[RecordedEvent], None]] = []
        store.subscribe(kinds.EVENT_KIND, self._heard)
        views.pods.subscribe(self._saw_pod)
        views.instances.subscribe(self._saw_record)

    def _heard(self, change: StoredChange) -> None:
        event = change.new
        if change.type != ADDED or event.get("reportingComponent") != CONTROLLER:
            return
        about = event["involvedObject"]
        word = RecordedEvent(
            at=datetime.fromisoformat(event["eventTime"]),
            kind=about["kind"],
            name=about["name"],
            uid=about.get("uid", ""),
            warning=event["type"] == "Warning",
            reason=event["reason"],
            sentence=event.get("message", ""),
            repeated="related" in event,
        )
        if word.kind == "Pod":
            self.last_word[word.uid] = word
        if word.kind in _TOLD and not word.repeated:
            self.words.append(word)
            for listener in self.listeners:
                listener(word)

    def _saw_pod(self, change: "Seen[Pod]") -> None:
        pod = change.last if isinstance(change, Deleted) else change.new
        if not pod.shape.gpus():
            return
        life = self.pods.setdefault(pod.uid, PodLife(name=pod.name, gpus=pod.shape.gpus(), created=pod.created))
        life.node, life.started = pod.node or life.node, pod.started or life.started
        life.finished = pod.finished or life.finished

    def _saw_record(self, change: Any) -> None:
        record = change.last if isinstance(change, Deleted) else change.new
        self.records[record.uid] = record


#: Whose events make the story; pools, classes and nodes repeat it.
_TOLD: Final = frozenset({"GPUInstance", "Pod"})


class Unserved(msgspec.Struct, frozen=True, kw_only=True):
    pod: str
    gpus: int
    reason: str
    sentence: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Money in dollars, exact where the name says so; times in seconds."""

    seed: int
    complete: bool
    seconds: float
    pods: int
    served: int
    unserved: list[Unserved]
    wait_median_s: float | None
    wait_p95_s: float | None
    wait_longest_s: float | None
    machines: int
    switched_on: int
    switched_off: int
    #: Both must be 0.
    switched_off_in_use: int
    switched_on_twice: int
    gpu_hours_used: str
    gpu_hours_powered: str
    #: While machines drew power, as their own meters say; and as Forebay's records say, which count from before the
    #: first call until proof of absence.
    cost: str
    cost_exact: str
    cost_on_record: str
    cost_on_record_exact: str
    #: Of all machines, left on for all of the time.
    always_on_cost: str
    always_on_cost_exact: str


def summary(chronicle: DemoRecorder, world: PowerWorld, *, seed: int, begun: datetime, now: datetime) -> Summary:
    lives = chronicle.pods
    waits = sorted(life.started - life.created for life in lives.values() if life.started is not None)
    unserved = [_unserved(life, chronicle.last_word.get(uid)) for uid, life in lives.items() if life.started is None]
    asked = [call.asked for call in world.calls if call.acted]
    spent, always = metered(world, now), always_on(world, now - begun)
    recorded = FREE
    for record in chronicle.records.values():
        recorded += cost(record, now)
    return Summary(
        seed=seed,
        complete=all(life.finished is not None or life.started is None for life in lives.values()),
        seconds=(now - begun).total_seconds(),
        pods=len(lives),
        served=len(waits),
        unserved=sorted(unserved, key=lambda each: each.pod),
        wait_median_s=_rank(waits, 50),
        wait_p95_s=_rank(waits, 95),
        wait_longest_s=_rank(waits, 100),
        machines=len(world.machines),
        switched_on=asked.count(PowerCall.ON),
        switched_off=asked.count(PowerCall.OFF),
        switched_off_in_use=len(world.switched_off_in_use()),
        switched_on_twice=len(world.switched_on_again()),
        gpu_hours_used=decimal(used(lives.values(), now).hours),
        gpu_hours_powered=decimal(world.gpu_hours().hours),
        cost=decimal(spent.dollars),
        cost_exact=spent.exact(),
        cost_on_record=decimal(recorded.dollars),
        cost_on_record_exact=recorded.exact(),
        always_on_cost=decimal(always.dollars),
        always_on_cost_exact=always.exact(),
    )


def metered(world: PowerWorld, now: datetime) -> Usd:
    total = FREE
    for period in world.periods:
        total += UsdPerHour(world.machines[period.machine].hourly_price) * ((period.until or now) - period.since)
    return total


def always_on(world: PowerWorld, span: timedelta) -> Usd:
    total = FREE
    for machine in world.machines.values():
        total += UsdPerHour(machine.hourly_price) * span
    return total


def used(lives: Iterable[PodLife], now: datetime) -> GpuHours:
    total = GpuHours.from_microseconds(0)
    for life in lives:
        if life.started is not None:
            total += life.gpus * ((life.finished or now) - life.started)
    return total


def summary_lines(summary: Summary) -> list[tuple[str, str]]:
    """For people: a title and a sentence each."""
    span = human(timedelta(seconds=summary.seconds))
    rows = [
        ("Pods", f"{summary.served} of {summary.pods} that asked for GPUs were served, in {span} of the lab's time")
    ]
    rows += [("", f"{each.pod} ({each.gpus} GPUs) waits. {each.reason}: {each.sentence}") for each in summary.unserved]
    if summary.wait_median_s is not None and summary.wait_p95_s is not None and summary.wait_longest_s is not None:
        median, most, longest = (
            human(timedelta(seconds=wait))
            for wait in (summary.wait_median_s, summary.wait_p95_s, summary.wait_longest_s)
        )
        rows.append(("Waits", f"median {median}, 95 % at most {most}, longest {longest}"))
    used_hours, powered = (GpuHours.parse(text) for text in (summary.gpu_hours_used, summary.gpu_hours_powered))
    share = f" ({round(used_hours / powered * 100)} % in use)" if powered.hours else ""
    rows.append(("GPUs", f"{used_hours} used of {powered} powered{share}"))
    rows.append(("Power", f"{summary.switched_on} times on, {summary.switched_off} times off"))
    spent, always = (Usd.from_exact(text) for text in (summary.cost_exact, summary.always_on_cost_exact))
    saved = f": {round((1 - spent / always) * 100)} % saved" if always.dollars else ""
    rows.append(("Cost", f"{spent}; all {summary.machines} machines left on would have cost {always}{saved}"))
    return rows


def _unserved(life: PodLife, word: RecordedEvent | None) -> Unserved:
    return Unserved(
        pod=life.name,
        gpus=int(life.gpus),
        reason=word.reason if word is not None else "",
        sentence=word.sentence if word is not None else "nothing was said about it",
    )


def _rank(waits: Sequence[timedelta], percent: int) -> float | None:
    """The wait that so many per cent do not exceed (nearest rank)."""
    return waits[max(0, -(-len(waits) * percent // 100) - 1)].total_seconds() if waits else None
