"""Pages about money: cost over time, and budgets."""

from collections.abc import Sequence
from datetime import datetime

from forebay.reporting.budget_views import BudgetView
from forebay.reporting.listed import ListPage
from forebay.reporting.money import SPANS, MoneyLine, MoneyView
from forebay.web.markup import Content, Element, h, url
from forebay.web.plots import MOST_SERIES, OTHERS, budget_legend, budget_plot, money_plot, sparkline
from forebay.web.tables import Cell, age, badge, dollars, pager, per_hour, section, short_dollars, table


def money_page(view: MoneyView) -> list[Content]:
    choices = (
        h(
            "li",
            h("a", name, href=url("money", span=name), aria_current="true" if name == view.span else None),
        )
        for name in SPANS
    )
    head = h(
        "p",
        h("strong", short_dollars(view.total.spent_exact)),
        f" in {view.span}; ",
        h("strong", per_hour(view.total.hourly)),
        " now",
        class_="lead",
    )
    return [
        head,
        h("ul", *choices, class_="choices", aria_label="Time span"),
        _part("By pool", "pool", view, view.by_pool),
        _part("By namespace", "namespace", view, view.by_namespace),
        _part("By provider", "provider", view, view.by_provider),
        h(
            "p",
            "From the ledger in the cluster, which keeps 31 days. Costs of no namespace, pool or class are in the line "
            '"none": machines that were launched for no pod, and idle time that no pod is charged with.',
            class_="note",
        ),
    ]


def _part(title: str, word: str, view: MoneyView, lines: Sequence[MoneyLine]) -> Element:
    rows = [
        (
            each.name,
            [
                Cell(h("span", class_=f"swatch c{min(number, MOST_SERIES)}"), each.name, key=True),
                Cell(dollars(each.spent_exact), number=True),
                Cell(per_hour(each.hourly), number=True),
                Cell(
                    sparkline([float(part) for part in each.slices], f"Cost of {each.name} over time"), class_="spark"
                ),
            ],
        )
        for number, each in enumerate(lines)
    ]
    return section(
        title,
        money_plot(view, lines, f"Cost in {view.span} by {word}: {short_dollars(view.total.spent_exact)}"),
        table(
            title, (word.capitalize(), f"In {view.span}", "Now", "Over time"), rows, empty="Nothing has cost anything."
        ),
        id_=f"by-{word}",
    )


def legend(lines: Sequence[MoneyLine]) -> Element:
    """The colours of a plot, with the amounts."""
    shown = [(each.name, short_dollars(each.spent_exact)) for each in lines[:MOST_SERIES]]
    if len(lines) > MOST_SERIES:
        shown.append((OTHERS, f"{len(lines) - MOST_SERIES} more"))
    return h(
        "ul",
        *(
            h("li", h("span", class_=f"swatch c{number}"), name, " ", h("b", amount), data_key=name)
            for number, (name, amount) in enumerate(shown)
        ),
        class_="legend",
    )


def budgets_page(found: ListPage[BudgetView], now: datetime) -> list[Content]:
    return [
        budget_cards(found.rows, now),
        pager(found, "budgets", "budgets"),
        h(
            "p",
            "Each plot shows usage in the window, up to now, then the forecast (dashed) if usage goes on at "
            "the mean rate of the last hour (a tenth of the window, if that is less), or as now where that is lower, "
            "and the quota as a line: in GPU-hours, in dollars, or one plot of each where both have a quota.",
            class_="note",
        ),
    ]


def budget_cards(views: Sequence[BudgetView], now: datetime) -> Element:
    if not views:
        return h("p", "There are no GPUWorkloadBudgets.", class_="empty")
    return h("div", *(_budget(each, now) for each in views), class_="cards")


def _budget(view: BudgetView, now: datetime) -> Element:
    name = f"{view.namespace}/{view.name}"
    state = badge("used up", "bad") if view.exceeded else badge("within quota", "ok")
    facts: list[tuple[str, Content]] = [
        (view.unit, f"{_hours(view.consumed)} of {_hours(view.quota)}" if view.quota else _hours(view.consumed)),
        (
            "Dollars",
            f"${float(view.consumed_usd):,.2f}" + (f" of ${float(view.quota_usd):,.2f}" if view.quota_usd else ""),
        ),
        ("In use", _gpus(view.burn) if view.burn else "unknown"),
        ("Exhausted", "now" if view.exceeded else _until(view.exhausted, now)),
        *([("Room again", _until(view.room_at, now))] if view.room_at is not None else ()),
        ("Pods", f"{view.pods} counted, {view.held} held"),
    ]
    return h(
        "article",
        h("h3", name, " ", state),
        h("p", f"{view.action}, window of {view.window_hours}h, {view.accounting} accounting", class_="note"),
        [[budget_plot(view, each, now), budget_legend(each)] for each in view.plots] if view.history else None,
        h("dl", *((h("dt", title), h("dd", fact)) for title, fact in facts)),
        h("p", view.error, class_="error") if view.error else None,
        class_="card",
        data_key=name,
    )


def _gpus(text: str) -> str:
    count = f"{float(text):g}"
    return f"{count} GPU" if count == "1" else f"{count} GPUs"


def _until(moment: datetime | None, now: datetime) -> Content:
    if moment is None:
        return "not within one window"
    if moment <= now:
        return "now"
    return ["in ", age(now - (moment - now), now)]


def _hours(text: str | None) -> str:
    if text is None:
        return "-"
    # An amount that two decimals would show as 0.
    return f"{float(text):,.2f}".rstrip("0").rstrip(".") if float(text) >= 0.01 else f"{float(text):.1g}"  # noqa: PLR2004
