"""A request, from its creation to the first call: its history, what cancels it, and how often the call is repeated."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, ProvisionerRef, Purpose, ReplacedInstance
from forebay.api.names import MAINTENANCE_ANNOTATION
from forebay.lifecycle.launch import abandon_unlaunched, with_request
from forebay.lifecycle.steps import Launch, WriteStatus
from forebay.model.sources import Capabilities, Delivery
from tests.unit.lifecycle.builders import (
    IDEMPOTENT,
    NOW,
    OWNED,
    RENTED,
    R,
    S,
    facts,
    fresh_record,
    listed,
    minutes,
    next_step,
    node,
    owned_spec,
    record,
    rented_spec,
    requeue_at,
    seconds,
)

MAINTAINED = {MAINTENANCE_ANNOTATION: "new fans"}


def of(spec, **fields):
    made = fresh_record(**fields)
    return replace(made, spec=spec)


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({}, R.CAPACITY_NEEDED, "Requested for team/train."),
        ({"why": "The cheapest for 3 pods."}, R.CAPACITY_NEEDED, "The cheapest for 3 pods."),
        ({"pods": (), "purpose": Purpose.STATIC}, R.MIN_NODES, "Requested for minNodes of its pool."),
        (
            {"pods": (), "purpose": Purpose.GROUP, "provisioner_ref": ProvisionerRef(name="gpus")},
            R.GROUP_TARGET,
            "Requested for the target of NodeProvisioner gpus.",
        ),
    ],
    ids=["for pods", "with a reason of its own", "for minNodes", "for a NodeProvisioner"],
)
@pytest.mark.parametrize("status", [None, GPUInstanceStatus()], ids=["no status", "a status without a state"])
def test_the_history_of_a_record_begins_when_and_why_it_was_created(fields, reason, message, status):
    made = of(rented_spec(**fields), since=NOW - minutes(3))

    begun = with_request(GPUInstance(metadata=made.metadata, spec=made.spec, status=status), NOW)

    (first,) = begun.transitions
    assert (first.state, first.at, first.reason, first.message) == (S.REQUESTED, NOW - minutes(3), reason, message)


def test_a_record_that_has_a_history_keeps_it():
    launched = record(S.LAUNCHED)
    assert with_request(launched, NOW) is launched.status


def test_a_record_whose_creation_time_is_not_known_begins_now():
    made = fresh_record()
    unread = replace(made, metadata=replace(made.metadata, creation_timestamp=None))
    assert with_request(unread, NOW).since == NOW


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (rented_spec(), "none of its pods is pending any more (requested for team/train)"),
        (
            rented_spec(replaces=(ReplacedInstance(name="old-1", uid="1"), ReplacedInstance(name="old-2", uid="2"))),
            "it was to replace old-1, old-2, which is not to be replaced any more or is gone",
        ),
        (rented_spec(pods=(), purpose=Purpose.STATIC), "its pool has enough nodes without it (spec.minNodes)"),
    ],
    ids=["pods", "replacement", "minNodes"],
)
def test_a_request_that_is_not_wanted_says_what_it_was_for(spec, words):
    step = next_step(facts(of(spec), wanted=False), NOW)

    assert step.sentence == f"Cancelled before anything was started: {words}."


def test_a_request_whose_offer_cools_down_gives_its_pods_back_at_once():
    step = next_step(facts(fresh_record(), cooling_down="other failed 2m ago; next attempt in 3m."), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.COOLING_DOWN)
    assert step.sentence == "Cancelled before anything was started: other failed 2m ago; next attempt in 3m."


def test_a_machine_under_maintenance_is_not_powered_on():
    serviced = node("gpu-1", ready=False)
    serviced = replace(serviced, annotations=MAINTAINED)

    step = next_step(facts(record(owned=True), node=serviced), NOW)

    assert (step.status.state, step.status.reason) == (S.GONE, R.UNDER_MAINTENANCE)
    assert "node gpu-1 has the annotation" in step.sentence
    rented = facts(record(), node=replace(node(ready=False), annotations=MAINTAINED))
    assert abandon_unlaunched(rented, NOW) is None, "a node of that name is no machine of the provider"


@pytest.mark.parametrize(
    "fields",
    [{"wanted": False}, {"cooling_down": "failed"}, {"capabilities": None}],
    ids=["no pods", "cooling down", "no provider"],
)
def test_the_record_of_a_found_instance_is_not_cancelled(fields):
    found = of(rented_spec(pods=(), purpose=Purpose.ADOPTED))
    assert abandon_unlaunched(replace(facts(found), **fields), NOW) is None


def test_a_power_on_call_with_an_unknown_outcome_ends_when_maintenance_begins():
    serviced = replace(node("gpu-1", ready=False), annotations=MAINTAINED)

    step = next_step(facts(record(S.LAUNCHING, owned=True), node=serviced), NOW)
    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.UNDER_MAINTENANCE)
    assert "so Forebay makes sure that nothing keeps running" in step.sentence

    deleted = next_step(facts(record(S.LAUNCHING, owned=True, deleting=True), node=serviced, wanted=False), NOW)
    assert deleted.status.reason == R.DELETED, "the first reason is told"
    unwanted = next_step(facts(record(S.LAUNCHING, owned=True), node=serviced, wanted=False), NOW)
    assert unwanted.status.reason == R.UNDER_MAINTENANCE
    rented = next_step(facts(record(S.LAUNCHING), node=replace(node(ready=False), annotations=MAINTAINED)), NOW)
    assert rented is None


def test_a_machine_whose_node_is_ready_is_on_although_no_listing_tells():
    step = next_step(facts(record(owned=True), node=node("gpu-1")), NOW)

    assert isinstance(step, WriteStatus)
    assert (step.status.state, step.status.reason, step.status.instance_id) == (S.LAUNCHED, R.ADOPTED, "gpu-1")
    assert step.sentence == "gpu-1 is already on: node gpu-1 is Ready. Adopting it."


def test_a_machine_that_is_already_on_is_called_by_its_own_name_and_not_by_that_of_its_record():
    of = record(owned=True, name="gpu-1", spec=owned_spec("rack-7"))
    step = next_step(facts(of, node=node("rack-7")), NOW)

    assert step.status.instance_id == "rack-7", "power-off calls go to the machine of this name"
    assert step.sentence == "rack-7 is already on: node rack-7 is Ready. Adopting it."
    assert isinstance(next_step(facts(record(owned=True), node=node("gpu-1", ready=False)), NOW), Launch)


def test_the_number_of_the_attempt_is_told_from_the_second_on():
    first = next_step(facts(fresh_record()), NOW)
    second = next_step(facts(record(attempt=1)), NOW)

    assert first.sentence == "Launching a100x2 in us-east at simulated for team/train. Next: the provider's answer."
    assert "for team/train (attempt 2 of 3). Next" in second.sentence


def test_the_bill_begins_with_the_first_call_that_may_have_started_something():
    refused = next_step(facts(record(attempt=1, billed_from=None)), NOW)
    unknown = next_step(facts(record(S.LAUNCHING, since=NOW - minutes(1)), IDEMPOTENT), NOW)

    assert refused.status.billed_from == NOW
    assert unknown.status.billed_from == NOW - minutes(1)


def test_a_call_that_the_provider_wants_later_is_repeated_then():
    lost = facts(record(S.LAUNCHING, since=NOW, not_before=NOW + seconds(40)), IDEMPOTENT)

    assert requeue_at(lost, NOW + seconds(39)) == NOW + seconds(40)
    assert isinstance(next_step(lost, NOW + seconds(40)), Launch)


def test_an_idempotent_call_is_made_three_times_at_most():
    def third(attempt):
        return next_step(facts(record(S.LAUNCHING, since=NOW - minutes(3), attempt=attempt), IDEMPOTENT), NOW)

    assert isinstance(third(2), Launch)
    assert third(3).status.reason == R.LAUNCH_FAILED
    assert third(3).sentence == (
        "Launch of a100x2 in us-east at simulated failed: 3 calls without a known outcome. Terminating a100x2 in "
        "us-east at simulated, in case one of them succeeded, and trying other capacity."
    )
    assert third(None).status.attempt == 1, "a record that does not tell is treated as one call"


def test_a_call_that_left_nothing_is_repeated_three_times_at_most():
    """The answer before it was a refusal, so each was resolved by itself."""
    settled = NOW + RENTED.settle_time + seconds(2)

    def third(attempt):
        return next_step(facts(record(S.LAUNCHING, since=NOW, attempt=attempt), listing=listed(asked=settled)), settled)

    assert isinstance(third(2), Launch)
    failed = third(3)
    assert (failed.status.state, failed.status.reason) == (S.TERMINATING, R.LAUNCH_FAILED)
    assert failed.status.failure_scope is None, "the offer cools down, not its provider"


def test_a_machine_whose_power_on_calls_are_lost_is_tried_a_third_time():
    """No other machine of its source would help: each has its own switch."""
    slow = Capabilities(deliveries=(Delivery.POWER,), settle_time=OWNED.settle_time)
    lost, now = record(S.LAUNCHING, owned=True, since=NOW), NOW
    for _ in range(2):
        now += minutes(2)
        step = next_step(facts(lost, slow, listing=listed(asked=now)), now)
        assert isinstance(step, Launch)
        lost = replace(lost, status=step.status)
    now += minutes(2)
    assert next_step(facts(lost, slow, listing=listed(asked=now)), now).status.reason == R.LAUNCH_FAILED


def test_a_call_whose_outcome_nobody_can_tell_waits_for_its_deadline_and_says_for_how_long():
    lost = facts(record(S.LAUNCHING, since=NOW))

    assert requeue_at(lost, NOW + seconds(1)) == NOW + RENTED.launch_deadline
    step = next_step(lost, NOW + RENTED.launch_deadline)
    assert step.sentence == (
        "Launch of a100x2 in us-east at simulated failed: no answer for 10m, and simulated could not be listed to find "
        "out what happened. If the instance shows up, Forebay terminates it."
    )
