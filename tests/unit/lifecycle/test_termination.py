"""Termination: nothing with running pods is terminated, and no record is Gone without proof of absence."""

import itertools

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, SecondaryResource
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS, termination_accepted, termination_failed
from forebay.lifecycle.next_step import awaits_listing, step_or_wait
from forebay.lifecycle.secondary_resources import deleted
from forebay.lifecycle.steps import DeleteRecord, DeleteResources, Drain, Terminate, Uncordon, WriteStatus
from forebay.model.sources import Failure, FailureKind, InstancePhase
from forebay.model.workloads import Owner
from tests.unit.lifecycle.builders import (
    NOW,
    RENTED,
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
    requeue_at,
    seconds,
)

BROKEN = Failure(kind=FailureKind.UNAVAILABLE, sentence="The power controller answered 500.")


def accepted(of, at=NOW):
    return replace_status(of, termination_accepted(of, at))


def replace_status(of, status):
    return after(WriteStatus(record=of, reason=R.TERMINATED, sentence="", status=status))


def test_an_idle_machine_is_cordoned_checked_again_and_then_terminated():
    idle = record(S.DRAINING)

    cordon = next_step(facts(idle, node=node()), NOW)
    assert isinstance(cordon, Drain)
    assert cordon.evict == ()
    cordoned = facts(idle, node=node(cordoned=NOW + seconds(1)))
    assert next_step(cordoned, NOW + seconds(3)) is None, "the scheduler may just have bound a pod"
    assert requeue_at(cordoned, NOW + seconds(3)) == NOW + seconds(4)
    gone = next_step(cordoned, NOW + seconds(4))
    assert (gone.status.state, gone.status.reason) == (S.TERMINATING, R.IDLE)
    call = next_step(facts(after(gone), node=node(cordoned=NOW + seconds(1))), NOW + seconds(4))
    assert isinstance(call, Terminate)
    assert call.instance_id == "i-1"
    assert call.status.termination_attempts == 1


def test_pods_that_came_in_the_meantime_keep_an_idle_machine():
    idle = record(S.DRAINING)

    first = next_step(facts(idle, node=node(cordoned=NOW), pods=(pod(),)), NOW + seconds(5))
    assert isinstance(first, Uncordon), "a Ready node must take pods"
    back = next_step(facts(idle, node=node(), pods=(pod(),)), NOW + seconds(5))
    assert (back.status.state, back.status.reason) == (S.READY, R.BACK_IN_USE)
    assert "team/train" in back.sentence


def test_a_users_cordon_is_left_on_a_machine_that_is_kept():
    back = next_step(facts(record(S.DRAINING), node=node(users_cordon=True), pods=(pod(),)), NOW)

    assert isinstance(back, WriteStatus)
    assert back.status.state is S.READY


def test_a_node_without_gpus_on_which_a_gpu_pod_runs_after_all_is_kept():
    draining, pods = record(S.DRAINING, because=R.GPUS_MISSING), (pod(),)
    assert isinstance(next_step(facts(draining, node=node(gpus=0, cordoned=NOW), pods=pods), NOW), Uncordon)
    back = next_step(facts(draining, node=node(gpus=0), pods=pods), NOW)
    assert (back.status.state, back.status.reason) == (S.READY, R.NODE_READY)


@pytest.mark.parametrize(
    ("why", "kept"),
    [
        (R.DRIFTED, {"owner": Owner("Job", "train", "uid-job")}),
        (R.DRIFTED, {"owner": None}),
        (R.EXPIRED, {"annotations": {"forebay.dev/do-not-disrupt": "true"}}),
    ],
)
def test_a_pod_that_comes_in_the_last_moment_and_must_stay_keeps_its_node(why, kept):
    """The node would not have been drained for that reason with such a pod on it."""
    draining, came = record(S.DRAINING, because=why), replace(pod(), **kept)
    draining = replace(draining, spec=replace(draining.spec, pool_ref=PoolRef(namespace="team", name="pool")))

    assert isinstance(next_step(facts(draining, node=node(cordoned=NOW), pods=(came,)), NOW), Uncordon)
    back = next_step(facts(draining, node=node(), pods=(came,)), NOW)
    assert (back.status.state, back.status.reason) == (S.READY, R.BACK_IN_USE)
    assert "team/train is there and must not be moved" in back.sentence
    moves = replace(pod(), owner=Owner("ReplicaSet", "serve", "uid-set"))
    assert isinstance(next_step(facts(draining, node=node(cordoned=NOW), pods=(moves,)), NOW + seconds(5)), Drain)


