"""Plots as inline SVG. Colours come from classes, labels are HTML beside the drawing, so that it can be stretched."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final

from forebay.api.gpu_instance import InstanceState
from forebay.reporting.budget_views import BudgetView, PlottedUsage
from forebay.reporting.life_lines import Segment
from forebay.reporting.money import MoneyLine, MoneyView
from forebay.web.markup import Element, h

#: Size of every drawing, in its own units; the page stretches it.
_WIDTH: Final = 1000.0
_HEIGHT: Final = 200.0
#: Lines that a plot tells apart; what is left goes into one more.
MOST_SERIES: Final = 6
OTHERS: Final = "others"


def series(lines: Sequence[MoneyLine]) -> list[tuple[str, list[float]]]:
    """What a plot of these lines shows: the largest ones, and the rest together."""
    shown = [(each.name, [float(part) for part in each.slices]) for each in lines[:MOST_SERIES]]
    rest = lines[MOST_SERIES:]
    if rest:
        shown.append(
            (OTHERS, [sum(float(part) for part in parts) for parts in zip(*(e.slices for e in rest), strict=True)])
        )
    return shown


def money_plot(view: MoneyView, lines: Sequence[MoneyLine], title: str) -> Element:
    """Dollars in each slice as stacked bars."""
    shown = series(lines)
    count = len(view.bounds) - 1
    top = _round_up(max((sum(parts) for parts in zip(*(each for _, each in shown), strict=True)), default=0.0))
    step = _WIDTH / count
    bars: list[Element] = []
    base = [0.0] * count
    for number, (name, parts) in enumerate(shown):
        for place, part in enumerate(parts):
            if part <= 0:
                continue
            height = part / top * _HEIGHT
            base[place] += height
            at = f"{view.bounds[place]:%d %b %H:%M} UTC"
            bars.append(
                h(
                    "rect",
                    h("title", f"{name}: ${part:.2f} from {at}"),
                    class_=f"c{number}",
                    x=_number(place * step + step * 0.08),
                    y=_number(_HEIGHT - base[place]),
                    width=_number(step * 0.84),
                    height=_number(height),
                )
            )
    return _figure(title, bars, top=top, unit="$", start=view.bounds[0], end=view.bounds[-1])


def budget_plot(view: BudgetView, plotted: PlottedUsage, now: datetime) -> Element:
    """Usage in the window up to now, the forecast after that, and the line of the quota."""
    used, ahead, quota = [*accumulate(plotted.amounts)], plotted.ahead, plotted.quota
    count = len(used) + len(ahead)
    top = _round_up(max([*used, *ahead, quota or 0.0], default=0.0) * 1.02)
    step = _WIDTH / max(count, 1)

    def point(place: int, value: float) -> str:
        return f"{_number(place * step)},{_number(_HEIGHT - value / top * _HEIGHT)}"

    drawn: list[Element] = []
    if used:
        points = [point(0, 0.0), *(point(place + 1, value) for place, value in enumerate(used))]
        area = [*points, f"{_number(len(used) * step)},{_HEIGHT:g}"]
        drawn.append(h("polygon", class_="area", points=" ".join(area)))
        drawn.append(h("polyline", class_="line", points=" ".join(points)))
    if ahead and used:
        points = [point(len(used), used[-1]), *(point(len(used) + place + 1, each) for place, each in enumerate(ahead))]
        drawn.append(h("polyline", class_="forecast", points=" ".join(points)))
        here = _number(len(used) * step)
        drawn.append(h("line", class_="now", x1=here, x2=here, y1=0, y2=_number(_HEIGHT)))
    if quota is not None:
        at = _number(_HEIGHT - quota / top * _HEIGHT)
        line = h(
            "line", h("title", f"quota: {plotted.text(quota)}"), class_="quota", x1=0, x2=_number(_WIDTH), y1=at, y2=at
        )
        drawn.append(line)
    window = timedelta(hours=view.window_hours)
    consumed = f"${float(view.consumed_usd):,.2f}" if plotted.is_money else f"{float(view.consumed):.2f} {view.unit}"
    title = f"{view.namespace}/{view.name}: {consumed} used"
    if quota is not None:
        title += f" of {plotted.text(quota) if plotted.is_money else f'{quota:g}'}"
    end = now + window / max(len(view.history), 1) * len(ahead)
    return _figure(title, drawn, top=top, unit="$" if plotted.is_money else "", start=now - window, end=end)


def life_line_plot(segments: Sequence[Segment], start: datetime, now: datetime, title: str) -> Element:
    """The states of one machine as a bar on the common time axis."""
    span = max((now - start).total_seconds(), 1.0)

    def place(moment: datetime) -> float:
        return (moment - start).total_seconds() / span * _WIDTH

    bars = [
        h(
            "rect",
            h("title", f"{each.state} from {each.start:%H:%M:%S} to {each.end:%H:%M:%S} UTC"),
            class_=f"s-{each.state.lower()}",
            x=_number(place(each.start)),
            # A state of a second is seen, too.
            width=_number(max(place(each.end) - place(each.start), 3.0)),
            y=0,
            height=10,
        )
        for each in segments
    ]
    states = ", ".join(dict.fromkeys(each.state for each in segments)) or "no state in this time"
    return _drawing(bars, f"{title}: {states}", class_="life", height=10)


def life_line_legend(lines: Iterable[Sequence[Segment]]) -> Element | None:
    """Which state has which colour, of the states that these life lines show."""
    found = {each.state for segments in lines for each in segments}
    shown = [state.value for state in InstanceState if state in found]
    if not shown:
        return None
    entries = (h("li", h("span", class_=f"swatch s-{state.lower()}"), state, data_key=state) for state in shown)
    return h("ul", *entries, class_="legend")


def budget_legend(plotted: PlottedUsage) -> Element:
    """What the lines of a budget's plot are, and their unit."""
    entries = [("used", f"{plotted.unit} used"), ("ahead", "forecast")]
    if plotted.quota is not None:
        entries.append(("limit", "quota"))
    return h("ul", *(h("li", h("span", class_=f"swatch {each}"), text) for each, text in entries), class_="legend")


