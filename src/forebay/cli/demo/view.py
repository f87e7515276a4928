"""The demo's display: on a terminal machines, waiting pods, events and cost; elsewhere one line for each event."""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_workload_budget import GPUWorkloadBudget, GPUWorkloadBudgetStatus
from forebay.cli.demo.recorder import RecordedEvent, always_on, metered, rented
from forebay.cli.demo.world import Demo
from forebay.cli.output import print_line
from forebay.kube.pod_indexes import BY_NODE, PENDING_GPU
from forebay.model.quantities import GpuHours, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.spans import human
from forebay.model.workloads import Pod
from forebay.net import clock
from forebay.reconcile.machine_costs import hourly_cost
from forebay.reporting.printable import printable
from forebay.reporting.status import capacity_launching
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
#: How many waiting pods are shown at most.
_WAITING_SHOWN: Final = 5
#: How many lines of events are shown at least.
_LEAST_EVENTS: Final = 4
#: Reasons not shown: the launch starts in the instant in which CapacityNeeded is recorded.
_NOT_SHOWN: Final = frozenset({Reason.LAUNCH_STARTED})
#: Columns of the timestamp and of the gaps between columns.
_STAMP: Final = 12
#: Lines that are always shown: title, headers and blank lines.
_FRAME: Final = 12
_USED, _FREE, _OFF = "█", "░", "·"
_LABELS: Final = {"Pod": "pod", "GPUWorkloadBudget": "budget"}
_LEGEND: Final = Text(f"GPUs: {_USED} used  {_FREE} free  {_OFF} off", "dim")