@pytest.mark.parametrize("why", [R.DELETED, R.EXPIRED, R.UNHEALTHY, R.POOL_GONE, R.GPUS_MISSING])
def test_pods_are_evicted_from_a_machine_that_has_to_go(why):
    gpus = 0 if why is R.GPUS_MISSING else 1
    pods = (pod("a", gpus=gpus), pod("b", gpus=gpus), pod("leaving", gpus=gpus, deleted=NOW))
    draining = record(S.DRAINING, because=why)
    there = node(cordoned=NOW, ready=why is not R.UNHEALTHY, gpus=0 if why is R.GPUS_MISSING else 2)

    class_exists = why is not R.POOL_GONE

    step = next_step(facts(draining, node=there, pods=pods, class_exists=class_exists), NOW + seconds(5))

    assert isinstance(step, Drain)
    assert [each.name for each in step.evict] == ["a", "b"], "one is being deleted already"
    assert "team/a, team/b and team/leaving" in step.sentence
    waiting = facts(after(step), node=there, pods=pods, class_exists=class_exists)
    assert next_step(waiting, NOW + seconds(6)) is None, "they are not evicted in every tick"
    assert isinstance(next_step(waiting, NOW + seconds(15)), Drain), "but again, for as long as it takes"
    empty = next_step(facts(after(step), node=there, class_exists=class_exists), NOW + seconds(20))
    assert (empty.status.state, empty.status.reason) == (S.TERMINATING, why)


@pytest.mark.parametrize("why", [R.UNHEALTHY, R.JOIN_TIMEOUT, R.GPUS_MISSING])
def test_a_node_that_is_initialized_late_is_kept_with_its_pods(why):
    """Pods came between the decision and the cordon; they run, and the node is what they need."""
    draining = record(S.DRAINING, because=why)

    step = next_step(facts(draining, node=node(cordoned=NOW), pods=(pod(),)), NOW + seconds(5))
    assert isinstance(step, Uncordon)
    back = next_step(facts(draining, node=node(), pods=(pod(),)), NOW + seconds(6))
    assert (back.status.state, back.status.reason) == (S.READY, R.NODE_READY)


def test_pods_that_are_being_deleted_are_waited_for():
    draining = record(S.DRAINING, because=R.DELETED)
    leaving = facts(draining, node=node(cordoned=NOW), pods=(pod(deleted=NOW),))

    assert next_step(leaving, NOW + minutes(30)) is None
    assert requeue_at(leaving, NOW + minutes(30)) == NOW + minutes(30) + seconds(10)


def test_pods_that_come_back_after_each_eviction_end_with_a_rented_machine():
    draining, there = record(S.DRAINING, because=R.EXPIRED), node(cordoned=NOW)

    def seen(of, *created):
        return facts(of, node=there, pods=tuple(replace(pod(f"web-{at}"), created=NOW + seconds(at)) for at in created))

    early = next_step(seen(draining, 3, 4), NOW + minutes(30))
    assert [each.name for each in early.evict] == ["web-3"], "the scheduler may have bound it before the cordon"
    assert isinstance(next_step(seen(draining, 299), NOW + minutes(30)), Drain), "evictions of it may be blocked"
    assert isinstance(next_step(seen(draining, 299, 600), NOW + minutes(30)), Drain)
    step = next_step(seen(draining, 301, 302), NOW + minutes(6))
    assert (step.status.state, step.status.reason, step.given_up) == (
        S.TERMINATING,
        R.EXPIRED,
        {"uid-web-301", "uid-web-302"},
    )
    assert "team/web-301 and team/web-302 came to it although it is cordoned" in step.sentence
    call = next_step(seen(after(step), 303), NOW + minutes(6))
    assert isinstance(call, Terminate), "another one has come meanwhile"
    assert call.given_up == {"uid-web-303"}


def test_pods_that_come_back_after_each_eviction_keep_an_owned_machine_on():
    draining = record(S.DRAINING, because=R.EXPIRED, owned=True)
    pods = (replace(pod("web"), created=NOW + minutes(20)),)
    step = next_step(facts(draining, node=node("gpu-1", cordoned=NOW), pods=pods), NOW + minutes(30))
    assert isinstance(step, Drain)
    assert step.evict == pods
    assert "keeps it from being powered off" in step.sentence


