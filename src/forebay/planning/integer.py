"""HiGHS, quiet and on one thread, with its integer solver bounded by work instead of time."""

from typing import Any, Final

import highspy

from forebay.planning.work import Work

#: Seconds of work: to start, for each time that the solver asks whether to stop, for each entry of the matrix then
#: (more at the first node, which is solved again and again with new cuts), and for an iteration of a linear program.
_START: Final = 5e-3
_PER_CHECK: Final = 5e-4
_PER_ENTRY: Final = 1e-7
_PER_ENTRY_AT_FIRST: Final = 4e-7
_PER_ITERATION: Final = 6e-5
#: A shorter run finds nothing.
_FEWEST_CHECKS: Final = 10


def quiet() -> highspy.Highs:
    """HiGHS without output and with one thread."""
    highs = highspy.Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.setOptionValue("threads", 1)
    return highs


def run_integer(highs: highspy.Highs, work: Work) -> None:
    """Runs the integer solver until it is done or the work is.

    The solver asks whether to stop at fixed points of its search, so equal programs end with equal results on a slow
    machine too; its own time limit would not do that.
    """
    # Heuristics that solve integer programs of their own ask nothing for seconds, and found nothing better on the
    # published packing problems.
    for heuristic in ("rins", "rens", "root_reduced_cost"):
        highs.setOptionValue(f"mip_heuristic_run_{heuristic}", False)
    entries = highs.getNumNz()
    first, later = (_PER_CHECK + each * entries for each in (_PER_ENTRY_AT_FIRST, _PER_ENTRY))
    most = work.left() - _START
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
    work.spend(_START + max(spent, _PER_ITERATION * highs.getInfo().simplex_iteration_count))
