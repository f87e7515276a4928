"""All ways to fill one node of each candidate group, for demand that is small enough to list them."""

from collections.abc import Sequence
from typing import Final

from forebay.planning.candidate_groups import CandidateGroup, PackingProblem
from forebay.planning.greedy import Pattern
from forebay.planning.work import Work

#: Seconds of work for a step of the search, and the share of what is left that one search may take.
_STEP: Final = 3e-6
_SHARE: Final = 0.5


def all_fillings(
    problem: PackingProblem, counts: Sequence[int], candidate_groups: Sequence[int], most: int, work: Work
) -> list[tuple[int, Pattern]] | None:
    """(Candidate group, pattern) for each filling that no larger one contains; None where there are too many.

    Too many are more than `most`, or than can be found in the time.

    Where pods have preferences, a smaller filling may cost less: then smaller ones are listed too.
    """
    found: list[tuple[int, Pattern]] = []
    known: dict[tuple[object, ...], list[Pattern] | None] = {}
    for number in candidate_groups:
        candidate_group = problem.candidate_groups[number]
        most_here = tuple(min(n, count) for n, count in zip(candidate_group.most, counts, strict=True))
        partial = any(cost for cost, n in zip(candidate_group.preference_cost, most_here, strict=True) if n)
        key = (candidate_group.capacity, most_here, partial)
        if key not in known:
            known[key] = _fillings(problem, candidate_group, most_here, most, work, partial=partial)
        patterns = known[key]
        if patterns is None or len(found) + len(patterns) > most:
            return None
        found += [(number, pattern) for pattern in patterns]
    return found


def _fillings(
    problem: PackingProblem,
    candidate_group: CandidateGroup,
    most_here: Sequence[int],
    most: int,
    work: Work,
    *,
    partial: bool,
) -> list[Pattern] | None:
    groups = [group for group, count in enumerate(most_here) if count]
    needs = [[(d, amount) for d, amount in enumerate(problem.needs[group]) if amount > 0] for group in groups]
    free = list(candidate_group.capacity)
    taken = [0] * len(groups)
    found: list[Pattern] = []
    steps, most_steps = 0, int(work.left() * _SHARE / _STEP)

    def fits(at: int) -> bool:
        return taken[at] < most_here[groups[at]] and all(free[d] >= amount for d, amount in needs[at])

    def fill(at: int) -> bool:
        """Lists the fillings with what is taken of the groups before `at`; False to give up."""
        nonlocal steps
        steps += 1
        if steps > most_steps or len(found) > most:
            return False
        if at == len(groups):
            if any(taken) and (partial or not any(map(fits, range(at)))):
                found.append(tuple((group, count) for group, count in zip(groups, taken, strict=True) if count))
            return True
        room = min([most_here[groups[at]], *(free[d] // amount for d, amount in needs[at])])
        for count in range(room, -1, -1):
            taken[at] = count
            for d, amount in needs[at]:
                free[d] -= amount * count
            if not fill(at + 1):
                return False
            for d, amount in needs[at]:
                free[d] += amount * count
        return True

    done = fill(0)
    work.spend(_STEP * steps)
    return found if done else None