def test_pods_on_a_lost_node_are_not_waited_for_for_ever():
    draining = record(S.DRAINING, because=R.UNHEALTHY)
    lost = facts(draining, node=node(ready=False, cordoned=NOW), pods=(pod(deleted=NOW),))

    assert next_step(lost, NOW + minutes(9)) is None
    assert next_step(lost, NOW + minutes(10)).status.state is S.TERMINATING


def test_a_node_that_recovers_while_it_is_drained_is_kept():
    draining = record(S.DRAINING, because=R.UNHEALTHY)

    assert isinstance(next_step(facts(draining, node=node(cordoned=NOW), pods=(pod(),)), NOW), Uncordon)
    back = next_step(facts(draining, node=node(), pods=(pod(),)), NOW)
    assert (back.status.state, back.status.reason) == (S.READY, R.NODE_READY)


def test_a_deleted_machine_is_drained_even_if_it_is_in_use_again():
    idle = record(S.DRAINING, deleting=True)

    step = next_step(facts(idle, node=node(cordoned=NOW), pods=(pod(),)), NOW)

    assert (step.status.state, step.status.reason) == (S.DRAINING, R.DELETED)
    assert isinstance(next_step(facts(after(step), node=node(cordoned=NOW), pods=(pod(),)), NOW + seconds(5)), Drain)


def test_a_machine_whose_node_is_missing_needs_no_drain():
    assert next_step(facts(record(S.DRAINING)), NOW).status.state is S.TERMINATING


def test_the_termination_call_is_repeated_with_backoff():
    going = record(S.TERMINATING)
    now, calls = NOW, []
    while now < NOW + minutes(60):
        step = next_step(facts(going, listing=listed(instance(), asked=now)), now)
        if isinstance(step, Terminate):
            calls.append(now)
            going = replace_status(step.record, termination_failed(after(step), BROKEN, now))
        now += seconds(1)

    waits = [int((later - sooner).total_seconds()) for sooner, later in itertools.pairwise(calls)]
    assert waits[:8] == [2, 4, 8, 16, 32, 64, 128, 256]
    assert set(waits[8:]) == {300}
    assert going.status.reason == R.TERMINATION_FAILED
    assert "answered 500" in going.status.message
    assert "Billing may continue" in going.status.message


def test_a_crash_between_the_attempt_and_its_outcome_does_not_shorten_the_backoff():
    step = next_step(facts(record(S.TERMINATING)), NOW)

    assert next_step(facts(after(step)), NOW + seconds(1)) is None
    assert isinstance(next_step(facts(after(step)), NOW + seconds(2)), Terminate)


def test_two_listings_after_the_accepted_call_are_proof():
    going = accepted(record(S.TERMINATING))

    before = facts(going, listing=listed(asked=NOW - seconds(1)))
    assert next_step(before, NOW + seconds(1)) is None, "that listing was requested before"
    once = next_step(facts(going, listing=listed(asked=NOW + seconds(2))), NOW + seconds(2))
    assert (once.status.state, once.status.absences) == (S.TERMINATING, 1)
    assert once.sentence.endswith(" is missing from 1 listing of simulated.")
    assert awaits_listing(after(once), NOW + seconds(2))
    assert next_step(facts(after(once), listing=listed(asked=NOW + seconds(2))), NOW + seconds(3)) is None
    twice = next_step(facts(after(once), listing=listed(asked=NOW + seconds(4))), NOW + seconds(4))

    assert (twice.status.state, twice.status.reason) == (S.GONE, R.TERMINATED)
    assert twice.status.billed_until == NOW + seconds(2), "the first of them shows that it had ended"


def test_a_provider_is_not_listed_more_often_for_ever():
    going = record(S.TERMINATING, since=NOW, termination_attempts=1, attempted_at=NOW + minutes(1))
    assert awaits_listing(going, NOW + minutes(3))
    assert not awaits_listing(going, NOW + minutes(4))
    for calls, worth in ((MAX_ATTEMPTS, True), (MAX_ATTEMPTS + 1, False)):
        repeated = record(S.TERMINATING, since=NOW, termination_attempts=calls, attempted_at=NOW + minutes(4))
        assert awaits_listing(repeated, NOW + minutes(5)) is worth, "the first calls may each be the one that works"
    stuck = record(S.TERMINATING, since=NOW, termination_attempts=40, attempted_at=NOW + minutes(200))
    assert not awaits_listing(stuck, NOW + minutes(200)), "the call is repeated every five minutes, for weeks"
    shown_off = record(S.READY, owned=True, absences=2, absent_at=NOW)
    assert not awaits_listing(shown_off, NOW), "its status says that it is off, its node that it is on"


