"""A rented machine that its provider takes back is drained while there is time."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import ProvisionerRef
from forebay.lifecycle.steps import Drain, Terminate
from forebay.model.sources import InstancePhase
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    after,
    facts,
    instance,
    listed,
    minutes,
    next_step,
    node,
    pod,
    record,
    rented_spec,
)

LATER = NOW + minutes(1)
NOTICE = {"reclaim_at": LATER + minutes(2)}


def step(of, phase=InstancePhase.RUNNING, **fields):
    told = {key: fields.pop(key) for key in ("reclaim_at", "message") if key in fields}
    return next_step(facts(of, listing=listed(instance(phase=phase, **told), asked=LATER), **fields), LATER)


def test_a_notice_drains_the_node_with_its_pods():
    leaving = step(record(S.READY), node=node(), pods=(pod(),), **NOTICE)

    assert (leaving.status.state, leaving.reason) == (S.DRAINING, R.RECLAIMED)
    assert "takes a100x2 in us-east at simulated back at 12:03:00 UTC" in leaving.sentence
    assert not leaving.status.failures
    drain = step(after(leaving), node=node(), pods=(pod(),), **NOTICE)
    assert isinstance(drain, Drain)


@pytest.mark.parametrize("state", [S.LAUNCHED, S.JOINED])
def test_one_that_has_not_come_up_yet_is_terminated_at_once(state):
    leaving = step(record(state), **NOTICE)
    assert (leaving.status.state, leaving.reason) == (S.TERMINATING, R.RECLAIMED)


@pytest.mark.parametrize("state", [S.LAUNCHED, S.JOINED, S.READY])
def test_one_that_the_provider_has_stopped_is_terminated_because_it_may_be_billed(state):
    leaving = step(record(state), InstancePhase.STOPPED, node=node(ready=False) if state is not S.LAUNCHED else None)
    assert (leaving.status.state, leaving.reason) == (S.TERMINATING, R.RECLAIMED)


def test_pods_of_one_that_the_provider_has_stopped_do_not_delay_its_termination():
    """They have ended, but with the kubelet nobody is left to say so."""
    leaving = record(S.TERMINATING, because=R.RECLAIMED)
    stopped = step(leaving, InstancePhase.STOPPED, node=node(ready=False), pods=(pod(),))
    assert isinstance(stopped, Terminate)
    assert stopped.given_up == {pod().uid}

    running = step(leaving, InstancePhase.RUNNING, node=node(ready=False), pods=(pod(),))
    assert isinstance(running, Drain)
    ready = step(leaving, InstancePhase.STOPPED, node=node(), pods=(pod(),))
    assert isinstance(ready, Drain)


@pytest.mark.parametrize(("state", "reason"), [(S.LAUNCHED, R.LAUNCH_FAILED), (S.READY, R.UNHEALTHY)])
def test_one_that_failed_at_the_provider_cools_its_offer_down(state, reason):
    leaving = step(record(state), InstancePhase.FAILED, message="host error.")
    assert (leaving.status.state, leaving.reason, leaving.status.failures) == (S.TERMINATING, reason, 1)
    assert "failed: host error. Terminating it." in leaving.sentence


def test_a_member_of_a_group_that_somebody_else_asked_for_is_left_to_its_group_when_it_fails():
    member = replace(rented_spec(), node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))

    def failed(**fields):
        return step(record(S.LAUNCHED, **fields), InstancePhase.FAILED)

    assert failed(spec=member, attempt=None) is None
    assert failed(spec=member).reason is R.LAUNCH_FAILED
    assert failed(attempt=None).reason is R.LAUNCH_FAILED
