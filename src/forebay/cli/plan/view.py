"""A plan as text: in colour and in the width of the terminal, or in 80 columns without colour."""

import sys
import textwrap
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from forebay.cli.output import print_table
from forebay.model.counts import counted
from forebay.model.quantities import UsdPerHour
from forebay.reporting.defragmentation import PlannedMove
from forebay.reporting.plans import LeftOutPod, PlannedPurchase, PlanReport, Report, WhatIfReport
from forebay.reporting.printable import printable

_COLUMNS: Final = 80
_NAMED: Final = 4
_LEAST_SHOWN: Final = 0.001
_ZERO: Final = UsdPerHour.zero()


def console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _COLUMNS)


def show(report: Report) -> None:
    out = console()
    if report.what_if is not None:
        _show_what_if(out, report.plan, report.what_if)
    _show_plan(out, report.answer)
    _show_moves(out, report.moves)
    if report.notes:
        out.print()
    for note in report.notes:
        _print(out, f"Note: {note}", hanging=2)


def _show_plan(out: Console, plan: PlanReport) -> None:
    _print(out, plan_summary(plan), style="bold")
    if plan.machines:
        out.print()
        _show_machines(_grouped(plan.machines, key=lambda each: each.kind))
        for group in _grouped(plan.machines, key=lambda each: (each.kind, each.sentence)):
            out.print()
            _show_why(out, group)
        out.print()
        _print(out, money(plan))
    _show_pods(out, "Left out", plan.left_out, "red")
    _show_pods(out, "Fit on existing or launching capacity", plan.placed, "green")
    _show_pods(out, "Not planned for", plan.others, "dim")


def plan_summary(plan: PlanReport) -> str:
    if not plan.pods:
        return "No pod waits for a GPU: nothing would be bought."
    waiting = counted(plan.pods, "pod waits", "pods wait")
    left = f" {counted(len(plan.left_out), 'is', 'are')} left out." if plan.left_out else ""
    here = f" {counted(len(plan.placed), 'fits', 'fit')} on existing or launching capacity." if plan.placed else ""
    if not plan.machines:
        return f"{waiting} for a GPU. Nothing would be bought.{here}{left}"
    served = sum(len(each.pods) for each in plan.machines)
    machines = counted(len(plan.machines), "machine", "machines")
    whom = "it" if plan.pods == 1 else f"all {served}" if served == plan.pods else f"{served} of them"
    return f"{waiting} for a GPU. {machines} would be bought for {whom}, at {UsdPerHour(plan.price)}.{here}{left}"


def money(plan: PlanReport) -> str:
    price, cost, bound = UsdPerHour(plan.price), UsdPerHour(plan.cost), UsdPerHour(plan.bound)
    counted = (
        ""
        if cost == price
        else f" Compared at {cost}, with provider priorities, minimum billing, reclaims and unmet preferences."
    )
    if not cost:
        return f"Cost: {price}.{counted}"
    if cost <= bound:
        return f"Cost: {price}.{counted} Proven: no plan for the same pods costs less."
    if plan.gap is not None and plan.gap < _LEAST_SHOWN:
        return f"Cost: {price}.{counted} Proven: no plan for the same pods is cheaper by 0.1 % or more."
    above = f"at most {plan.gap * 100:.1f} % above that" if plan.gap is not None else "above that by an unknown share"
    return f"Cost: {price}.{counted} No plan for the same pods costs less than {bound}: this one is {above}."


def _grouped(
    machines: Iterable[PlannedPurchase], key: Callable[[PlannedPurchase], Hashable]
) -> list[list[PlannedPurchase]]:
    groups: dict[Hashable, list[PlannedPurchase]] = {}
    for each in machines:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _show_machines(groups: Sequence[Sequence[PlannedPurchase]]) -> None:
    rows = [
        (
            str(len(group)),
            f"{group[0].kind.title}{' spot' if group[0].kind.spot else ''}",
            group[0].kind.gpus,
            group[0].kind.where,
            str(UsdPerHour(group[0].kind.price)),
            str(sum(len(each.pods) for each in group)),
        )
        for group in groups
    ]
    print_table(("BUY", "MACHINE", "GPUS", "WHERE", "EACH", "PODS"), rows)


