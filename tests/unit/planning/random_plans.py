"""Plans for random inputs, checked; small ones also compared with brute force. `bench/planner.py --check` runs many."""

from datetime import timedelta

from forebay.model.reasons import Reason
from forebay.planning.plan import Preferences
from forebay.planning.planner import plan
from tests.unit.planning.checker import brute_force, rank, violations
from tests.unit.planning.instances import instance, small_instance
from tests.unit.planning.odd_instances import odd_instance

PATIENT = Preferences(deadline=timedelta(minutes=1))


def planned(given):
    """The plan, with a stopped clock: the search is bounded by counts, and a busy machine must not cut it short."""
    return plan(
        given.pods,
        given.candidates,
        given.caps,
        PATIENT,
        running=given.running,
        nodes=given.nodes,
        gangs=given.gangs,
        clock=lambda: 0.0,
    )


def faults(seed, make=instance):
    given = make(seed)
    return violations(given, planned(given))


def odd_against_brute_force(seed):
    """As `against_brute_force`; pods whose rules Forebay says that it does not plan for are taken out first."""
    given = odd_instance(seed, small=True)
    while refused := {left.pod.uid for left in planned(given).left_out if left.reason is Reason.AFFINITY_NOT_PLANNED}:
        given = given._replace(pods=[pod for pod in given.pods if pod.uid not in refused])
    return _against_brute_force(given)


def against_brute_force(seed):
    """Violations, and whether as many pods are served as possible, and as cheaply."""
    return _against_brute_force(small_instance(seed))


def _against_brute_force(given):
    made = planned(given)
    mine = rank(given, [(each.candidate, each.pods) for each in made.purchases])
    best = brute_force(given)
    found = violations(given, made)
    if mine[0] == best[0] and made.bound.amount > best[1]:
        found.append(f"the bound {made.bound} is above the optimum {best[1]}")
    return found, mine[0] == best[0], mine == best
