"""Laws: what holds for every GPUInstance, whatever happens to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.demand.maintenance import maintenance
from forebay.lifecycle.call_outcomes import launch_failed, launch_succeeded, termination_accepted, termination_failed
from forebay.lifecycle.deliveries.owned_machine import LISTING_MAX_AGE
from forebay.lifecycle.presence import is_of
from forebay.lifecycle.steps import Launch, Terminate, WriteStatus
from forebay.lifecycle.transitions import TABLE, cause, transition
from forebay.model.reasons import Reason
from forebay.model.sources import Failure, FailureKind, InstancePhase
from tests.unit.lifecycle.builders import (
    IDEMPOTENT,
    NOW,
    OWNED,
    RENTED,
    S,
    after,
    facts,
    fresh_record,
    instance,
    listed,
    next_step,
    node,
    pod,
    requeue_at,
    seconds,
)
from tests.unit.lifecycle.world import KINDS, World

spans = st.sampled_from([0, 1, 3, 5, 30, 119, 121, 300, 601, 901, 3601]).map(seconds)


@st.composite
def circumstances(draw, record, owned, now):
    name = record.metadata.name
    own = "gpu-1" if owned else draw(st.sampled_from(["i-1", "i-2"]))
    shown = draw(st.lists(st.sampled_from(InstancePhase), max_size=2))
    listing = draw(
        st.sampled_from(
            [
                None,
                listed(
                    *(instance(f"{own}{'x' * at}", phase, owner=record.uid) for at, phase in enumerate(shown)),
                    asked=now - draw(spans),
                    unknown=["gpu-1"] if not shown and draw(st.booleans()) else (),
                ),
            ]
        )
    )
    there = node(
        name,
        ready=draw(st.booleans()),
        gpus=draw(st.sampled_from([0, 2])),
        cordoned=draw(st.sampled_from([None, now, now - seconds(30)])),
        users_cordon=draw(st.booleans()),
    )
    if draw(st.integers(0, 5)) == 0:
        deleted = replace(record.metadata, deletion_timestamp=now)
        record = GPUInstance(metadata=deleted, spec=record.spec, status=record.status)
    capabilities = OWNED if owned else draw(st.sampled_from([RENTED, IDEMPOTENT]))
    seen = facts(
        record,
        capabilities,
        listing=listing,
        node=draw(st.sampled_from([None, there])),
        pods=tuple(draw(st.sampled_from([(), (pod(),), (pod(deleted=now),)]))),
        wanted=draw(st.integers(0, 3)) > 0,
        pool_exists=draw(st.integers(0, 5)) > 0,
        class_exists=draw(st.integers(0, 9)) > 0,
        replacement_paused=draw(st.booleans()),
    )
    return replace(seen, capabilities=None) if draw(st.integers(0, 9)) == 0 else seen


def answered(draw, step, now):
    """The record after the provider's answer, or after a crash before it."""
    record = after(step)
    failure = Failure(kind=draw(st.sampled_from(FailureKind)), sentence="No.")
    if isinstance(step, Launch):
        name = "gpu-1" if record.spec.delivers == "Power" else "i-1"
        answers = [record.status, launch_succeeded(record, instance(name, draw(st.sampled_from(InstancePhase))), now)]
        answers.append(launch_failed(record, failure, now))
    else:
        answers = [record.status, termination_accepted(record, now), termination_failed(record, failure, now)]
    return GPUInstance(metadata=record.metadata, spec=record.spec, status=draw(st.sampled_from(answers)))


def check(seen, step, now):
    record, before = seen.record, seen.record.state
    busy = seen.node is not None and seen.node.ready and seen.pods
    status = getattr(step, "status", None)
    if status is not None and status.state is not before:
        assert status.transitions[-1].reason in TABLE[before][status.state], "only transitions of the table"
        assert status.transitions[-1].at == status.since == now
        assert len(status.transitions) <= 64
    if isinstance(step, Launch):
        shows = seen.listing.found.instances if seen.listing is not None else ()
        fresh = (
            not seen.policy.configured_by_name or seen.listing is None or seen.listing.asked >= now - LISTING_MAX_AGE
        )
        assert not (fresh and any(is_of(each, record) for each in shows)), "what exists is not launched again"
        assert seen.wanted
        assert not seen.deleting
    if isinstance(step, Launch):
        assert not (seen.policy.held_by_cordon and maintenance(seen.node)), (
            "nobody powers on a machine that somebody works on"
        )
    if isinstance(step, Terminate):
        assert before is S.TERMINATING
        assert seen.held is None or seen.deleting or cause(record.status) == Reason.DELETED, "people hold it"
        assert not busy, "nothing that pods run on is terminated"
    if isinstance(step, WriteStatus) and before is S.DRAINING and step.status.state is S.TERMINATING:
        assert not busy, "nothing that pods run on is terminated"
    if isinstance(step, WriteStatus) and step.status.state is S.GONE and before is S.TERMINATING:
        assert seen.listing is not None, "without a listing there is no proof"
        assert not any(is_of(each, record) for each in seen.listing.found.instances)
        assert not (seen.policy.configured_by_name and seen.node is not None and seen.node.ready)
    assert step.sentence
    assert isinstance(step.reason, Reason)


@pytest.mark.law
@given(st.data())
def test_whatever_the_facts_the_next_step_is_in_the_table_and_stops_no_running_pod(data):
    owned = data.draw(st.booleans())
    record, now = fresh_record(owned=owned), NOW
    for _ in range(25):
        now += data.draw(spans)
        seen = data.draw(circumstances(record, owned, now))
        step = next_step(seen, now)
        assert step == next_step(seen, now)
        if step is None:
            later = requeue_at(seen, now)
            assert later is None or later > now, "a wait that is over is no wait"
        else:
            check(seen, step, now)
        if isinstance(step, Launch | Terminate):
            record = answered(data.draw, step, now)
        elif getattr(step, "status", None) is not None:
            record = after(step)
        elif record.state is S.READY and data.draw(st.booleans()):
            draining = transition(record.status, S.DRAINING, Reason.IDLE, "Idle.", now)
            record = GPUInstance(metadata=record.metadata, spec=record.spec, status=draining)


@pytest.mark.law
@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32))
def test_when_the_world_cooperates_everything_ends_and_nothing_is_left_on(kind, seed):
    world = World(kind, seed)

    world.run()

    assert world.running == {}, "nothing is left on"
    left = {name: record.state for name, record in world.records.items()}
    assert set(left.values()) <= {S.GONE}, "and every record is Gone"
    for seen, step, now in world.steps:
        check(seen, step, now)
    assert world.terminations <= 150, "without a storm of requests"
    assert world.launches <= 6


def test_the_worlds_are_not_all_alike():
    """A law about worlds in which nothing happens would hold for anything."""
    reached = set()
    for seed in range(25):
        for kind in KINDS:
            world = World(kind, seed)
            world.run()
            for _, step, _ in world.steps:
                status = getattr(step, "status", None)
                if status is not None:
                    reached.add((status.state, status.reason))

    states = {state for state, _ in reached}
    assert states >= set(S) - {S.REQUESTED, S.RUNNING, S.FINISHED}
    assert {reason for _, reason in reached} >= {
        Reason.ADOPTED,
        Reason.BACK_IN_USE,
        Reason.DELETED,
        Reason.GPUS_MISSING,
        Reason.IDLE,
        Reason.JOIN_TIMEOUT,
        Reason.LAUNCH_FAILED,
        Reason.NOT_NEEDED,
        Reason.TERMINATION_FAILED,
    }
