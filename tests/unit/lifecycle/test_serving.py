"""Ready: nothing is concluded in haste, and nothing kept that is lost."""

import pytest
from msgspec.structs import replace

from forebay.api.parts import Truth
from forebay.lifecycle.next_step import awaits_listing, look_again, next_step
from forebay.lifecycle.steps import Uncordon
from forebay.model.sources import Capabilities, Delivery, InstancePhase
from tests.unit.lifecycle.scenes import (
    NOW,
    R,
    S,
    after,
    facts,
    instance,
    listed,
    minutes,
    node,
    pod,
    record,
    said,
    seconds,
)

LATER = NOW + minutes(60)


def unhealthy(since=LATER, **fields):
    """A record that has already said that its node is not ready."""
    first = next_step(facts(record(S.READY, **fields), node=node(ready=False)), since)
    assert first.status.state is S.READY
    assert said(first.status, "NodeReady").status is Truth.FALSE
    return after(first)


def test_a_healthy_machine_needs_nothing():
    healthy = facts(record(S.READY), node=node(), listing=listed(instance(), asked=LATER))
    step = next_step(healthy, LATER)
    settled = facts(after(step), node=node(), listing=healthy.listing) if step is not None else healthy

    assert next_step(settled, LATER + seconds(1)) is None
    assert look_again(settled, LATER) is None, "only news can change this"
    assert not awaits_listing(settled.record, LATER)


def test_a_node_that_is_not_ready_for_five_minutes_is_drained_and_given_up():
    sick = unhealthy()
    waiting = facts(sick, node=node(ready=False), pods=(pod(),))

    assert next_step(waiting, LATER + minutes(4)) is None
    assert look_again(waiting, LATER) == LATER + minutes(5)
    step = next_step(waiting, LATER + minutes(5))
    assert (step.status.state, step.status.reason) == (S.DRAINING, R.UNHEALTHY)
    assert step.status.failures == 1


@pytest.mark.parametrize("gone", [None, node(ready=False)], ids=["vanished node", "dead node"])
def test_a_node_without_pods_that_is_lost_goes_at_once(gone):
    step = next_step(facts(unhealthy(), node=gone), LATER + minutes(5))

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.UNHEALTHY)


def test_a_node_that_recovers_in_time_is_kept():
    step = next_step(facts(unhealthy(), node=node()), LATER + minutes(4))

    assert step.status.state is S.READY
    assert said(step.status, "NodeReady").status is Truth.TRUE
    assert step.status.reason == R.NODE_READY, "the remark is taken back"
    again = facts(after(step), node=node(ready=False))
    assert next_step(again, LATER + minutes(5)).status.state is S.READY, "and the five minutes begin anew"


def test_while_the_brake_is_on_nothing_is_given_up_and_that_is_said_once():
    braked = facts(unhealthy(), node=node(ready=False), braked=True)

    step = next_step(braked, LATER + minutes(6))

    assert (step.status.state, step.status.reason) == (S.READY, R.DISRUPTION_PAUSED)
    assert "Look at the network and the control plane" in step.sentence
    told = replace(braked, record=after(step))
    assert next_step(told, LATER + minutes(7)) is None
    released = next_step(replace(told, braked=False), LATER + minutes(8))
    assert released.status.reason == R.UNHEALTHY


def test_an_instance_missing_from_two_lists_has_vanished():
    ready = record(S.READY)
    lost = {"node": node(ready=False)}

    once = next_step(facts(ready, listing=listed(asked=LATER), **lost), LATER)
    assert (once.status.absences, once.status.absent_since) == (1, LATER)
    assert awaits_listing(after(once), LATER), "the second list is worth asking for soon"
    twice = next_step(facts(after(once), listing=listed(asked=LATER + seconds(2)), **lost), LATER + seconds(2))

    assert (twice.status.state, twice.status.reason) == (S.GONE, R.VANISHED)
    assert twice.status.failures is None, "it has been of use"
    assert twice.status.billed_until == LATER + seconds(2)


def test_an_instance_that_shows_up_again_was_never_gone():
    ready = record(S.READY)
    once = next_step(facts(ready, node=node(), listing=listed(asked=LATER)), LATER)

    back = next_step(facts(after(once), node=node(), listing=listed(instance(), asked=LATER + seconds(2))), LATER)

    assert (back.status.absences, back.status.absent_since) == (None, None)


def test_a_ready_node_is_believed_more_than_a_list():
    ready = record(S.READY)
    for count in range(5):
        now = LATER + seconds(30 * count)
        step = next_step(facts(ready, node=node(), listing=listed(asked=now)), now)
        if step is not None:
            ready = after(step)

    assert ready.status.state is S.READY
    assert ready.status.absences == 2, "and there is no write for each list for ever"


@pytest.mark.parametrize(
    "listing",
    [None, listed(unknown=["gpu-1"], asked=LATER), listed(unknown=["gpu-1"], asked=LATER + minutes(1))],
    ids=["no list", "unknown", "unknown again"],
)
def test_from_what_is_not_known_nothing_is_concluded(listing):
    ready = record(S.READY, owned=True, conditions=record(S.READY).status.conditions)
    step = next_step(facts(ready, node=node("gpu-1"), listing=listing), LATER)

    assert step is None or step.status.absences is None


def test_a_list_made_before_the_launch_says_nothing():
    assert next_step(facts(record(S.LAUNCHED), listing=listed(asked=NOW - seconds(5))), NOW + minutes(5)) is None


def test_a_stopped_instance_still_exists():
    stopped = listed(instance(phase=InstancePhase.STOPPED), asked=LATER)
    step = next_step(facts(record(S.READY), node=node(ready=False), listing=stopped), LATER)

    assert step.status.absences is None


@pytest.mark.parametrize(
    ("deleting", "fields", "reason"),
    [
        pytest.param(True, {}, R.DELETED, id="deleted"),
        pytest.param(False, {"pool_exists": False}, R.POOL_GONE, id="pool gone"),
    ],
)
def test_what_has_to_go_is_drained_first(deleting, fields, reason):
    step = next_step(facts(record(S.READY, deleting=deleting), node=node(), **fields), LATER)

    assert (step.status.state, step.status.reason) == (S.DRAINING, reason)


def test_a_cordon_of_ours_without_a_reason_is_taken_back_and_a_users_is_not():
    ours = facts(record(S.READY), node=node(cordoned=LATER))
    users = facts(record(S.READY), node=node(users_cordon=True))

    assert isinstance(next_step(ours, LATER), Uncordon)
    assert not isinstance(next_step(users, LATER), Uncordon)


def test_a_container_is_looked_after_by_offload_and_only_ended_here():
    container = record(S.LAUNCHED)
    container.spec = replace(container.spec, delivers=Delivery.CONTAINER, node=None)
    capable = Capabilities(delivers=Delivery.CONTAINER)

    assert next_step(facts(container, capable), NOW + minutes(600)) is None
    container.metadata.deletion_timestamp = NOW
    assert next_step(facts(container, capable), NOW).status.state is S.TERMINATING
