"""Plots of a simulation, as one SVG or HTML file without any other resource. `png.py` draws the same shapes."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.reporting.simulation import SimulationReport
    from forebay.simulate.replay import Moment, Outcome

_WIDTH: Final = 960
_HEIGHT: Final = 180
_LEFT: Final = 70
_RIGHT: Final = 20
_GAP: Final = 60
_TOP: Final = 40
#: Points of a line: more than a screen has pixels helps nobody.
_MOST_POINTS: Final = 900
_COLOURS: Final = ("#1f6feb", "#d29922", "#8250df", "#1a7f37")
_DAY: Final = 86_400
_HOUR: Final = 3_600
#: Steps of an axis that people can count in.
_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0, 20.0)
_MOST_DAYS_IN_HOURS: Final = 4
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}"
    ".a{stroke:#d0d7de}svg{background:#fff}"
    "@media (prefers-color-scheme:dark){svg{background:#0d1117}.t{fill:#e6edf3}text{fill:#8b949e}.a{stroke:#30363d}}"
)

Line = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    side: float
    colour: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of a grid, from left to right."""

    x: float
    end: float
    y: float


@dataclass(frozen=True, slots=True)
class Curve:
    points: Line
    colour: str
    width: float
    #: Where two policies do the same, both are seen.
    dashed: bool


@dataclass(frozen=True, slots=True)
class Label:
    x: float
    y: float
    text: str
    #: What of the text is at x: start, middle or end.
    anchor: str = "start"
    title: bool = False


Shape = Box | Rule | Curve | Label


@dataclass(frozen=True, slots=True)
class Drawing:
    width: int
    height: int
    shapes: tuple[Shape, ...]
    what: str


@dataclass(frozen=True, slots=True)
class _Chart:
    title: str
    unit: str
    #: By the number of their policy, which chooses the colour.
    thick: dict[int, Line]
    thin: dict[int, Line]


def drawing(report: "SimulationReport", outcomes: Sequence["Outcome"]) -> Drawing:
    """GPUs rented, pods that wait, and dollars so far, over time, with a line for each policy."""
    end = max((moment.at for each in outcomes for moment in each.timeline), default=1) or 1
    names = [each.policy for each in outcomes]
    spent = dict(enumerate(_spent(each.timeline) for each in outcomes))
    # The other policies have no timeline: the same machines all the time, and one sum at the end.
    for row in report.policies:
        if row.policy not in names:
            spent[len(names)] = [(0, 0.0), (end, float(row.cost))]
            names.append(row.policy)
    bound = float(report.hindsight_bound)
    charts = (
        _Chart(
            "GPUs rented (thin: in use)",
            "",
            {n: _line(each.timeline, lambda moment: moment.gpus_rented) for n, each in enumerate(outcomes)},
            {n: _line(each.timeline, lambda moment: moment.gpus_used) for n, each in enumerate(outcomes)},
        ),
        _Chart(
            "Pods for which no machine could be bought yet",
            "",
            {n: _line(each.timeline, lambda moment: moment.waiting) for n, each in enumerate(outcomes)},
            {},
        ),
        _Chart("Dollars so far (thin: the hindsight bound)", "$", spent, {len(names): [(0, bound), (end, bound)]}),
    )
    names.append("hindsight bound")
    shapes: list[Shape] = []
    for number, name in enumerate(names):
        x = _LEFT + number * 180
        shapes += [Box(x, 8, 14, _colour(number)), Label(x + 20, 20, name)]
    for number, chart in enumerate(charts):
        shapes += _drawn(chart, end, _TOP + number * (_HEIGHT + _GAP))
    height = len(charts) * (_HEIGHT + _GAP) + _TOP
    return Drawing(_LEFT + _WIDTH + _RIGHT, height, tuple(shapes), f"Simulation over {end / _DAY:.1f} days")


def svg(drawn: Drawing) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawn.width} {drawn.height}" role="img" '
        f'aria-label="{escape(drawn.what)}"><style>{_STYLE}</style>'
    )
    return head + "".join(map(_element, drawn.shapes)) + "</svg>\n"


