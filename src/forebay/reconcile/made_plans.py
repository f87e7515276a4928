"""Plans that were made, with all that they were made of: for the same input, the planner need not work again.

A pod that nothing fits waits through thousands of ticks, and most of these change nothing that its plan depends on.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from forebay.planning.plan import Plan


class MadePlan(NamedTuple):
    #: Every argument of the planner: the same ones give the same plan.
    made_of: tuple[object, ...]
    plan: Plan


def made_again(before: Iterable[MadePlan], made_of: tuple[object, ...], make: Callable[[], Plan]) -> MadePlan:
    """The plan that was made of the same before, else a new one."""
    known = next((each for each in before if each.made_of == made_of), None)
    return MadePlan(made_of, make()) if known is None else known