def sparkline(values: Sequence[float], title: str) -> Element:
    top = max(values, default=0.0) or 1.0
    step = _WIDTH / max(len(values), 1)
    bars = [
        h(
            "rect",
            x=_number(place * step + step * 0.1),
            width=_number(step * 0.8),
            y=_number(_HEIGHT - value / top * _HEIGHT),
            height=_number(value / top * _HEIGHT),
        )
        for place, value in enumerate(values)
        if value > 0
    ]
    return _drawing(bars, title, class_="spark")


def _figure(
    title: str, drawn: Sequence[Element], *, top: float, unit: str = "", start: datetime, end: datetime
) -> Element:
    grid = [
        h("line", class_="grid", x1=0, x2=_number(_WIDTH), y1=_number(_HEIGHT * part), y2=_number(_HEIGHT * part))
        for part in (0.0, 0.5)
    ]
    long = end - start > timedelta(days=2)
    form = "%d %b" if long else "%H:%M"
    moments = [start + (end - start) / 4 * number for number in range(5)]
    return h(
        "figure",
        h(
            "div",
            h("div", *(h("span", f"{unit}{each:g}") for each in (top, top / 2, 0)), class_="y", aria_hidden="true"),
            _drawing([*grid, *drawn], title, class_="plot"),
            h("div", *(h("span", f"{each:{form}}") for each in moments), class_="x", aria_hidden="true"),
            class_="axes",
        ),
        class_="figure",
    )


def _drawing(children: Sequence[Element], title: str, *, class_: str, height: float = _HEIGHT) -> Element:
    box = f"0 0 {_WIDTH:g} {height:g}"
    return h("svg", *children, class_=class_, viewBox=box, preserveAspectRatio="none", role="img", aria_label=title)


def _round_up(value: float) -> float:
    """The next round number: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(f"{int(value)}") - 1) if value >= 1 else 1.0
    while power > value:
        power /= 10
    return next(power * each for each in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if power * each >= value * 0.999999)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
