"""Plans for random inputs, checked; small ones also compared with brute force. `bench/planner.py --check` runs many."""

from datetime import timedelta

from forebay.planning.plan import Preferences
from forebay.planning.planner import plan
from tests.unit.planning.checker import brute_force, rank, violations
from tests.unit.planning.instances import instance, small_instance

PATIENT = Preferences(deadline=timedelta(minutes=1))


def planned(given):
    """The plan, with a stopped clock: the search is bounded by counts, and a busy machine must not cut it short."""
    return plan(
        given.pods,
        given.candidates,
        given.caps,
        PATIENT,
        running=given.running,
        gangs=given.gangs,
        clock=lambda: 0.0,
    )


def faults(seed):
    given = instance(seed)
    return violations(given, planned(given))


def against_brute_force(seed):
    """Violations, and whether as many pods are served as possible, and as cheaply."""
    given = small_instance(seed)
    made = planned(given)
    mine = rank(given, [(each.candidate, each.pods) for each in made.purchases])
    best = brute_force(given)
    found = violations(given, made)
    if mine[0] == best[0] and made.bound.amount > best[1]:
        found.append(f"the bound {made.bound} is above the optimum {best[1]}")
    return found, mine[0] == best[0], mine == best
