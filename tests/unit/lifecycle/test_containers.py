"""A container is wanted while its pod runs, and no state of it lasts without an end."""

import pytest
from msgspec.structs import replace

from forebay.api.instance_order import ContainerRecord
from forebay.lifecycle.call_outcomes import (
    MAX_CONTAINER_WAIT,
    MAX_KILLED_CALLS,
    MAX_LAUNCH_WAIT,
    launch_failed,
    launch_prevented,
    launch_succeeded,
)
from forebay.lifecycle.container_states import FINISHED_RETENTION
from forebay.lifecycle.cooldown import cooldowns
from forebay.lifecycle.next_step import awaits_listing
from forebay.lifecycle.steps import Launch, Terminate, WriteStatus
from forebay.model.quantities import UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Failure, FailureKind, InstancePhase
from forebay.model.spans import human
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    after,
    facts,
    fresh_record,
    instance,
    listed,
    minutes,
    next_step,
    record,
    rented_spec,
    requeue_at,
    seconds,
)

RUNS = Capabilities(deliveries=(Delivery.CONTAINER,))
BILLED_UNTIL_ACCEPTED = replace(RUNS, billed_until_accepted=True)
SPEC = replace(rented_spec(), delivers=Delivery.CONTAINER, node=None)
LATER = NOW + minutes(3)


def container(state=S.LAUNCHED, **fields):
    return record(state, spec=fields.pop("spec", SPEC), **fields)


def seen(of, *phases, now=LATER, wanted=True, **fields):
    shown = [instance(phase=phase, **fields) for phase in phases]
    return facts(of, RUNS, listing=listed(*shown, asked=now), wanted=wanted)


def moved(of, *phases, now=LATER, **fields):
    step = next_step(seen(of, *phases, now=now, **fields), now)
    assert isinstance(step, WriteStatus)
    return step.status


def test_it_is_launched_for_a_pod_that_is_bound_and_not_for_one_that_has_ended():
    fresh = fresh_record(spec=SPEC)

    assert isinstance(next_step(facts(fresh, RUNS, listing=listed()), NOW), Launch)
    ended = next_step(facts(fresh, RUNS, listing=listed(), wanted=False), NOW)
    assert (ended.status.state, ended.reason) == (S.GONE, R.NOT_NEEDED)


@pytest.mark.parametrize(
    ("price", "said"),
    [(None, ""), ("0.39", ""), ("0.391", ""), ("0.45", " at $0.45/h, which was offered at $0.39/h")],
)
def test_an_accepted_launch_tells_its_price_only_where_it_is_dearer_than_the_offer(price, said):
    asked = container(S.LAUNCHING, spec=replace(SPEC, hourly_price=0.39))
    billed = None if price is None else UsdPerHour(price)

    status = launch_succeeded(asked, replace(instance(), price=billed), NOW)

    assert status.message.endswith(f" as i-1{said}. Next: the container must run.")


def test_a_container_that_is_listed_as_running_runs_at_the_price_that_is_billed():
    status = moved(container(), InstancePhase.RUNNING)

    assert (status.state, status.reason) == (S.RUNNING, R.CONTAINER_RUNNING)
    assert status.hourly_price == UsdPerHour("1.29").exact()
    assert "team/train" in status.message


def capped(state=S.LAUNCHED, *, most="1.30", billed=None):
    """A container that was offered for $1.29 an hour, and may cost `most`; the answer to its launch said `billed`."""
    order = replace(SPEC, container=ContainerRecord(image="work:1", max_hourly_price=most))
    return container(state, spec=order, hourly_price=billed)


@pytest.mark.parametrize(
    ("billed", "listed_at"), [("1.60", None), (None, "1.60"), ("1.29", "1.60")], ids=["answer", "listing", "both"]
)
def test_one_that_costs_more_than_it_may_is_terminated_and_its_offer_cools_down(billed, listed_at):
    price = None if listed_at is None else UsdPerHour(listed_at)
    status = moved(capped(billed=billed), InstancePhase.STARTING, price=price)

    assert (status.state, status.reason, status.failures) == (S.TERMINATING, R.PRICE_RAISED, 1)
    assert "bills $1.60/h" in status.message
    assert "offered at $1.29/h" in status.message
    assert "allowed $1.30/h" in status.message
    assert cooldowns((replace(capped(), status=status),), LATER)


