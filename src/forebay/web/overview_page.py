"""The first page of the dashboard: figures at a glance, what needs a person, and the top of every list."""

from collections.abc import Sequence
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.model.counts import counted
from forebay.reporting.budget_views import BudgetView
from forebay.reporting.listed import machine_page, waiting_page
from forebay.reporting.money import MoneyView
from forebay.reporting.observation import Observation
from forebay.reporting.overview import Overview
from forebay.reporting.receipts import Receipt
from forebay.web.list_pages import decision_table, machine_table, waiting_table
from forebay.web.markup import Content, Element, h
from forebay.web.money_pages import budget_cards, legend
from forebay.web.plots import money_plot
from forebay.web.tables import Cell, per_hour, section, short_dollars, table

_ROWS: Final = 8
_LINES: Final = 12
#: Budgets that are shown: the one closest to its quota.
CARDS: Final = 1
#: Problems that are listed; there may be one for each machine.
_MOST_PROBLEMS: Final = 8
_STARTING: Final = (InstanceState.REQUESTED, InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.JOINED)
_ENDING: Final = (InstanceState.FINISHED, InstanceState.DRAINING, InstanceState.TERMINATING)


def overview_page(seen: Observation, figures: Overview, money: MoneyView, closest: list[BudgetView]) -> list[Content]:
    now = seen.snapshot.now
    machines = machine_page(seen.snapshot, rows=_ROWS)
    waiting = waiting_page(seen, rows=_ROWS)
    return [
        *([] if seen.receipts is None else [_dry_run(seen.receipts)]),
        _tiles(figures, money, dry_run=seen.receipts is not None),
        _problems(figures),
        h(
            "div",
            section(
                "Cost in 24 hours, by pool",
                money_plot(money, money.by_pool, f"Cost in 24 hours by pool: {short_dollars(money.total.spent_exact)}"),
                legend(money.by_pool),
                more=("All of the money", "/money"),
                id_="cost",
            ),
            section(
                "Budget closest to its quota",
                budget_cards(closest, now),
                more=("All budgets", "/budgets"),
                id_="budgets",
            ),
            class_="pair",
        ),
        section("Waiting pods", waiting_table(waiting.rows, now), more=("All waiting pods", "/demand"), id_="waiting"),
        section(
            "Machines and containers",
            machine_table(machines.rows, now),
            more=("All machines", "/machines"),
            id_="machines",
        ),
        section(
            "Last decisions",
            decision_table(seen.log.newest_first()[:_LINES], now),
            more=("The decision log", "/decisions"),
            id_="decisions",
        ),
    ]


def _dry_run(receipts: Sequence[Receipt]) -> Element:
    rows = [
        (
            each.day.isoformat(),
            [
                Cell(each.day.isoformat(), key=True, class_="day"),
                Cell(str(each.bought), number=True),
                Cell(str(each.pods), number=True),
                Cell(short_dollars(each.cost), number=True),
                Cell(short_dollars(each.saved), number=True),
                Cell(each.sentence),
            ],
        )
        for each in receipts
    ]
    header = ("Day (UTC)", "Bought", "For pods", "Cost", "Saved", "In words")
    return section(
        "Dry run: nothing on this page was done",
        table("Receipts of the dry run", header, rows, empty="No day yet."),
        id_="dry-run",
    )


def _tiles(figures: Overview, money: MoneyView, *, dry_run: bool) -> Element:
    states = figures.states
    starting = sum(states.get(each, 0) for each in _STARTING)
    ending = sum(states.get(each, 0) for each in _ENDING)
    parts = [f"{count} {word}" for count, word in ((starting, "starting"), (ending, "ending")) if count]
    remote = f", {figures.gpus_remote:,} in containers" if figures.gpus_remote else ""
    in_service = states.get(InstanceState.READY, 0) + states.get(InstanceState.RUNNING, 0)
    return h(
        "ul",
        _tile(
            per_hour(figures.hourly),
            "would be spent now" if dry_run else "spent now",
            f"{figures.billed:,} {'would be billed' if dry_run else 'billed'}",
        ),
        _tile(
            short_dollars(money.total.spent_exact),
            "really spent in 24 hours" if dry_run else "in 24 hours",
            counted(len(money.by_pool), "pool"),
        ),
        _tile(
            f"{in_service:,}",
            "machine in service" if in_service == 1 else "machines in service",
            ", ".join(parts) or "none on its way",
        ),
        _tile(
            f"{figures.gpus_requested:,} / {figures.gpus:,}",
            "GPUs in use",
            f"{figures.nodes_ready:,} of {figures.nodes:,} nodes Ready{remote}",
        ),
        _tile(
            f"{figures.waiting:,}",
            "pod waiting" if figures.waiting == 1 else "pods waiting",
            f"for {counted(figures.waiting_gpus, 'GPU')}",
        ),
        class_="tiles",
    )


def _tile(value: str, label: str, note: str) -> Element:
    return h("li", h("strong", value), h("span", label), h("small", note), data_key=label)


def _problems(figures: Overview) -> Content:
    if not figures.problems:
        return h("p", "Nothing needs a person.", class_="calm")
    shown = [
        h("li", h("b", each.about), ": ", each.sentence, data_key=each.about)
        for each in figures.problems[:_MOST_PROBLEMS]
    ]
    if (more := len(figures.problems) - _MOST_PROBLEMS) > 0:
        shown.append(h("li", f"and {more} more"))
    return h("section", h("h2", "Needs a person"), h("ul", *shown), class_="problems", id="problems")
