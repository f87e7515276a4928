"""Character plots of a budget's window: usage, forecast and quota."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Final

from forebay.reporting.budget_views import HISTORY_SLICES, BudgetView, PlottedUsage

_BARS: Final = "▁▂▃▄▅▆▇█"
_ROWS: Final = 8


def sparkline(amounts: Sequence[float]) -> str:
    """One bar for each amount, relative to the largest; 0 is a blank."""
    most = max(amounts, default=0)
    return "".join(_BARS[min(int(each / most * 8), 7)] if each > 0 else " " for each in amounts) if most else ""


def plots(shown: BudgetView) -> Iterator[list[str]]:
    """Lines of each plot of the budget: cumulated usage (bars), forecast (dots) and quota (a line)."""
    return (_plot(shown, each) for each in shown.plots)


def _plot(shown: BudgetView, plotted: PlottedUsage) -> list[str]:
    levels, ahead, quota = [*accumulate(plotted.amounts)], plotted.ahead, plotted.quota
    top = max([*levels, *ahead, quota or 0.0]) or 1.0
    quota_row = None if quota is None else min(int(quota / top * _ROWS), _ROWS - 1)
    lines = [f"  {_title(shown, plotted)}"]
    for row in reversed(range(_ROWS)):
        cells = [_cell(each / top * _ROWS - row) for each in levels]
        cells += ["·" if int(min(each / top * _ROWS, _ROWS - 0.01)) == row else " " for each in ahead]
        if row == quota_row:
            cells = [cell if cell != " " else "─" for cell in cells]
        label = " quota" if row == quota_row else ""
        lines.append(f"  {''.join(cells)}{label}".rstrip())
    past = f"-{shown.window_hours}h"
    return [*lines, f"  {past}{'now':>{HISTORY_SLICES - len(past)}}"]


def _title(shown: BudgetView, plotted: PlottedUsage) -> str:
    """Unit, window and quota. Beside the line of the quota, 80 columns would not hold the amount."""
    title = f"{plotted.unit} in the last {shown.window_hours}h"
    if plotted.quota is None:
        return title
    limit = plotted.text(plotted.quota) if plotted.is_money else f"{Decimal(shown.quota or 0).normalize():f}"
    return f"{title}, quota {limit}"


def _cell(filled: float) -> str:
    if filled <= 0:
        return " "
    return _BARS[min(int(filled * 8), 7)]
