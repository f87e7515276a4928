"""Liveness: a node is replaced only when it is lost for certain."""

import pytest
from msgspec.structs import replace

from forebay.api.parts import Truth
from forebay.lifecycle.next_step import awaits_listing
from forebay.lifecycle.steps import Uncordon
from forebay.model.requirements import Toleration
from forebay.model.sources import InstancePhase
from tests.unit.lifecycle.builders import (
    NOW,
    RENTED,
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
    requeue_at,
    seconds,
)

LATER = NOW + minutes(60)


def unhealthy(since=LATER, **fields):
    """A record whose NodeReady condition is False already."""
    first = next_step(facts(record(S.READY, **fields), node=node(ready=False)), since)
    assert first.status.state is S.READY
    assert condition_of(first.status, "NodeReady").status is Truth.FALSE
    return after(first)


def test_a_healthy_machine_needs_nothing():
    healthy = facts(record(S.READY), node=node(), listing=listed(instance(), asked=LATER))
    step = next_step(healthy, LATER)
    written = facts(after(step), node=node(), listing=healthy.listing) if step is not None else healthy

    assert next_step(written, LATER + seconds(1)) is None
    assert requeue_at(written, LATER) is None, "only a change of the facts can bring a step"
    assert not awaits_listing(written.record, LATER)


def test_a_node_that_is_not_ready_for_five_minutes_is_drained():
    waiting = facts(unhealthy(), node=node(ready=False), pods=(pod(),))

    assert next_step(waiting, LATER + minutes(4)) is None
    assert requeue_at(waiting, LATER) == LATER + minutes(5)
    step = next_step(waiting, LATER + minutes(5))
    assert (step.status.state, step.status.reason) == (S.DRAINING, R.UNHEALTHY)
    assert step.status.failures == 1


def test_a_lost_node_of_a_rented_machine_is_not_kept_for_pods_that_tolerate_everything():
    tolerant = replace(pod(), shape=replace(pod().shape, tolerations=(Toleration(key="", operator="Exists"),)))

    for owned, goes in ((False, True), (True, False)):
        lost = facts(unhealthy(owned=owned), node=node(ready=False), pods=(tolerant,))
        step = next_step(lost, LATER + minutes(60))
        assert (step is not None and step.status.state is S.DRAINING) is goes


@pytest.mark.parametrize("gone", [None, node(ready=False)], ids=["missing node", "node that is not ready"])
def test_a_lost_node_without_pods_is_terminated_without_a_drain(gone):
    step = next_step(facts(unhealthy(), node=gone), LATER + minutes(5))

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.UNHEALTHY)


def test_a_node_that_recovers_in_time_is_kept():
    step = next_step(facts(unhealthy(), node=node()), LATER + minutes(4))

    assert step.status.state is S.READY
    assert condition_of(step.status, "NodeReady").status is Truth.TRUE
    assert step.status.reason == R.NODE_READY, "the message is restored"
    again = facts(after(step), node=node(ready=False))
    assert next_step(again, LATER + minutes(5)).status.state is S.READY, "and the five minutes start over"


def test_while_replacement_is_paused_the_node_is_kept_and_the_message_written_once():
    paused = facts(unhealthy(), node=node(ready=False), replacement_paused=True)

    step = next_step(paused, LATER + minutes(6))

    assert (step.status.state, step.status.reason) == (S.READY, R.DISRUPTION_PAUSED)
    assert "Check the network and the control plane" in step.sentence
    written = replace(paused, record=after(step))
    assert next_step(written, LATER + minutes(7)) is None
    resumed = next_step(replace(written, replacement_paused=False), LATER + minutes(8))
    assert resumed.status.reason == R.UNHEALTHY