def html(report: "SimulationReport", drawn: Drawing) -> str:
    """The table and the plots."""
    titles = ("policy", "cost", "x bound", "machines", "GPUs used", "median wait", "p95 wait", "reclaims", "not run")
    head = "<tr>" + "".join(f"<th>{each}" for each in titles) + "</tr>"
    rows = "".join(
        f"<tr><td>{escape(each.policy)}<td>${float(each.cost):,.2f}<td>{each.times_bound or 0:.2f}<td>{each.machines:,}"
        f"<td>{each.gpu_utilisation:.0%}<td>{each.wait_median_s} s<td>{each.wait_p95_s} s<td>{each.interruptions}"
        f"<td>{each.unserved + each.left_waiting}</tr>"
        for each in report.policies
    )
    style = (
        "body{font:15px system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}h1{font-size:1.5em}"
        ".wide{overflow-x:auto}table{border-collapse:collapse;white-space:nowrap}"
        "td,th{padding:.2em 2em .2em 0;text-align:right}td:first-child,th:first-child{text-align:left}svg{width:100%}"
        "@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>Simulation</title><style>{style}</style>'
        f"<h1>{report.pods:,} pods, {report.gpu_hours:,.0f} GPU-hours in {report.length}</h1>"
        f'<div class="wide" tabindex="0" role="region" aria-label="Policies"><table>{head}{rows}</table></div>'
        f"<p>Nobody could have paid less than ${float(report.hindsight_bound):,.2f} (hindsight bound).</p>"
        f"{svg(drawn)}</html>\n"
    )


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            side = shape.side
            return f'<rect x="{shape.x:g}" y="{shape.y:g}" width="{side:g}" height="{side:g}" fill="{shape.colour}"/>'
        case Rule():
            return f'<line class="a" x1="{shape.x:g}" x2="{shape.end:g}" y1="{shape.y:g}" y2="{shape.y:g}"/>'
        case Curve():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            dashes = ' stroke-dasharray="6 5"' if shape.dashed else ""
            style = f'fill="none" stroke="{shape.colour}" stroke-width="{shape.width}"{dashes}'
            return f'<polyline {style} points="{points}"/>'
        case Label():
            title = ' class="t"' if shape.title else ""
            anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
            return f'<text{title} x="{shape.x:g}" y="{shape.y:g}"{anchor}>{escape(shape.text)}</text>'


def _drawn(chart: _Chart, end: int, top: int) -> Iterator[Shape]:
    bottom = top + 20 + _HEIGHT
    marks = _marks(_most((*chart.thick.values(), *chart.thin.values())))
    most = marks[-1]
    yield Label(_LEFT, top + 12, chart.title, title=True)
    for mark in marks:
        y = bottom - mark / most * _HEIGHT
        yield Rule(_LEFT, _LEFT + _WIDTH, y)
        yield Label(_LEFT - 6, y + 4, f"{chart.unit}{_number(mark)}", "end")
    in_hours = end < _MOST_DAYS_IN_HOURS * _DAY
    unit, name = (_HOUR, "hours") if in_hours else (_DAY, "days")
    moments = [each for each in _marks(end / unit, 5) if each * unit <= end]
    for each in moments:
        text = _number(each) + (f" {name}" if each == moments[-1] else "")
        yield Label(_LEFT + each * unit / end * _WIDTH, bottom + 16, text, "middle" if each else "start")
    for width, group in ((2.0, chart.thick), (0.8, chart.thin)):
        for number, line in group.items():
            points = [(_LEFT + at / end * _WIDTH, bottom - value / most * _HEIGHT) for at, value in line]
            yield Curve(points, _colour(number), width, dashed=number > 0)


def _marks(most: float, parts: int = 2) -> list[float]:
    """Round numbers from 0 on, about so many steps of them, the last no less than `most`."""
    size = 10.0 ** math.floor(math.log10(most / parts))
    step = next(each * size for each in _STEPS if each * size >= most / parts)
    return [number * step for number in range(math.ceil(most / step) + 1)]


def _number(value: float) -> str:
    return f"{value:,.6f}".rstrip("0").rstrip(".")


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _most(lines: Iterable[Line]) -> float:
    return max((value for line in lines for _, value in line), default=1.0) or 1.0


def _line(timeline: Sequence["Moment"], value: Callable[["Moment"], int]) -> Line:
    return _jumping(_fewer([(moment.at, float(value(moment))) for moment in timeline]))


def _spent(timeline: Sequence["Moment"]) -> Line:
    """Dollars up to each moment, by the price an hour of all machines."""
    ends = [moment.at for moment in timeline]
    parts = [
        float(moment.hourly.amount) * (after - moment.at) / 3600
        for moment, after in zip(timeline, (*ends[1:], ends[-1] if ends else 0), strict=True)
    ]
    return _fewer(list(zip(ends, accumulate([0.0, *parts[:-1]]), strict=True))) if ends else []


def _jumping(line: Line) -> Line:
    """The same with the value before each change drawn up to it: unlike dollars, numbers of things jump."""
    return [point for before, after in pairwise(line) for point in (before, (after[0], before[1]))] + line[-1:]


def _fewer(line: Line) -> Line:
    """The line with at most so many points: of each group its highest."""
    step = -(-len(line) // _MOST_POINTS) or 1
    return [max(line[at : at + step], key=lambda point: point[1]) for at in range(0, len(line), step)]