@pytest.mark.parametrize("price", ["1.29", "1.30", "1.3000001"], ids=["less", "as much", "as much, rounded"])
def test_one_that_costs_no_more_than_it_may_goes_on(price):
    assert moved(capped(billed=price), InstancePhase.RUNNING, price=UsdPerHour(price)).state is S.RUNNING
    assert next_step(seen(capped(S.RUNNING, billed=price), InstancePhase.RUNNING), LATER) is None


def test_one_that_runs_before_its_price_is_known_is_terminated_as_one_that_ran():
    status = moved(capped(), InstancePhase.RUNNING, price=UsdPerHour("1.60"))

    assert (status.state, status.hourly_price) == (S.RUNNING, "1.6")
    status = moved(capped(S.RUNNING, billed="1.60"), InstancePhase.RUNNING)
    assert (status.state, status.reason) == (S.TERMINATING, R.PRICE_RAISED)


def test_whether_one_runs_is_learned_before_it_is_judged_by_its_price():
    assert next_step(facts(capped(billed="1.60"), RUNS), LATER) is None
    assert next_step(facts(capped(billed="1.60"), RUNS, listing=listed(asked=NOW)), LATER).reason is R.PRICE_RAISED


@pytest.mark.parametrize("state", [S.LAUNCHED, S.RUNNING])
def test_its_exit_code_is_written_down(state):
    status = moved(container(state), InstancePhase.FINISHED, exit_code=3)

    assert (status.state, status.reason, status.exit_code) == (S.FINISHED, R.CONTAINER_FINISHED, 3)
    assert "exit code 3" in status.message


@pytest.mark.parametrize("state", [S.LAUNCHED, S.RUNNING])
@pytest.mark.parametrize("phase", [InstancePhase.FAILED, InstancePhase.STOPPED])
def test_one_that_cannot_go_on_says_why_and_speaks_against_no_offer(state, phase):
    status = moved(container(state), phase, message="ErrImagePull: no such image.")

    assert (status.state, status.reason, status.failures) == (S.FINISHED, R.CONTAINER_FAILED, None)
    assert "ErrImagePull: no such image" in status.message


def test_one_that_starts_is_listed_often_because_nothing_else_tells_that_it_runs():
    assert awaits_listing(container(), LATER - seconds(1))
    assert not awaits_listing(container(), LATER), "images of many gigabytes take long"
    assert not awaits_listing(container(S.RUNNING), NOW)
    assert not awaits_listing(record(S.LAUNCHED, spec=rented_spec()), NOW), "its node tells"


def test_one_that_starts_for_three_days_is_given_up_at_its_deadline():
    starting = container()
    late = NOW + RUNS.launch_deadline

    assert requeue_at(seen(starting, InstancePhase.STARTING), LATER) == late
    status = moved(starting, InstancePhase.STARTING, now=NOW + minutes(3 * 24 * 60), message="pulling")
    assert (status.state, status.reason, status.failures) == (S.TERMINATING, R.LAUNCH_TIMEOUT, 1)
    assert "(pulling)" in status.message


def test_what_is_said_of_one_that_never_ran_counts_from_the_call_and_not_from_its_answer():
    starting = container(since=NOW + minutes(2), attempted_at=NOW)
    status = moved(starting, InstancePhase.STARTING, now=NOW + minutes(2) + RUNS.launch_deadline)

    assert status.reason == R.LAUNCH_TIMEOUT
    assert f"did not run within {human(minutes(2) + RUNS.launch_deadline)}." in status.message


def test_one_that_no_listing_tells_of_is_given_up_too():
    unknown = facts(container(), RUNS)

    assert requeue_at(unknown, LATER) == NOW + RUNS.launch_deadline
    assert next_step(unknown, NOW + RUNS.launch_deadline).reason is R.LAUNCH_TIMEOUT