def test_an_instance_missing_from_two_listings_has_vanished():
    ready = record(S.READY)
    lost = {"node": node(ready=False)}

    once = next_step(facts(ready, listing=listed(asked=LATER), **lost), LATER)
    assert (once.status.absences, once.status.absent_since) == (1, LATER)
    assert once.sentence.endswith(" is missing from 1 listing of simulated.")
    assert awaits_listing(after(once), LATER), "the second listing is worth making soon"
    twice = next_step(facts(after(once), listing=listed(asked=LATER + seconds(2)), **lost), LATER + seconds(2))

    assert (twice.status.state, twice.status.reason) == (S.GONE, R.VANISHED)
    assert " has vanished: missing from 2 consecutive listings of simulated. " in twice.sentence
    assert twice.status.failures is None, "it has been Ready"
    assert twice.status.billed_until == LATER, "the first of them shows that it had ended"


@pytest.mark.parametrize(("ready", "billed"), [(False, 20), (True, 121)])
def test_a_machine_that_no_listing_showed_and_that_vanished_is_billed_until_its_node_was_lost_and_a_listing_missed_it(
    ready, billed
):
    machine, settled = record(S.READY), RENTED.settle_time.total_seconds()
    for after_seconds, up in ((20, ready), (settled + 1, False), (settled + 31, False)):
        asked = NOW + seconds(after_seconds)
        if machine.state is not S.GONE:
            step = next_step(facts(machine, node=node(ready=up), listing=listed(asked=asked)), asked)
            machine = machine if step is None else after(step)

    assert (machine.status.state, machine.status.reason) == (S.GONE, R.VANISHED)
    assert machine.status.billed_until == NOW + seconds(billed), "while its node is Ready, listings only lag"


def test_an_instance_that_is_listed_again_has_not_vanished():
    ready = record(S.READY)
    once = next_step(facts(ready, node=node(), listing=listed(asked=LATER)), LATER)

    back = next_step(facts(after(once), node=node(), listing=listed(instance(), asked=LATER + seconds(2))), LATER)

    assert (back.status.absences, back.status.absent_since) == (None, None)
    assert back.sentence.endswith(" is in the latest listing of simulated.")


def test_a_ready_node_counts_more_than_a_listing():
    ready = record(S.READY)
    for count in range(5):
        now = LATER + seconds(30 * count)
        step = next_step(facts(ready, node=node(), listing=listed(asked=now)), now)
        if step is not None:
            ready = after(step)

    assert ready.status.state is S.READY
    assert ready.status.absences == 2, "and not every listing causes a write"


@pytest.mark.parametrize(
    "listing",
    [None, listed(unknown=["gpu-1"], asked=LATER), listed(unknown=["gpu-1"], asked=LATER + minutes(1))],
    ids=["no listing", "unknown", "unknown again"],
)
def test_nothing_is_concluded_from_an_unknown_presence(listing):
    ready = record(S.READY, owned=True, conditions=record(S.READY).status.conditions)
    step = next_step(facts(ready, node=node("gpu-1"), listing=listing), LATER)

    assert step is None or step.status.absences is None


def test_a_listing_made_before_the_launch_does_not_count():
    assert next_step(facts(record(S.LAUNCHED), listing=listed(asked=NOW - seconds(5))), NOW + minutes(5)) is None


def test_a_stopped_instance_still_exists():
    stopped = listed(instance(phase=InstancePhase.STOPPED), asked=LATER)
    step = next_step(facts(record(S.READY), node=node(ready=False), listing=stopped), LATER)

    assert step.status.absences is None


@pytest.mark.parametrize(
    ("deleting", "fields", "reason"),
    [
        pytest.param(True, {}, R.DELETED, id="deleted"),
        pytest.param(False, {"class_exists": False}, R.POOL_GONE, id="class gone"),
    ],
)
def test_a_revoked_machine_is_drained_first(deleting, fields, reason):
    step = next_step(facts(record(S.READY, deleting=deleting), node=node(), **fields), LATER)

    assert (step.status.state, step.status.reason) == (S.DRAINING, reason)


def test_a_cordon_of_forebays_without_a_reason_is_taken_back_and_a_users_is_not():
    ours = facts(record(S.READY), node=node(cordoned=LATER))
    users = facts(record(S.READY), node=node(users_cordon=True))

    assert isinstance(next_step(ours, LATER), Uncordon)
    assert not isinstance(next_step(users, LATER), Uncordon)
