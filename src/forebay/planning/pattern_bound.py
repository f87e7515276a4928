"""The pattern of one candidate group that is worth most, by an integer program: slower than `knapsack.exact`, and able
to find and prove what that cannot.
"""

from typing import Final, NamedTuple

import highspy
import numpy as np

from forebay.planning.arrays import Floats, Ints
from forebay.planning.integer import AT_FIRST_NODE_OF_KNAPSACK, quiet, run_integer
from forebay.planning.work import Work

#: Far more than what the solver's tolerances let a pattern exceed its node by.
_MARGIN: Final = 1e-5
#: A bound this near to the best pattern is near enough.
_GAP: Final = 1e-4


class WorthiestPattern(NamedTuple):
    #: Upper bound on the worth of any pattern; infinite where the work did not do for one.
    bound: float
    #: The best pattern that was found.
    counts: Ints | None


def worthiest_pattern(value: Floats, need: Floats, capacity: Floats, most: Ints, work: Work) -> WorthiestPattern:
    groups = np.flatnonzero((value > 0) & (most > 0))
    if not len(groups):
        return WorthiestPattern(0.0, None)
    # A resource that the node does not have was asked about when `most` was computed.
    rows = np.flatnonzero((capacity > 0) & need[groups].any(axis=0))
    highs = quiet()
    highs.setOptionValue("mip_rel_gap", _GAP)
    highs.addRows(
        len(rows),
        np.full(len(rows), -highspy.kHighsInf),
        np.ones(len(rows)),
        0,
        np.zeros(len(rows), dtype=np.int32),
        np.array([], dtype=np.int32),
        np.array([]),
    )
    shares = need[np.ix_(groups, rows)] / capacity[rows]
    at, row = np.nonzero(shares)
    highs.addCols(
        len(groups),
        -value[groups],
        np.zeros(len(groups)),
        most[groups].astype(np.float64),
        len(at),
        np.searchsorted(at, np.arange(len(groups))).astype(np.int32),
        row.astype(np.int32),
        shares[at, row],
    )
    highs.changeColsIntegrality(
        len(groups), np.arange(len(groups), dtype=np.int32), np.full(len(groups), highspy.HighsVarType.kInteger)
    )
    run_integer(highs, work, AT_FIRST_NODE_OF_KNAPSACK)
    info = highs.getInfo()
    bound = -info.mip_dual_bound
    counts: Ints | None = None
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        found: Ints = np.zeros(len(value), dtype=np.int64)
        found[groups] = np.rint(np.array(highs.getSolution().col_value))
        # The solver's tolerances would let a pattern exceed its node.
        if (found @ need <= capacity).all():
            counts = found
    return WorthiestPattern(float(bound) * (1 + _MARGIN) if np.isfinite(bound) else float("inf"), counts)
