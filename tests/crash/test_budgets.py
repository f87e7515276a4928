"""Budgets are enforced and their ledgers correct, whenever the operator dies and whatever happens to pods meanwhile."""

import pytest

from forebay.kube.lease import Terms
from forebay.simulate.power import Powered
from tests.crash.budget_worlds import Limit, Scenario, Work, happens
from tests.crash.mortal import Moment

#: Pods that end, restart, and are deleted while they run, after they ended, or by force. A dead operator stays away so
#: long that other pods end and are deleted meanwhile.
KEPT = Scenario(
    budgets=(Limit(), Limit(name="other", accounting="Observed", action="AlertOnly")),
    work=(
        Work(name="short", at=3, runs=4, deleted=9),
        Work(name="twice", gpus=2, at=3, runs=3, exits="1,0", deleted=13),
        Work(name="asked", at=4, runs=60, deleted=10),
        Work(name="torn", at=5, runs=60, deleted=11, force=True),
        Work(name="late", at=14, runs=2),
    ),
    away=8,
)
#: A pod restarts so often while the operator is down that its status no longer shows its first start.
OFTEN = Scenario(budgets=(Limit(),), work=(Work(name="often", at=3, runs=4, exits="1,1,1,0"),), outages=((6, 70),))
#: No finalizers: pods that the operator sees count.
OBSERVED = Scenario(
    budgets=(Limit(accounting="Observed"),),
    work=(
        Work(name="short", at=1, runs=4, deleted=25),
        Work(name="often", at=1, runs=2, exits="1,1,1,0"),
        Work(name="asked", at=2, runs=60, deleted=12),
        Work(name="torn", at=2, runs=60, deleted=16, force=True),
    ),
)
#: Two budgets select the same pods; the largest users are evicted one at a time, and the Job's next pod is gated.
EVICTED = Scenario(
    budgets=(Limit(seconds=40, grace=3), Limit(name="wide", seconds=60, accounting="Observed")),
    work=(
        Work(name="large", gpus=2, runs=300),
        Work(name="small", runs=300),
        Work(name="again", runs=300, job=True, at=2),
        Work(name="late", at=24),
        Work(name="theirs", at=5, runs=10, team="b"),
    ),
)
#: Jobs are suspended and, an hour later, resumed one at a time.
PAUSED = Scenario(
    budgets=(Limit(seconds=400, window=1, action="Pause"),),
    work=(
        Work(name="long", gpus=2, runs=150, job=True),
        Work(name="longer", gpus=2, runs=160, job=True),
        Work(name="lone", runs=30),
    ),
    terms=Terms(duration=300.0, renew_deadline=200.0, retry=100.0),
)
#: Machines for some of the pods: the budget has headroom for two at a time.
BOUGHT = Scenario(
    budgets=(Limit(seconds=7300, accounting="Observed"),),
    work=(Work(name="one"), Work(name="two", at=1), Work(name="three", at=2), Work(name="four", at=30, gpus=2)),
    gpus=0,
    machines=tuple(Powered(name=f"box-{number}", gpus=2, boot=5, shutdown=1) for number in range(3)),
)
_WORLDS = {"kept": KEPT, "observed": OBSERVED, "evicted": EVICTED, "bought": BOUGHT}


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("scenario", _WORLDS.values(), ids=_WORLDS)
def test_the_operator_may_die_at_any_request_about_budgets(scenario, moment):
    whole = happens(scenario)
    assert whole.found == ()
    # Watches are left out, because dying at one is like dying before the first request; the lease has its own tests.
    acts = [
        sent for sent in whole.ledger.requests if sent.at <= whole.quiet_at and not (sent.is_lease or sent.is_watch)
    ]
    # Machines cause many more requests, which `test_every_request` covers: take a sample, another for each moment.
    for sent in acts[list(Moment).index(moment) * 3 :: 6] if scenario.machines else acts:
        outcome = happens(scenario, {sent.number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())


def test_an_exact_budget_keeps_the_first_start_that_was_seen():
    outcome = happens(OFTEN)
    assert outcome.found == ()
    (pod,) = outcome.auditor.pods.values()
    ((start, end, _),) = outcome.auditor.stored(OFTEN.budgets[0])[pod.uid]
    assert (start, end) == (pod.start, pod.end)
    assert pod.shown > pod.start


def test_a_paused_job_is_resumed_whenever_the_operator_dies():
    whole = happens(PAUSED)
    assert whole.found == ()
    jobs = [sent.number for sent in whole.ledger.requests if sent.path.endswith(("/long", "/longer"))]
    assert len(jobs) >= 4
    for number in (jobs[0], jobs[-1]):
        for moment in Moment:
            outcome = happens(PAUSED, {number: moment})
            assert (number, moment, outcome.found) == (number, moment, ())