def _show_why(out: Console, group: Sequence[PlannedPurchase]) -> None:
    first = group[0]
    many = f"{len(group)} x " if len(group) > 1 else ""
    pool = f" in GPUNodePool {first.kind.pool}" if first.kind.pool is not None else ""
    pods = [pod for each in group for pod in each.pods]
    _print(out, f"{many}{first.kind.title}{pool}, for {_named(pods)}", style="bold")
    _print(out, first.sentence, indent=2)
    # The first alternative is in the sentence.
    others = [f"{each.kind.title} {_signed(UsdPerHour(each.more))}" for each in first.alternatives[1:]]
    if others:
        _print(out, f"Also possible: {'; '.join(others)}.", indent=2, style="dim")


def _show_pods(out: Console, title: str, shown: Sequence[LeftOutPod], style: str) -> None:
    if not shown:
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for each in shown:
        groups.setdefault((each.reason, each.sentence), []).append(each.pod)
    out.print()
    out.print(Text(title, f"bold {style}"))
    for (reason, sentence), pods in groups.items():
        _print(out, f"{_named(pods)}: {reason}", indent=2)
        _print(out, sentence, indent=4)


def _show_moves(out: Console, moves: Sequence[PlannedMove]) -> None:
    if not moves:
        return
    out.print()
    out.print(Text("Nodes that defragmentation would free", "bold"))
    for each in moves:
        _print(out, f"{each.node} of NodeProvisioner {each.provisioner}", indent=2)
        _print(out, each.sentence, indent=4)


def _show_what_if(out: Console, before: PlanReport, supposed: WhatIfReport) -> None:
    change = supposed.difference
    _print(out, f"What if {', '.join(supposed.supposed)}:", style="bold")
    after = supposed.plan
    price = f"{UsdPerHour(before.price)} -> {UsdPerHour(after.price)} ({_signed(UsdPerHour(change.price))})"
    lines = [f"Price     {price}"]
    if (change.cost, before.cost, after.cost) != (change.price, before.price, after.price):
        lines.append(f"Cost      {UsdPerHour(before.cost)} -> {UsdPerHour(after.cost)}")
    lines.append(f"Machines  {len(before.machines)} -> {len(after.machines)}")
    lines += [
        f"          {each.after - each.before:+d} {each.kind.title} ({each.kind.gpus}, {each.kind.where}"
        f"{', spot' if each.kind.spot else ''})"
        for each in change.machines
    ]
    lines.append(f"Left out  {len(before.left_out)} -> {len(after.left_out)}")
    if change.served:
        lines.append(f"          now served: {_named(change.served)}")
    if change.no_longer_served:
        lines.append(f"          no longer served: {_named(change.no_longer_served)}")
    for line in lines:
        _print(out, line, indent=2, hanging=10)
    out.print()
    out.print("Then:")


def _print(out: Console, text: str, *, indent: int = 0, hanging: int = 0, style: str = "") -> None:
    """Prints wrapped text. Wrapped here, because rich would pad every line with blanks."""
    first = text[: len(text) - len(text.lstrip())]
    wrapped = textwrap.fill(
        printable(text.lstrip()),
        out.width,
        initial_indent=" " * indent + first,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
    out.print(Text(wrapped, style), soft_wrap=True)


def _named(pods: Sequence[str]) -> str:
    if len(pods) > _NAMED + 1:
        return f"{', '.join(pods[:_NAMED])} and {len(pods) - _NAMED} more"
    return " and ".join((", ".join(pods[:-1]), pods[-1])) if len(pods) > 1 else "".join(pods)


def _signed(more: UsdPerHour) -> str:
    return f"+{more}" if more >= _ZERO else str(more)
