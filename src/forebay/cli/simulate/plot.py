"""Plots of a simulation, as one SVG or HTML file without any other resource."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from forebay.reporting.simulation import SimulationReport
    from forebay.simulate.replay import Moment, Outcome

_WIDTH: Final = 960
_HEIGHT: Final = 180
_LEFT: Final = 70
_GAP: Final = 60
#: Points of a line: more than a screen has pixels helps nobody.
_MOST_POINTS: Final = 900
_COLOURS: Final = ("#1f6feb", "#d29922", "#8250df", "#1a7f37")
_DAY: Final = 86_400
#: Parts of the time and of the most that the axes name.
_MOMENTS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_PARTS: Final = (0.0, 0.5, 1.0)
#: Amounts of which nobody wants decimals.
_LARGE: Final = 50
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;fill:#24292f}"
    ".a{stroke:#d0d7de}svg{background:#fff}"
    "@media (prefers-color-scheme:dark){svg{background:#0d1117}.t{fill:#e6edf3}text{fill:#8b949e}.a{stroke:#30363d}}"
)


def svg(outcomes: Sequence["Outcome"]) -> str:
    """GPUs rented, pods that wait, and dollars so far, over time, with a line for each policy."""
    end = max((moment.at for each in outcomes for moment in each.timeline), default=1) or 1
    rented = [_line(each.timeline, lambda moment: moment.gpus_rented) for each in outcomes]
    waiting = [_line(each.timeline, lambda moment: moment.waiting) for each in outcomes]
    charts = [
        ("GPUs rented (thin: in use)", "", rented),
        ("Pods for which no machine could be bought yet", "", waiting),
        ("Dollars so far", "$", [_spent(each.timeline) for each in outcomes]),
    ]
    thin = [_line(each.timeline, lambda moment: moment.gpus_used) for each in outcomes]
    height = len(charts) * (_HEIGHT + _GAP) + 40
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + _LEFT + 20} {height}" role="img" '
        f'aria-label="Simulation over {end / _DAY:.1f} days"><style>{_STYLE}</style>'
    )
    parts = [head]
    for number, each in enumerate(outcomes):
        x = _LEFT + number * 180
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(f'<rect x="{x}" y="8" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{x + 20}" y="20">{escape(each.policy)}</text>')
    for number, (title, unit, lines) in enumerate(charts):
        top = 40 + number * (_HEIGHT + _GAP)
        parts += _axes(title, unit, _most((*lines, *thin) if number == 0 else lines), end, top)
        parts += _lines(lines, thin if number == 0 else [], end, top)
    return "".join(parts) + "</svg>\n"


def html(report: "SimulationReport", outcomes: Sequence["Outcome"]) -> str:
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
        "body{font:15px system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em}table{margin:0 -1em}"
        "td,th{padding:.2em 1em;text-align:right}td:first-child,th:first-child{text-align:left}"
        "@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulation</title><style>{style}</style>'
        f"<h1>{report.pods:,} pods, {report.gpu_hours:,.0f} GPU-hours in {report.days:g} days</h1>"
        f"<table>{head}{rows}</table><p>Nobody could have paid less than ${float(report.hindsight_bound):,.2f}.</p>"
        f"{svg(outcomes)}</html>\n"
    )


def _axes(title: str, unit: str, most: float, end: int, top: int) -> Iterator[str]:
    bottom = top + 20 + _HEIGHT
    yield f'<text class="t" x="{_LEFT}" y="{top + 12}">{escape(title)}</text>'
    for part in _PARTS:
        y = bottom - part * _HEIGHT
        yield f'<line class="a" x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:g}" y2="{y:g}"/>'
        label = f"{most * part:,.{0 if most >= _LARGE else 1}f}".removesuffix(".0")
        yield f'<text x="{_LEFT - 6}" y="{y + 4:g}" text-anchor="end">{unit}{label}</text>'
    days = 1 if end >= 4 * _DAY else 2
    for part in _MOMENTS:
        anchor = {0.0: "start", 1.0: "end"}.get(part, "middle")
        text = f"{end * part / _DAY:.{days}f}".removesuffix(".0") if part else "0"
        text += " days" if part == 1 else ""
        yield f'<text x="{_LEFT + part * _WIDTH:g}" y="{bottom + 16}" text-anchor="{anchor}">{text}</text>'


def _lines(
    lines: list[list[tuple[int, float]]], thin: list[list[tuple[int, float]]], end: int, top: int
) -> Iterator[str]:
    most, bottom = _most((*lines, *thin)), top + 20 + _HEIGHT
    for width, group in ((2.0, lines), (0.7, thin)):
        for number, line in enumerate(group):
            points = " ".join(
                f"{_LEFT + at / end * _WIDTH:.1f},{bottom - value / most * _HEIGHT:.1f}" for at, value in line
            )
            colour = _COLOURS[number % len(_COLOURS)]
            # Where two policies do the same, both are seen.
            dashes = ' stroke-dasharray="6 5"' if number else ""
            yield f'<polyline fill="none" stroke="{colour}" stroke-width="{width}"{dashes} points="{points}"/>'


def _most(lines: Iterable[list[tuple[int, float]]]) -> float:
    return max((value for line in lines for _, value in line), default=1.0) or 1.0


def _line(timeline: Sequence["Moment"], value: Callable[["Moment"], int]) -> list[tuple[int, float]]:
    return _jumping(_fewer([(moment.at, float(value(moment))) for moment in timeline]))


def _spent(timeline: Sequence["Moment"]) -> list[tuple[int, float]]:
    """Dollars up to each moment, by the price an hour of all machines."""
    ends = [moment.at for moment in timeline]
    parts = [
        float(moment.hourly.amount) * (after - moment.at) / 3600
        for moment, after in zip(timeline, (*ends[1:], ends[-1] if ends else 0), strict=True)
    ]
    return _fewer(list(zip(ends, accumulate([0.0, *parts[:-1]]), strict=True))) if ends else []


def _jumping(line: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The same with the value before each change drawn up to it: unlike dollars, numbers of things jump."""
    return [point for before, after in pairwise(line) for point in (before, (after[0], before[1]))] + line[-1:]


def _fewer(line: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The line with at most so many points: of each group its highest."""
    step = -(-len(line) // _MOST_POINTS) or 1
    return [max(line[at : at + step], key=lambda point: point[1]) for at in range(0, len(line), step)]
