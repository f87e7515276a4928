"""Pages about one pod or one GPUInstance: what `forebay explain` says."""

from datetime import datetime

from forebay.reporting.explanations import Explanation
from forebay.reporting.life_lines import axis_start, life_line
from forebay.reporting.machines import MachineView
from forebay.web.markup import Content, Element, h, url
from forebay.web.plots import life_line_plot
from forebay.web.tables import Cell, dollars, per_hour, section, state_badge, table


def explanation_page(found: Explanation, now: datetime) -> list[Content]:
    return [
        h(
            "section",
            h("p", h("b", found.reason), class_="lead"),
            h("p", found.answer),
            h("p", h("b", "Next: "), found.next),
            class_="answer",
            id="answer",
        ),
        [_machine(each, now) for each in found.machines],
    ]


def _machine(machine: MachineView, now: datetime) -> Element:
    start = axis_start([machine], now)
    what = f"{machine.gpus} x {machine.gpu_type}" if machine.gpu_type else f"{machine.gpus} GPUs"
    billed = "not billed"
    if machine.billed_from is not None:
        until = f"{machine.billed_until:%Y-%m-%d %H:%M:%S}" if machine.billed_until is not None else "now"
        billed = f"billed from {machine.billed_from:%Y-%m-%d %H:%M:%S} to {until}, UTC"
    facts: list[tuple[str, Content]] = [
        ("State", [state_badge(machine.state), " ", machine.message]),
        ("What", f"{machine.type} of {machine.provider}, {what}, {per_hour(machine.price_per_hour)}"),
        ("Cost", f"{dollars(machine.cost_exact)} ({billed})"),
        ("Pool", machine.pool or "none"),
        ("Node", machine.node or "none"),
        ("Pods", _pods(machine.pods)),
        ("Launched for", _pods(machine.launched_for)),
        ("Why", machine.why or "-"),
    ]
    history = [
        (
            f"{number}",
            [
                Cell(f"{step.at:%Y-%m-%d %H:%M:%S}", number=True),
                Cell(state_badge(step.state), key=True),
                Cell(h("b", step.reason), " ", step.message, class_="why"),
            ],
        )
        for number, step in enumerate(machine.history)
    ]
    return section(
        f"GPUInstance {machine.name}",
        life_line_plot(life_line(machine, start, now), start, now, machine.name),
        h("dl", *((h("dt", title), h("dd", fact)) for title, fact in facts), class_="facts"),
        table("History", ("At (UTC)", "State", "Why"), history, empty="No transition is recorded."),
        id_=f"machine-{machine.name}",
    )


def _pods(names: list[str]) -> Content:
    if not names:
        return "none"
    return [h("a", name, href=url("pods", *name.split("/", 1)), class_="listed") for name in names]
