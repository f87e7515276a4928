"""All ways to fill one node of each candidate group, for demand that is small enough to list them."""

from collections.abc import Iterator, Sequence

from forebay.planning.candidate_groups import CandidateGroup, PackingProblem
from forebay.planning.greedy import Pattern


def all_fillings(
    problem: PackingProblem, counts: Sequence[int], candidate_groups: Sequence[int], most: int
) -> list[tuple[int, Pattern]] | None:
    """(Candidate group, pattern) for each filling that no larger one contains; None where there are more than `most`.

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
            known[key] = _fillings(problem, candidate_group, most_here, most, partial=partial)
        patterns = known[key]
        if patterns is None or len(found) + len(patterns) > most:
            return None
        found += [(number, pattern) for pattern in patterns]
    return found


def _fillings(
    problem: PackingProblem, candidate_group: CandidateGroup, most_here: Sequence[int], most: int, *, partial: bool
) -> list[Pattern] | None:
    groups = [group for group, count in enumerate(most_here) if count]
    needs = [[(d, amount) for d, amount in enumerate(problem.needs[group]) if amount > 0] for group in groups]
    free = list(candidate_group.capacity)
    taken = [0] * len(groups)
    found: list[Pattern] = []
    # Branches that end in a filling that another contains count too, or a long search could end with a short list.
    steps = 0

    def room(at: int) -> int:
        return min([most_here[groups[at]], *(free[d] // amount for d, amount in needs[at])])

    def fill(at: int) -> Iterator[None]:
        nonlocal steps
        if at == len(groups):
            steps += 1
            if any(taken) and (partial or not any(taken[n] < most_here[groups[n]] and fits(n) for n in range(at))):
                found.append(tuple((group, count) for group, count in zip(groups, taken, strict=True) if count))
            yield
            return
        for count in range(room(at), -1, -1):
            taken[at] = count
            for d, amount in needs[at]:
                free[d] -= amount * count
            yield from fill(at + 1)
            for d, amount in needs[at]:
                free[d] += amount * count
        taken[at] = 0

    def fits(at: int) -> bool:
        return all(free[d] >= amount for d, amount in needs[at])

    for _ in fill(0):
        if len(found) > most or steps > 10 * most:
            return None
    return found
