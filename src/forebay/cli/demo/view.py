"""The demo on a terminal: machines, who waits, what Forebay decided and why, and the money. Elsewhere: plain lines."""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.cli.demo.recorder import RecordedEvent, always_on, metered
from forebay.cli.demo.world import Demo
from forebay.kube.pods import BY_NODE, PENDING_GPU
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.reconcile.reports import hourly_cost
from forebay.reporting.status import on_its_way
from forebay.simulate.power import Power

_STYLES: Final = {
    InstanceState.REQUESTED: "cyan",
    InstanceState.LAUNCHING: "cyan",
    InstanceState.LAUNCHED: "cyan",
    InstanceState.JOINED: "cyan",
    InstanceState.READY: "green",
    InstanceState.DRAINING: "yellow",
    InstanceState.TERMINATING: "yellow",
}
#: Pods that wait, at most.
_WAITING_SHOWN: Final = 5
#: Lines of decisions, at least.
_LEAST_WORDS: Final = 4
#: Follows what was decided in the same instant.
_NOT_SHOWN: Final = frozenset({Reason.LAUNCH_STARTED})
#: Columns before what was decided about, and between.
_STAMP: Final = 12
#: Lines that are always there: titles, money, machines' header and blank lines between.
_FRAME: Final = 9
_USED, _FREE, _OFF = "█", "░", "·"


class PlainView:
    """One line for each decision, as it is made."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        demo.chronicle.listeners.append(self._say)

    def _say(self, word: RecordedEvent) -> None:
        mark = "!" if word.warning else " "
        print(f"{since(self._demo, word.at)} {mark} {subject(word)}  {word.reason}: {word.sentence}", flush=True)

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._demo.chronicle.listeners.remove(self._say)


class LiveView:
    """A picture that is drawn anew; what stood above it stays."""

    def __init__(self, demo: Demo, speed: float) -> None:
        self._demo = demo
        self._speed = speed
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._live.start()

    def refresh(self) -> None:
        self._live.update(picture(self._demo, self._speed, self._console.width, self._console.height), refresh=True)

    def close(self) -> None:
        self._live.stop()


def view(demo: Demo, speed: float) -> PlainView | LiveView:
    return LiveView(demo, speed) if sys.stdout.isatty() else PlainView(demo)


def picture(demo: Demo, speed: float, width: int, height: int) -> RenderableType:
    now = clock.now()
    waiting = sorted(demo.views.pods.by(PENDING_GPU, True), key=lambda pod: (pod.created, pod.name))
    left = height - _FRAME - len(demo.world.machines) - min(len(waiting), _WAITING_SHOWN + 1)
    parts: list[RenderableType] = [_title(demo, speed, now), Text(), _machines(demo, now), Text()]
    parts += [_waiting(demo, waiting, now), Text()]
    parts += [_words(demo, max(_LEAST_WORDS, left), width)]
    return Group(*parts)


def _title(demo: Demo, speed: float, now: datetime) -> Text:
    rate = UsdPerHour(0)
    for record in demo.views.instances.values():
        rate += hourly_cost(record)
    spent, always = metered(demo.world, now), always_on(demo.world, now - demo.begun)
    text = Text.assemble(("Forebay demo", "bold"), f"  {since(demo, now)}  (x{speed:g})   ")
    text.append(f"{rate} now, {spent} so far", "bold green")
    return text.append(f", all left on: {always}", "dim")


def _machines(demo: Demo, now: datetime) -> Table:
    table = _table("MACHINE", "GPUS", "STATE", "FOR", "PRICE", "PODS")
    records = {record.metadata.name: record for record in demo.views.instances.values()}
    for name, machine in demo.world.machines.items():
        pods = [pod for pod in demo.views.pods.by(BY_NODE, name) if pod.occupies_node]
        record = records.get(name)
        state = record.state if record is not None else InstanceState.GONE
        table.add_row(
            name,
            _bar(machine.gpus, pods, powered=demo.world.power(name) is not Power.OFF),
            Text("off" if state is InstanceState.GONE else state, _STYLES.get(state, "dim")),
            _lasted(record, now),
            str(UsdPerHour(machine.hourly_price)),
            ", ".join(sorted(pod.name for pod in pods)) or Text("-", "dim"),
        )
    return table


def _bar(gpus: int, pods: Iterable[Pod], *, powered: bool) -> Text:
    """One sign for each GPU."""
    if not powered:
        return Text(_OFF * gpus, "dim")
    used = min(gpus, sum(int(pod.shape.gpus()) for pod in pods))
    return Text.assemble((_USED * used, "green"), (_FREE * (gpus - used), "yellow"))


def _lasted(record: GPUInstance | None, now: datetime) -> str:
    if record is None or record.status is None or record.status.since is None:
        return ""
    return "" if record.state is InstanceState.GONE else human(now - record.status.since)


def _waiting(demo: Demo, waiting: list[Pod], now: datetime) -> RenderableType:
    if not waiting:
        return Text("No pod waits for a GPU.", "dim")
    table = _table("WAITING", "GPUS", "FOR", "WHY")
    for pod in waiting[:_WAITING_SHOWN]:
        word = demo.chronicle.last_word.get(pod.uid)
        said = f"{word.reason}: {word.sentence}" if word is not None else "nobody has looked at it yet"
        why = on_its_way(pod, demo.views.instances.values(), now) or said
        table.add_row(pod.name, str(int(pod.shape.gpus())), human(now - pod.created), why)
    if len(waiting) > _WAITING_SHOWN:
        table.add_row(f"and {len(waiting) - _WAITING_SHOWN} more", "", "", "")
    return table


def _words(demo: Demo, lines: int, width: int) -> Table:
    """The newest first: where the picture is too high, it is cut at its foot."""
    table = _table("AT", "DECIDED ABOUT", "WHY", folds=True)
    told = [word for word in reversed(demo.chronicle.words) if word.reason not in _NOT_SHOWN][:lines]
    room = max(1, width - _STAMP - max((len(subject(word)) for word in told), default=0))
    for word in told:
        lines -= 1 + len(f"{word.reason}: {word.sentence}") // room
        if lines < 0:
            break
        reason = Text(word.reason, "yellow" if word.warning else "cyan")
        table.add_row(since(demo, word.at), subject(word), reason.append(f": {word.sentence}", "default"))
    return table


def _table(*titles: str, folds: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(titles, 1):
        # Only the last column may be cut, or folded.
        last = number == len(titles)
        table.add_column(title, no_wrap=not (last and folds), overflow="ellipsis", ratio=1 if last else None)
    table.expand = True
    return table


def subject(word: RecordedEvent) -> str:
    return f"pod {word.name}" if word.kind == "Pod" else word.name


def since(demo: Demo, moment: datetime) -> str:
    seconds = int(max(timedelta(0), moment - demo.begun).total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
