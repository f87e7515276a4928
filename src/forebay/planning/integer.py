"""HiGHS, quiet and on one thread, with its integer solver bounded by work instead of time."""

from typing import Any, Final

import highspy

from forebay.planning.work import Work

#: Seconds of work: to start, for each time that the solver asks whether to stop, for each entry of the matrix then, and
#: for an iteration of its linear programs.
_START: Final = 5e-3
_PER_CHECK: Final = 2.5e-3
_PER_ENTRY: Final = 6e-7
_PER_ITERATION: Final = 2.5e-4
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
    each = _PER_CHECK + _PER_ENTRY * highs.getNumNz()
    most = max(int((work.left() - _START) / each), _FEWEST_CHECKS)
    checks = 0

    def check(_kind: Any, _message: str, _output: Any, answer: Any, _data: Any) -> None:
        nonlocal checks
        checks += 1
        if checks > most or work.is_late():
            answer.user_interrupt = True

    highs.setCallback(check, None)
    highs.startCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    highs.run()
    highs.stopCallback(highspy.cb.HighsCallbackType.kCallbackMipInterrupt)
    work.spend(_START + max(each * checks, _PER_ITERATION * highs.getInfo().simplex_iteration_count))
