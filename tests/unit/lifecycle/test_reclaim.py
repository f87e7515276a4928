"""A rented machine that its provider takes back is drained while there is time."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import ProvisionerRef
from forebay.lifecycle.steps import Drain, Terminate
from forebay.lifecycle.transitions import NODE_READY, with_condition
from forebay.model.sources import Capabilities, Delivery, InstancePhase
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    after,
    condition_of,
    facts,
    instance,
    listed,
    minutes,
    next_step,
    node,
    pod,
    record,
    rented_spec,
    requeue_at,
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


def test_nor_do_they_while_it_is_drained():
    leaving = record(S.DRAINING, because=R.RECLAIMED)
    stopped = step(leaving, InstancePhase.STOPPED, node=node(ready=False), pods=(pod(),))
    assert (stopped.status.state, stopped.reason) == (S.TERMINATING, R.RECLAIMED)
    assert "simulated has stopped it, and team/train with it" in stopped.sentence
    assert stopped.given_up == {pod().uid}
    empty = step(leaving, InstancePhase.STOPPED, node=None)
    assert empty.sentence.endswith("simulated has stopped it.")

    running = step(leaving, InstancePhase.RUNNING, node=node(ready=False), pods=(pod(),))
    assert isinstance(running, Drain), "they may end yet"


@pytest.mark.parametrize(("state", "reason"), [(S.LAUNCHED, R.LAUNCH_FAILED), (S.READY, R.UNHEALTHY)])
def test_one_that_failed_at_the_provider_cools_its_offer_down(state, reason):
    leaving = step(record(state), InstancePhase.FAILED, message="host error.")
    assert (leaving.status.state, leaving.reason, leaving.status.failures) == (S.TERMINATING, reason, 1)
    assert "failed: host error. Terminating it." in leaving.sentence


def test_one_that_is_said_to_have_failed_serves_on_while_its_node_is_ready():
    told = next_step(facts(record(S.READY), node=node(), listing=listed(instance(phase=InstancePhase.FAILED))), NOW)
    assert getattr(told, "status", None) is None or told.status.state is S.READY
    assert step(record(S.READY), InstancePhase.FAILED, node=node(ready=False)).status.state is S.TERMINATING


def test_a_member_of_a_group_that_somebody_else_asked_for_is_left_to_its_group_when_it_fails():
    member = replace(rented_spec(), node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))

    def failed(**fields):
        return step(record(S.LAUNCHED, **fields), InstancePhase.FAILED)

    assert failed(spec=member, attempt=None) is None
    assert failed(spec=member).reason is R.LAUNCH_FAILED
    assert failed(attempt=None).reason is R.LAUNCH_FAILED


ENDS_BY_ITSELF = Capabilities(deliveries=(Delivery.NODE,), dead_man_switch=True)
ORDERED_FOR = rented_spec(max_run_time="26h")


def ready_record(spec):
    of = record(S.READY, spec=spec)
    return replace(of, status=with_condition(of.status, NODE_READY, True, R.NODE_READY, "Node is Ready.", NOW))


def at_age(age, of=None, **told):
    """The facts about a machine of this age, which was ordered for 26 hours."""
    now = NOW + age
    of = of or ready_record(ORDERED_FOR)
    listing = listed(instance(**told), asked=now)
    return facts(of, ENDS_BY_ITSELF, listing=listing, node=node(), pods=(pod(),)), now


def test_a_machine_that_its_provider_ends_as_ordered_is_replaced_before_that():
    """Its pool's expireAfter was raised since, or a pod on it must not be disrupted: it would end without a notice."""
    before = at_age(minutes(25 * 60 + 29))
    assert next_step(*before) is None
    assert requeue_at(*before) == NOW + minutes(25 * 60 + 30)

    noticed = next_step(*at_age(minutes(25 * 60 + 30)))
    told = condition_of(noticed.status, "Replacement")
    assert (told.status, told.reason, noticed.status.state) == ("True", R.RECLAIMED, S.READY)
    assert told.message == (
        "simulated takes a100x2 in us-east at simulated back at 14:00:00 UTC: it was ordered for no longer "
        "(spec.maxRunTime of its GPUInstance). Its node is drained when a replacement is Ready, or at 13:58:00 UTC."
    )
    assert requeue_at(*at_age(minutes(25 * 60 + 31), after(noticed))) == NOW + minutes(26 * 60 - 2)
    leaving = next_step(*at_age(minutes(26 * 60 - 2), after(noticed)))
    assert (leaving.status.state, leaving.reason) == (S.DRAINING, R.RECLAIMED)


def test_the_end_that_the_provider_tells_counts_more_than_the_one_ordered():
    """Google ends no machine later than after 120 days."""
    noticed = next_step(*at_age(minutes(45), ends_at=NOW + minutes(60)))
    assert "back at 13:00:00 UTC" in noticed.sentence
    assert next_step(*at_age(minutes(29), ends_at=NOW + minutes(60))) is None


def test_members_of_groups_are_left_to_these_when_their_time_ends():
    member = replace(ORDERED_FOR, provisioner_ref=ProvisionerRef(name="gpus", group="near"))
    assert next_step(*at_age(minutes(26 * 60), ready_record(member))) is None


def test_a_provider_that_ends_nothing_by_itself_takes_nothing_back():
    seen, now = at_age(minutes(26 * 60))
    assert next_step(replace(seen, capabilities=Capabilities(deliveries=(Delivery.NODE,))), now) is None
