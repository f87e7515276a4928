"""HiGHS, quiet and on one thread, with its integer solver bounded by work instead of time."""

from typing import Any, Final, NamedTuple

import highspy

from forebay.planning.work import Work

#: Seconds of work: to start, for each entry of the matrix before the search, for an iteration of a linear program.
_START: Final = 3e-3
_PER_ENTRY: Final = 6e-6
_PER_ITERATION: Final = 4e-5
#: A shorter run finds nothing.
_FEWEST_CHECKS: Final = 10


class CheckCost(NamedTuple):
    """Seconds of work between two times that the solver asks whether to stop."""

    least: float
    by_entry: float
    by_row: float
    most: float

    def of(self, entries: int, rows: int) -> float:
        return min(self.least + self.by_entry * entries + self.by_row * rows, self.most)


#: The first node is solved again and again with new cuts. Measured on the programs of packing problems and limits.
_AT_FIRST_NODE: Final = CheckCost(3e-4, 1.5e-7, 6e-6, 5e-3)
#: The same for the knapsack of one node, whose few rows have an entry for nearly every pod group.
AT_FIRST_NODE_OF_KNAPSACK: Final = CheckCost(3e-4, 1.5e-6, 0.0, 5e-3)
_LATER: Final = CheckCost(2.5e-4, 1.8e-7, 0.0, 2e-3)


def quiet() -> highspy.Highs:
    """HiGHS without output and with one thread."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    return highs


def run_integer(highs: highspy.Highs, work: Work, at_first_node: CheckCost = _AT_FIRST_NODE) -> None:
    """Runs the integer solver until it is done or the work is.

    The solver asks whether to stop at fixed points of its search, so equal programs end with equal results on a slow
    machine too; its own time limit would not do that.
    """
    # Heuristics that solve integer programs of their own ask nothing for seconds, and found nothing better on the
    # published packing problems.
    for heuristic in ("rins", "rens", "root_reduced_cost"):
        highs.setOptionValue(f"mip_heuristic_run_{heuristic}", False)
    entries, rows = highs.getNumNz(), highs.getNumRow()
    first, later = (each.of(entries, rows) for each in (at_first_node, _LATER))
    start = _START + _PER_ENTRY * entries
    most = work.left() - start
    checks, spent = 0, 0.0

    def check(_kind: Any, _message: str, output: Any, answer: Any, _data: Any) -> None:
        nonlocal checks, spent
        checks += 1
        spent += later if output.mip_node_count else first
        if (spent > most and checks > _FEWEST_CHECKS) or work.is_late():
            answer.user_interrupt = True

    highs.setCallback(check, None)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    highs.run()
    highs.stopCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    work.spend(start + max(spent, _PER_ITERATION * highs.getInfo().simplex_iteration_count))