def test_an_instance_that_is_listed_again_between_two_listings_is_not_gone():
    going = accepted(record(S.TERMINATING))
    for asked, shown in ((2, False), (4, True), (6, False)):
        at = NOW + seconds(asked)
        listing = listed(*([instance(phase=InstancePhase.ENDING)] if shown else []), asked=at)
        going = after(next_step(facts(going, listing=listing), at))

    assert going.status.state is S.TERMINATING
    assert going.status.absences == 1


def test_without_a_listing_absence_is_never_proven():
    going = accepted(record(S.TERMINATING))

    assert next_step(facts(going), NOW + minutes(600)) is None


def test_an_accepted_termination_without_effect_is_repeated():
    going = accepted(record(S.TERMINATING, termination_attempts=1))
    still = facts(going, listing=listed(instance(phase=InstancePhase.ENDING), asked=NOW + seconds(100)))

    assert next_step(still, NOW + seconds(119)) is None
    step = next_step(still, NOW + seconds(120))
    assert isinstance(step, Terminate)
    assert step.reason is R.TERMINATION_FAILED
    assert step.status.termination_accepted_at is None
    assert "it is still listed" in step.sentence


def test_secondary_resources_must_be_gone_too():
    key = SecondaryResource(kind="TailscaleKey", name="k-1")
    going = accepted(record(S.TERMINATING, secondary_resources=(key,)))
    gone = listed(asked=NOW + seconds(9))
    going = after(next_step(facts(going, listing=listed(asked=NOW + seconds(5))), NOW + seconds(5)))

    step = next_step(facts(going, listing=gone), NOW + seconds(9))

    assert step.status.state is S.GONE, "billing ends with the machine"
    left = after(step)
    delete = next_step(facts(left), NOW + seconds(9))
    assert isinstance(delete, DeleteResources)
    assert delete.resources == (key,)
    failed = replace_status(left, deleted(left, (), {key: "The server answered 503."}, NOW + seconds(9)))
    expired = NOW + minutes(61)
    assert isinstance(next_step(facts(failed), expired), DeleteResources), "the record waits for it, however long"
    cleared = replace_status(failed, deleted(failed, (key,), {}, expired))
    assert isinstance(next_step(facts(cleared), expired), DeleteRecord)


def test_a_machine_of_unknown_presence_is_off_when_the_call_was_accepted_and_its_node_is_not_ready():
    going = record(S.TERMINATING, owned=True)
    unknown = {"listing": listed(unknown=["gpu-1"])}
    unready, alive = node("gpu-1", ready=False), node("gpu-1", cordoned=NOW - minutes(1))

    assert isinstance(next_step(facts(going, node=unready, **unknown), NOW), Terminate), "an unready node is no proof"
    off = accepted(going)
    assert next_step(facts(off, node=alive, **unknown), NOW + seconds(60)) is None, (
        "a kubelet is missed only after a while"
    )
    for seen in (unready, None):
        step = next_step(facts(off, node=seen, **unknown), NOW + seconds(60))
        assert step.status.state is S.GONE
        assert step.status.billed_until == NOW + seconds(60)


def test_a_machine_that_stays_on_after_power_off_is_powered_off_again():
    off = accepted(record(S.TERMINATING, owned=True, termination_attempts=1))
    on = facts(off, node=node("gpu-1", cordoned=NOW), listing=listed(unknown=["gpu-1"]))

    assert next_step(on, NOW + seconds(119)) is None
    step = next_step(on, NOW + seconds(120))

    assert isinstance(step, Terminate)
    assert step.reason is R.TERMINATION_FAILED
    assert "node gpu-1 is still Ready" in step.sentence
    assert "by hand" in step.sentence