@pytest.mark.parametrize("state", [S.LAUNCHED, S.RUNNING])
def test_when_its_pod_has_ended_or_is_deleted_it_is_terminated(state):
    status = moved(container(state), InstancePhase.RUNNING, wanted=False)

    assert (status.state, status.reason) == (S.TERMINATING, R.NOT_NEEDED)


@pytest.mark.parametrize("state", [S.LAUNCHED, S.RUNNING, S.FINISHED])
def test_deleting_the_gpuinstance_terminates_it(state):
    status = moved(container(state, deleting=True), InstancePhase.RUNNING)
    assert (status.state, status.reason) == (S.TERMINATING, R.DELETED)


def test_one_that_finishes_shows_until_when_its_pod_can_take_over_the_outcome():
    assert moved(container(S.RUNNING), InstancePhase.FINISHED).deadline == LATER + FINISHED_RETENTION


def test_a_finished_one_is_kept_for_its_pod_to_take_over_the_outcome_but_not_for_long():
    done = container(S.FINISHED, since=LATER)

    assert requeue_at(seen(done, InstancePhase.FINISHED), LATER) == LATER + FINISHED_RETENTION
    assert moved(done, InstancePhase.FINISHED, wanted=False).reason == R.CONTAINER_FINISHED
    status = moved(done, InstancePhase.FINISHED, now=LATER + FINISHED_RETENTION)
    assert (status.state, status.reason) == (S.TERMINATING, R.CONTAINER_FINISHED)


def test_one_that_runs_waits_for_nothing_but_its_maximum_run_time():
    running = container(S.RUNNING)
    assert requeue_at(seen(running, InstancePhase.RUNNING), LATER) is None

    limited = container(S.RUNNING, since=NOW + minutes(2), attempted_at=NOW, spec=replace(SPEC, max_run_time="1h"))
    assert requeue_at(seen(limited, InstancePhase.RUNNING), LATER) == NOW + minutes(60)
    status = moved(limited, InstancePhase.RUNNING, now=NOW + minutes(60))
    assert (status.state, status.reason) == (S.TERMINATING, R.EXPIRED)


@pytest.mark.parametrize(("state", "failures"), [(S.LAUNCHED, 1), (S.RUNNING, None), (S.FINISHED, None)])
def test_one_that_two_listings_do_not_show_has_vanished_with_what_ran_in_it(state, failures):
    lost = container(state)
    if state is S.FINISHED:
        lost = replace(lost, status=replace(lost.status, since=LATER + minutes(1)))
    once = moved(lost, now=LATER)
    assert (once.state, once.absences) == (state, 1)
    lost = replace(lost, status=once)
    twice = moved(lost, now=LATER + seconds(5))

    assert (twice.state, twice.reason, twice.failures) == (S.GONE, R.VANISHED, failures)
    assert twice.billed_until == LATER, "the first of them shows that it had ended"
    assert "What ran in it is lost" in twice.message


def test_a_reclaim_notice_is_written_down_once():
    running = container(S.RUNNING)
    step = next_step(seen(running, InstancePhase.RUNNING, reclaim_at=LATER + minutes(2)), LATER)

    assert (step.status.state, step.status.reason) == (S.RUNNING, R.RECLAIMED)
    assert "12:05:00 UTC" in step.status.message
    assert next_step(seen(after(step), InstancePhase.RUNNING, reclaim_at=LATER + minutes(2)), LATER) is None


def test_it_is_gone_when_two_listings_after_the_termination_call_do_not_show_it():
    going = container(S.TERMINATING)
    call = next_step(seen(going, InstancePhase.RUNNING), LATER)
    assert isinstance(call, Terminate)
    ended = replace(after(call).status, termination_accepted_at=LATER)
    going = replace(going, status=ended)
    for wait in (5, 10):
        going = after(next_step(seen(going, now=LATER + seconds(wait)), LATER + seconds(wait)))
    assert (going.state, going.status.reason) == (S.GONE, R.TERMINATED)


def until_gone(going, *listings):
    """The status after listings at these seconds, each of which shows the container or not."""
    for wait, shown in listings:
        at = LATER + seconds(wait)
        shows = [instance(phase=InstancePhase.RUNNING)] if shown else []
        step = next_step(facts(going, BILLED_UNTIL_ACCEPTED, listing=listed(*shows, asked=at)), at)
        going = going if step is None else after(step)
    return going.status


