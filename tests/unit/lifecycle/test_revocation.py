"""A machine whose pool is deleted waits for the pool to come back, and then goes; whoever holds it keeps it."""

from forebay.api.gpu_instance import PoolRef
from forebay.lifecycle.revocation import POOL_GONE_AFTER, owner_lost_since
from forebay.model.reasons import Reason
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    after,
    condition_of,
    facts,
    instance,
    listed,
    next_step,
    node,
    pod,
    record,
    rented_spec,
    seconds,
)

SPEC = rented_spec(pool_ref=PoolRef(namespace="team", name="lab"))
READY = record(S.READY, spec=SPEC)
THERE = {"node": node(), "listing": listed(instance()), "pods": (pod(),)}


def lost(at=NOW):
    return after(next_step(facts(READY, pool_exists=False, **THERE), at))


def stays(seen, now):
    step = next_step(seen, now)
    return step is None or step.status.state is S.READY


def test_the_loss_of_a_pool_is_told_and_the_machine_stays_for_a_while():
    step = next_step(facts(READY, pool_exists=False, **THERE), NOW)

    assert (step.status.state, step.reason) == (S.READY, Reason.POOL_GONE)
    assert step.sentence.startswith("GPUNodePool team/lab was deleted. Unless it is created again within")
    assert "the pods on this machine are evicted and it is terminated" in step.sentence
    assert owner_lost_since(lost()) == NOW
    assert owner_lost_since(READY) is None
    waiting = facts(lost(), pool_exists=False, **THERE)
    assert stays(waiting, NOW + POOL_GONE_AFTER - seconds(1))


def test_when_the_time_is_over_the_machine_is_drained():
    step = next_step(facts(lost(), pool_exists=False, **THERE), NOW + POOL_GONE_AFTER)

    assert (step.status.state, step.status.reason) == (S.DRAINING, R.POOL_GONE)


def test_a_pool_that_comes_back_keeps_its_machines():
    step = next_step(facts(lost(), **THERE), NOW + seconds(20))

    assert (step.status.state, step.reason) == (S.READY, Reason.BACK_IN_USE)
    assert step.sentence == "GPUNodePool team/lab exists again."
    assert step.status.message == READY.status.message, "what it said before the loss"
    assert condition_of(step.status, "PoolExists").status == "True"
    assert stays(facts(after(step), **THERE), NOW + POOL_GONE_AFTER)


def test_a_machine_that_people_hold_stays_and_a_deleted_one_goes_at_once():
    held = node(users_cordon=True)
    deleting = record(S.READY, spec=SPEC, deleting=True)

    step = next_step(facts(deleting, **{**THERE, "node": held}), NOW)

    assert (step.status.state, step.status.reason) == (S.DRAINING, R.DELETED)


def test_a_machine_that_was_never_launched_does_not_wait_for_its_pool():
    step = next_step(facts(record(S.REQUESTED, spec=SPEC), pool_exists=False), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.POOL_GONE)