def test_a_listing_without_a_machine_whose_node_is_ready_is_no_proof():
    off = accepted(record(S.TERMINATING, owned=True))
    for asked in (5, 10, 15):
        at = NOW + seconds(asked)
        step = next_step(facts(off, node=node("gpu-1", cordoned=NOW), listing=listed(asked=at)), at)
        off = after(step) if step is not None else off

    assert off.status.state is S.TERMINATING
    gone = next_step(
        facts(off, node=node("gpu-1", ready=False), listing=listed(asked=NOW + seconds(20))), NOW + seconds(60)
    )
    assert gone.status.state is S.GONE
    assert gone.sentence == "gpu-1 is off: missing from 2 consecutive listings of webhook."


def test_a_machine_whose_power_on_was_never_answered_is_billed_until_it_is_off():
    # It may have run from the first call on, and what it was billed must not vanish from the ledgers.
    lost = record(S.TERMINATING, owned=True, because=R.LAUNCH_FAILED, instance_id=None, billed_from=NOW)
    off = accepted(lost, NOW + RENTED.settle_time + seconds(1))
    asked = NOW + RENTED.settle_time + seconds(30)

    once = next_step(facts(off, node=node("gpu-1", ready=False), listing=listed(asked=asked)), asked)
    later = asked + seconds(30)
    twice = next_step(facts(after(once), node=node("gpu-1", ready=False), listing=listed(asked=later)), later)

    assert twice.sentence == "gpu-1 is off: missing from 2 consecutive listings of webhook."
    assert (twice.status.billed_from, twice.status.billed_until) == (NOW, asked)


def test_a_launch_that_never_shows_up_is_gone_after_two_listings_past_its_settle_time_and_was_never_billed():
    lost = record(S.TERMINATING, because=R.LAUNCH_FAILED, instance_id=None)
    settled = NOW + RENTED.settle_time

    assert next_step(facts(lost, listing=listed(asked=settled)), settled + seconds(1)) is None, "it might still show up"
    once = next_step(facts(lost, listing=listed(asked=settled + seconds(1))), settled + seconds(1))
    twice = next_step(facts(after(once), listing=listed(asked=settled + seconds(3))), settled + seconds(3))

    assert twice.status.state is S.GONE
    assert (twice.status.billed_from, twice.status.billed_until) == (None, None)


def test_a_launch_that_shows_up_late_is_terminated():
    lost = record(S.TERMINATING, because=R.LAUNCH_FAILED, instance_id=None)

    step = next_step(facts(lost, listing=listed(instance("i-late"), asked=NOW + seconds(30))), NOW + seconds(30))

    assert isinstance(step, Terminate)
    assert (step.instance_id, step.status.instance_id) == ("i-late", "i-late")


def test_an_instance_terminated_by_hand_is_gone_though_the_call_keeps_failing():
    refused = record(S.TERMINATING, not_before=NOW + minutes(60), termination_attempts=9)
    first, second = NOW + RENTED.settle_time + seconds(1), NOW + RENTED.settle_time + seconds(31)

    once = next_step(facts(refused, listing=listed(asked=first)), first)
    twice = next_step(facts(after(once), listing=listed(asked=second)), second)

    assert twice.status.state is S.GONE


@pytest.mark.parametrize(
    ("because", "billed"), [(R.IDLE, seconds(5)), (R.JOIN_TIMEOUT, RENTED.settle_time + seconds(1))]
)
def test_a_machine_whose_node_registered_is_billed_until_the_first_listing_without_it_though_none_showed_it(
    because, billed
):
    # The operator died so often that no listing was at hand when the record was written; so did the termination call's
    # answer.
    lost = record(S.TERMINATING, because=because, since=NOW, not_before=NOW + minutes(60), termination_attempts=1)
    for after_seconds in (5, 35, 121, 151):
        asked = NOW + seconds(after_seconds)
        step = next_step(facts(lost, listing=listed(asked=asked)), asked)
        lost = lost if step is None else after(step)

    assert lost.status.state is S.GONE
    assert lost.status.billed_until == NOW + billed, "of one that nothing has shown, listings may have lagged"


def test_a_leftover_that_pods_run_on_is_drained_before_it_is_terminated():
    leftover = record(S.TERMINATING, because=R.LEFTOVER)

    cordon = next_step(facts(leftover, node=node(), pods=(pod(),)), NOW)
    assert isinstance(cordon, Drain)
    evict = next_step(facts(leftover, node=node(cordoned=NOW), pods=(pod(),)), NOW + seconds(3))
    assert isinstance(evict, Drain)
    assert evict.evict == (pod(),)
    assert isinstance(next_step(facts(after(evict), node=node(cordoned=NOW)), NOW + seconds(13)), Terminate)