def terminating_since(**fields):
    because = R.LAUNCH_TIMEOUT
    return container(S.TERMINATING, since=LATER, because=because, billed_from=NOW, termination_attempts=1, **fields)


def test_where_an_accepted_termination_ends_the_bill_the_record_keeps_when_that_was():
    accepted = terminating_since(
        termination_accepted_at=LATER + seconds(1), listed_at=NOW, not_before=LATER + minutes(2)
    )

    gone = until_gone(accepted, (5, False), (60, False))
    assert (gone.state, gone.billed_until) == (S.GONE, LATER + seconds(1))
    shown = until_gone(accepted, (5, True), (9, True), (13, False), (17, False))
    assert (shown.state, shown.billed_until) == (S.GONE, LATER + seconds(13)), "it was there after the accepted call"
    before = until_gone(accepted, (1, True), (5, False), (9, False))
    assert before.billed_until == LATER + seconds(1), "that listing was requested before the answer came"


def test_without_an_accepted_termination_a_container_that_was_listed_is_billed_until_a_listing_without_it():
    waits = {"not_before": LATER + minutes(9)}
    proof = 121

    seen_before = until_gone(terminating_since(listed_at=NOW, **waits), (4, False), (8, False), (100, False))
    assert (seen_before.state, seen_before.absences) == (S.TERMINATING, 2), "listings may be at odds"
    gone = until_gone(terminating_since(listed_at=NOW, **waits), (4, False), (8, False), (100, False), (proof, False))
    assert (gone.state, gone.billed_until) == (S.GONE, LATER + seconds(4))
    again = until_gone(
        terminating_since(listed_at=NOW, **waits), (4, False), (8, True), (100, False), (proof, False), (125, False)
    )
    assert (again.state, again.billed_until) == (S.GONE, LATER + seconds(100))
    never_seen = until_gone(terminating_since(**waits), (4, False), (8, False), (proof, False), (125, False))
    assert (never_seen.state, never_seen.billed_until) == (S.GONE, LATER + seconds(proof))


def test_a_container_that_costs_nothing_any_more_is_billed_until_a_listing_shows_that():
    exited = moved(container(S.RUNNING), InstancePhase.FINISHED, billed=False)
    assert (exited.state, exited.billed_until) == (S.FINISHED, LATER)
    gone = until_gone(terminating_since(listed_at=NOW, billed_until=LATER), (130, False), (135, False))
    assert (gone.state, gone.billed_until) == (S.GONE, LATER)
    again = moved(replace(container(S.RUNNING), status=exited), InstancePhase.RUNNING, now=LATER + minutes(2))
    assert again.billed_until is None, "somebody has started it again"


def test_that_a_listing_has_shown_it_is_written_down_once():
    going = terminating_since(not_before=LATER + minutes(9))
    step = next_step(seen(going, InstancePhase.RUNNING, now=LATER + seconds(4)), LATER + seconds(4))

    assert (step.status.state, step.status.listed_at) == (S.TERMINATING, LATER + seconds(4))
    assert next_step(seen(after(step), InstancePhase.RUNNING, now=LATER + seconds(8)), LATER + seconds(8)) is None
    assert moved(container(), InstancePhase.RUNNING).listed_at == LATER


def test_one_that_vanishes_soon_after_its_launch_is_billed_until_a_listing_without_it():
    running = container(S.RUNNING, since=NOW, listed_at=NOW + seconds(5))
    for wait in (20, 24, 60):
        at = NOW + seconds(wait)
        step = next_step(seen(running, now=at), at)
        running = running if step is None else after(step)
    assert (running.state, running.status.absences) == (S.RUNNING, 2), "listings may be at odds for two minutes"
    assert moved(running, now=NOW + seconds(122)).billed_until == NOW + seconds(20)


def launching(*before):
    """A record at its launch call, after `before` earlier calls whose outcomes are unknown."""
    step = next_step(facts(fresh_record(spec=SPEC), RUNS, listing=listed()), NOW)
    for _ in before:
        step = next_step(facts(after(step), RUNS, listing=listed(asked=LATER)), LATER)
    return after(step)