class PlainView:
    """Prints one line for each event as it is recorded."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        demo.recorder.listeners.append(self._print)

    def _print(self, event: RecordedEvent) -> None:
        mark = "!" if event.warning else " "
        at = elapsed_text(self._demo, event.at)
        print_line(f"{at} {mark} {subject_label(event)}  {event.reason}: {event.sentence}")

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._demo.recorder.listeners.remove(self._print)


class LiveView:
    """Redraws one screen in place; what the terminal showed before stays above it, and the last screen stays."""

    def __init__(self, demo: Demo, speed: float) -> None:
        self._demo = demo
        self._speed = speed
        # Users may create pods in a served demo: what they write is neither markup nor an emoji.
        self._console = Console(highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def refresh(self) -> None:
        self._live.update(render(self._demo, self._speed, self._console.width, self._console.height), refresh=True)

    def close(self) -> None:
        self._live.stop()


def view(demo: Demo, speed: float) -> PlainView | LiveView:
    return LiveView(demo, speed) if sys.stdout.isatty() else PlainView(demo)


def render(demo: Demo, speed: float, width: int, height: int) -> RenderableType:
    """The whole screen."""
    now = clock.now()
    waiting = sorted(demo.views.pods.by(PENDING_GPU, True), key=lambda pod: (pod.created, pod.name))
    left = height - _FRAME - len(demo.world.machines) - min(len(waiting), _WAITING_SHOWN + 1)
    parts: list[RenderableType] = [_title(demo, speed, now), Text(), _machines(demo, now), _LEGEND, Text()]
    parts += [*map(_budget, demo.views.budgets.values()), Text()]
    parts += [_waiting(demo, waiting, now), Text()]
    parts += [_events(demo, max(_LEAST_EVENTS, left), width)]
    return Group(*parts)


def _title(demo: Demo, speed: float, now: datetime) -> Text:
    rate = UsdPerHour(0)
    for record in demo.views.instances.values():
        rate += hourly_cost(record)
    spent, always = metered(demo.world, now) + rented(demo.markets), always_on(demo.world, now - demo.started)
    text = Text.assemble(("Forebay demo", "bold"), f"  {elapsed_text(demo, now)}  (x{speed:g})   ")
    text.append(f"{rate} now, {spent} so far", "bold green")
    return text.append(f" ({always} if all {'own machines ' if demo.markets else ''}left on)", "dim")


def _machines(demo: Demo, now: datetime) -> Table:
    table = _table("MACHINE", "GPUS", "STATE", "IN STATE", "PRICE", "PODS")
    records = {record.metadata.name: record for record in demo.views.instances.values()}
    for name, machine in demo.world.machines.items():
        pods = [pod for pod in demo.views.pods.by(BY_NODE, name) if pod.occupies_node]
        record = records.get(name)
        state = record.state if record is not None else InstanceState.GONE
        table.add_row(
            name,
            _bar(machine.gpus, pods, powered=demo.world.power(name) is not Power.OFF),
            Text("off" if state is InstanceState.GONE else state, _STYLES.get(state, "dim")),
            _time_in_state(record, now),
            str(UsdPerHour(machine.hourly_price)),
            ", ".join(sorted(pod.name for pod in pods)) or Text("-", "dim"),
        )
    for name, record in sorted(records.items()):
        if name not in demo.world.machines and record.state is not InstanceState.GONE:
            pods = [pod for pod in demo.views.pods.by(BY_NODE, record.node_name or name) if pod.occupies_node]
            offer = record.spec.offer
            table.add_row(
                name,
                _bar(offer.gpu_count if offer is not None else 0, pods, powered=True),
                Text(record.state, _STYLES.get(record.state, "dim")),
                _time_in_state(record, now),
                str(hourly_cost(record)),
                ", ".join(sorted(pod.name for pod in pods)) or Text("-", "dim"),
            )
    return table


def _budget(budget: GPUWorkloadBudget) -> Text:
    """One line: usage, quota, and how many pods wait for it."""
    status, quota = budget.status or GPUWorkloadBudgetStatus(), GpuHours.parse(budget.spec.quota.gpu_hours or 0)
    consumed = GpuHours.parse(status.consumed_gpu_hours or 0)
    text = Text.assemble(("BUDGET", "bold"), f"  {budget.metadata.name}: ")
    is_used_up = consumed >= quota
    text.append(f"{consumed} of {quota} used in the last {status.window or '1h'}", "yellow" if is_used_up else "")
    if status.held_pods:
        text.append(f"; {status.held_pods} {'pod waits' if status.held_pods == 1 else 'pods wait'} for room", "yellow")
    return text


def _bar(gpus: int, pods: Iterable[Pod], *, powered: bool) -> Text:
    """One character for each GPU: used, free or off."""
    if not powered:
        return Text(_OFF * gpus, "dim")
    used = min(gpus, sum(int(pod.shape.gpus()) for pod in pods))
    return Text.assemble((_USED * used, "green"), (_FREE * (gpus - used), "yellow"))


def _time_in_state(record: GPUInstance | None, now: datetime) -> str:
    if record is None or record.status is None or record.status.since is None:
        return ""
    return "" if record.state is InstanceState.GONE else human(now - record.status.since)


def _waiting(demo: Demo, waiting: list[Pod], now: datetime) -> RenderableType:
    if not waiting:
        return Text("No pod is waiting for a GPU.", "dim")
    table = _table("WAITING POD", "GPUS", "AGE", "REASON")
    for pod in waiting[:_WAITING_SHOWN]:
        event = demo.recorder.last_pod_event.get(pod.uid)
        last_event = f"{event.reason}: {event.sentence}" if event is not None else "the operator has not decided yet"
        why = capacity_launching(pod, demo.views.instances.values(), now) or pod.capacity or last_event
        table.add_row(pod.name, str(int(pod.shape.gpus())), human(now - pod.created), printable(why))
    if len(waiting) > _WAITING_SHOWN:
        table.add_row(f"and {len(waiting) - _WAITING_SHOWN} more", "", "", "")
    return table


def _events(demo: Demo, lines: int, width: int) -> Table:
    """Events, the newest first: a terminal that is too small crops the screen at the bottom."""
    table = _table("TIME", "OBJECT", "EVENT", folds=True)
    latest = [event for event in reversed(demo.recorder.events) if event.reason not in _NOT_SHOWN][:lines]
    columns = max(1, width - _STAMP - max((len(subject_label(event)) for event in latest), default=0))
    for event in latest:
        lines -= 1 + len(f"{event.reason}: {event.sentence}") // columns
        if lines < 0:
            break
        reason = Text(event.reason, "yellow" if event.warning else "cyan")
        table.add_row(
            elapsed_text(demo, event.at),
            subject_label(event),
            reason.append(f": {printable(event.sentence)}", "default"),
        )
    return table


def _table(*titles: str, folds: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, title in enumerate(titles, 1):
        # Only the last column may be shortened, or folded.
        last = number == len(titles)
        table.add_column(title, no_wrap=not (last and folds), overflow="ellipsis", ratio=1 if last else None)
    table.expand = True
    return table


def subject_label(event: RecordedEvent) -> str:
    """The object of an event as the demo names it."""
    return f"{_LABELS[event.kind]} {event.name}" if event.kind in _LABELS else event.name


def elapsed_text(demo: Demo, moment: datetime) -> str:
    """Simulated time since the demo started: `1:02:03`."""
    seconds = int(max(timedelta(0), moment - demo.started).total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