def test_an_instance_that_vanishes_while_it_is_drained_is_gone():
    draining = record(S.DRAINING)
    first, second = NOW + minutes(5), NOW + minutes(6)

    once = next_step(facts(draining, node=node(ready=False), listing=listed(asked=first)), first)
    twice = next_step(facts(after(once), node=node(ready=False), listing=listed(asked=second)), second)

    assert (twice.status.state, twice.status.reason) == (S.GONE, R.VANISHED)


def test_a_gone_machine_is_uncordoned_and_its_record_kept_for_an_hour():
    gone = record(S.GONE, owned=True)

    step = next_step(facts(gone, node=node("gpu-1", ready=False, cordoned=NOW)), NOW)
    assert isinstance(step, Uncordon)
    kept = facts(gone, node=node("gpu-1", ready=False))
    assert next_step(kept, NOW + minutes(59)) is None
    assert requeue_at(kept, NOW) == NOW + minutes(60)
    assert isinstance(next_step(kept, NOW + minutes(60)), DeleteRecord)


def test_a_gone_record_is_deleted_on_request_and_also_without_its_provider():
    assert isinstance(next_step(facts(record(S.GONE, deleting=True)), NOW), DeleteRecord)
    without = replace(facts(record(S.GONE)), capabilities=None)
    assert isinstance(next_step(without, NOW + minutes(60)), DeleteRecord)


@pytest.mark.parametrize(
    "sign",
    [{"node": node("gpu-1")}, {"listing": listed(instance("gpu-1", owner=None))}],
    ids=["its node is ready", "it is listed as running"],
)
def test_the_record_of_a_gone_machine_that_is_on_again_is_deleted(sign):
    assert isinstance(next_step(facts(record(S.GONE, owned=True), **sign), NOW + minutes(1)), DeleteRecord)


@pytest.mark.parametrize(
    ("changes", "facts_of", "kept"),
    [
        pytest.param({}, {}, True, id="the call failed, the node is up and a pod waits"),
        pytest.param({}, {"needed": False}, False, id="nobody waits for it"),
        pytest.param({"termination_accepted_at": NOW}, {}, False, id="a termination was accepted"),
        pytest.param({"termination_attempts": None}, {}, False, id="no call yet"),
        pytest.param({}, {"node": None}, False, id="its node is gone"),
        pytest.param({}, {"class_exists": False}, False, id="its class is gone"),
    ],
)
def test_a_machine_that_could_not_be_powered_off_is_kept_for_pods_that_wait(changes, facts_of, kept):
    failed = {"termination_attempts": 3, "attempted_at": NOW - minutes(1), **changes}
    of = record(S.TERMINATING, owned=True, since=NOW - minutes(5), **failed)
    step, _ = step_or_wait(facts(of, **{"node": node("gpu-1"), "needed": True, **facts_of}), NOW)

    state = step.status.state if isinstance(step, WriteStatus) else None
    assert (state is S.READY) is kept
    if kept:
        assert (step.reason, step.status.termination_attempts) == (R.BACK_IN_USE, None)


def test_a_power_off_that_failed_a_moment_ago_may_have_acted():
    of = record(S.TERMINATING, owned=True, since=NOW - minutes(5), termination_attempts=1, attempted_at=NOW)

    step, _ = step_or_wait(facts(of, node=node("gpu-1"), needed=True), NOW)
    assert isinstance(step, Drain)
    assert step.evict == ()
    cordoned = facts(of, node=node("gpu-1", cordoned=NOW), needed=True)
    assert step_or_wait(cordoned, NOW) == (None, NOW + minutes(1))


def test_a_node_that_joins_before_the_power_off_is_repeated_is_cordoned_at_once():
    failed = {"termination_attempts": 1, "attempted_at": NOW, "not_before": NOW + seconds(30)}
    of = record(S.TERMINATING, owned=True, since=NOW, **failed)

    assert isinstance(next_step(facts(of, node=node("gpu-1")), NOW), Drain)
    assert requeue_at(facts(of, node=node("gpu-1", cordoned=NOW)), NOW) == NOW + seconds(30)