def test_what_it_needs_is_waited_for_while_nothing_is_billed_or_counted_as_a_call():
    status = launch_prevented(launching(), "Secret a/b does not exist.", LATER, pod_lost=False)

    assert (status.state, status.reason) == (S.REQUESTED, R.CONTAINER_CONFIG_ERROR)
    assert (status.attempt, status.failures, status.billed_from) == (None, None, None)
    assert status.not_before > LATER
    assert "Secret a/b does not exist." in status.message
    later = launch_prevented(launching(), "No.", NOW + minutes(4), pod_lost=False)
    assert later.not_before == NOW + minutes(5), "after a quarter of the time that it has waited"
    long_after = launch_prevented(launching(), "No.", LATER + minutes(10_000), pod_lost=False)
    assert long_after.not_before == LATER + minutes(10_000) + MAX_CONTAINER_WAIT
    outage = launch_prevented(launching(), "No answer.", LATER + minutes(10_000), pod_lost=False, passing=True)
    assert outage.not_before == LATER + minutes(10_000) + MAX_LAUNCH_WAIT, "nobody mends that, it ends by itself"


def test_a_pod_that_was_lost_meanwhile_ends_it_and_speaks_against_no_offer():
    status = launch_prevented(launching(), "Pod a/b is gone.", LATER, pod_lost=True)

    assert (status.state, status.reason) == (S.GONE, R.NOT_NEEDED)
    assert (status.attempt, status.failures, status.billed_from) == (None, None, None)


def test_an_earlier_call_that_may_have_started_it_is_followed_up_before_anything_else_runs_the_pod():
    again = launching(1)
    lost = launch_prevented(again, "Pod a/b is gone.", LATER, pod_lost=True)
    assert (lost.state, lost.reason) == (S.TERMINATING, R.NOT_NEEDED)

    refused = launch_failed(again, Failure(kind=FailureKind.NO_CAPACITY, sentence="None left."), LATER)
    assert (refused.state, refused.reason) == (S.TERMINATING, R.LAUNCH_FAILED)
    first = launch_failed(launching(), Failure(kind=FailureKind.NO_CAPACITY, sentence="None left."), LATER)
    assert (first.state, first.reason) == (S.GONE, R.NO_CAPACITY)


def test_an_outcome_that_comes_late_changes_nothing():
    moved_on = container(S.TERMINATING)
    assert launch_prevented(moved_on, "No.", LATER, pod_lost=True) == moved_on.status


@pytest.mark.parametrize(("answered", "calls"), [(True, 3), (False, 9)])
def test_launch_calls_of_processes_that_died_say_nothing_against_the_offer(answered, calls):
    """Of a call whose answer was lost, that much is written down; of one whose caller was killed, nothing is."""
    lost, asked, made = container(S.LAUNCHING), NOW, 1
    while made < MAX_KILLED_CALLS - 1:
        if answered:
            failure = Failure(kind=FailureKind.OUTCOME_UNKNOWN, sentence="No answer.")
            lost = replace(lost, status=launch_failed(lost, failure, asked))
        asked += RUNS.settle_time + minutes(1)
        step = next_step(facts(lost, RUNS, listing=listed(asked=asked)), asked)
        lost = after(step)
        if not isinstance(step, Launch):
            break
        made += 1

    assert made == calls
    # The pod has waited since the first call: three lost answers take longer than the cooldown.
    assert not cooldowns([lost], asked)
    assert bool(cooldowns([lost], NOW + minutes(1))) is answered


def test_a_launch_at_which_every_process_dies_fails_as_others_do():
    lost, asked, made = container(S.LAUNCHING), NOW, 1
    while lost.state is S.LAUNCHING:
        asked += RUNS.settle_time + minutes(1)
        lost = after(next_step(facts(lost, RUNS, listing=listed(asked=asked)), asked))
        made += lost.state is S.LAUNCHING

    assert (made, lost.state, lost.status.reason) == (MAX_KILLED_CALLS, S.TERMINATING, R.LAUNCH_FAILED)
    assert "10 calls without a known outcome" in lost.status.message
    assert lost.status.failures == 1, "the pod goes elsewhere"
