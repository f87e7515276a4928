"""Registration and initialization: a machine becomes a node with its GPUs within its deadlines, or is terminated."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, ResourceLifetime, SecondaryResource
from forebay.api.parts import Truth
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.lifecycle.deliveries.policy import UNHEALTHY_AFTER
from forebay.lifecycle.next_step import step_or_wait
from forebay.lifecycle.steps import Launch, Uncordon, WriteStatus
from forebay.model.sources import FailureScope, InstancePhase
from forebay.model.spans import human
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
    owned_spec,
    pod,
    record,
    rented_spec,
    requeue_at,
    seconds,
)


def test_a_rented_machine_has_registered_when_its_node_exists():
    step = next_step(facts(record(S.LAUNCHED), node=node(ready=False)), NOW + seconds(90))

    assert (step.status.state, step.status.reason) == (S.JOINED, R.NODE_JOINED)
    assert step.status.deadline == NOW + seconds(90) + RENTED.gpu_deadline


def test_the_node_of_an_owned_machine_always_exists_so_it_counts_only_when_ready():
    booting = record(S.LAUNCHED, owned=True)

    assert next_step(facts(booting, node=node("gpu-1", ready=False)), NOW + minutes(1)) is None
    step = next_step(facts(booting, node=node("gpu-1")), NOW + minutes(1))
    assert step.status.state is S.JOINED
    assert step.status.deadline == NOW + minutes(15), "its boot deadline is for all, from the call to the GPUs"


def test_a_node_is_initialized_with_its_gpus_and_without_its_startup_taints():
    joined = record(S.JOINED, failures=2)
    ours, theirs = ("forebay.dev/startup", "", "NoSchedule"), ("example.com/agent", "", "NoExecute")

    assert next_step(facts(joined, node=node(ready=False)), NOW) is None
    assert next_step(facts(joined, node=node(gpus=0)), NOW) is None, "a node without its GPUs is not initialized"
    assert next_step(facts(joined, node=node(gpus=1)), NOW) is None
    assert next_step(facts(joined, node=node(taints=[theirs, ours])), NOW) is None
    step = next_step(facts(joined, node=node(taints=[ours])), NOW + minutes(3))

    assert (step.status.state, step.status.reason) == (S.READY, R.NODE_READY)
    assert step.status.failures is None, "a success resets the failures"
    assert condition_of(step.status, "NodeReady").status is Truth.TRUE
    assert "3m after the launch call" in step.sentence


@pytest.mark.parametrize("gpus", [0, 4])
def test_without_planned_figures_the_gpus_of_the_offer_must_be_allocatable(gpus):
    bare = record(S.JOINED)
    bare.spec.node.allocatable.clear()

    step = next_step(facts(bare, node=node(gpus=gpus)), NOW)

    assert (step is not None) == (gpus >= 2)


def test_a_machine_that_does_not_run_by_its_launch_deadline_is_terminated():
    starting = facts(record(S.LAUNCHED), listing=listed(instance(phase=InstancePhase.STARTING), asked=NOW + minutes(9)))
    late = NOW + RENTED.launch_deadline

    assert next_step(starting, late - seconds(1)) is None
    assert requeue_at(starting, NOW) == late
    step = next_step(starting, late)
    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.LAUNCH_TIMEOUT)
    assert step.status.failures == 1
    assert "did not run within 10m" in step.sentence


def test_the_time_to_register_counts_from_when_the_machine_runs():
    runs = listed(instance(), asked=NOW + minutes(9))

    step = next_step(facts(record(S.LAUNCHED), listing=runs), NOW + minutes(9))

    assert isinstance(step, WriteStatus)
    assert step.status.state is S.LAUNCHED
    late = NOW + minutes(9) + RENTED.join_deadline
    assert step.status.deadline == late
    running = facts(after(step), listing=runs)
    assert next_step(running, late - seconds(1)) is None
    gone = next_step(running, late)
    assert (gone.status.state, gone.status.reason) == (S.TERMINATING, R.JOIN_TIMEOUT)


def test_while_the_provider_cannot_be_listed_a_machine_gets_the_time_to_run_and_to_register():
    late = NOW + RENTED.launch_deadline

    assert next_step(facts(record(S.LAUNCHED)), late) is None, "it may well be running"
    step = next_step(facts(record(S.LAUNCHED)), late + RENTED.join_deadline)
    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.JOIN_TIMEOUT)


@pytest.mark.parametrize(
    ("boot", "late"), [pytest.param("90s", seconds(90), id="its own"), pytest.param(None, minutes(15), id="usual")]
)
def test_an_owned_machine_that_never_registers_is_powered_off_and_cools_down(boot, late):
    booting = record(S.LAUNCHED, owned=True, spec=owned_spec(boot_deadline=boot), attempt=MAX_ATTEMPTS)
    off = facts(booting, node=node("gpu-1", ready=False), listing=listed(unknown=["gpu-1"]))

    assert next_step(off, NOW + late - seconds(1)) is None
    step = next_step(off, NOW + late)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.JOIN_TIMEOUT)
    assert step.status.failures == 1
    assert step.sentence == (
        f"gpu-1 was powered on but node gpu-1 did not become Ready within {human(late)}. Powering it off; "
        "next attempt in 5m at the earliest."
    )


def test_the_power_on_call_is_repeated_twice_while_the_node_does_not_come():
    booting = record(S.LAUNCHED, owned=True)
    calls, now = [], NOW
    while now < NOW + minutes(14):
        now += seconds(10)
        step = next_step(facts(booting, node=node("gpu-1", ready=False), listing=listed(unknown=["gpu-1"])), now)
        if step is not None:
            assert isinstance(step, Launch)
            booting = after(step)
            calls.append(now - NOW)
    assert calls == [minutes(2), minutes(4)]
    assert booting.status.state is S.LAUNCHED
    assert booting.status.attempted_at == NOW, "its deadline does not move"


@pytest.mark.parametrize("phase", [InstancePhase.RUNNING, InstancePhase.STARTING, InstancePhase.ENDING])
def test_a_machine_that_reports_a_state_is_not_powered_on_again(phase):
    seen = listed(instance("gpu-1", phase), asked=NOW + minutes(3))
    booting = facts(record(S.LAUNCHED, owned=True), node=node("gpu-1", ready=False), listing=seen)
    assert next_step(booting, NOW + minutes(3)) is None


def test_a_machine_whose_status_says_off_until_it_has_booted_has_not_vanished():
    booting = record(S.LAUNCHED, owned=True, attempt=MAX_ATTEMPTS)

    for asked in range(20, 600, 2):
        now = NOW + seconds(asked)
        assert next_step(facts(booting, node=node("gpu-1", ready=False), listing=listed(asked=now)), now) is None


def test_a_node_whose_gpus_never_become_allocatable_is_drained():
    step = next_step(facts(record(S.JOINED), node=node(gpus=0)), NOW + RENTED.gpu_deadline)

    assert (step.status.state, step.status.reason) == (S.DRAINING, R.GPUS_MISSING)
    assert step.status.failures == 1
    assert "check its driver and device plugin" in step.sentence


@pytest.mark.parametrize(
    ("missing", "state", "reason"),
    [(node(gpus=0), S.DRAINING, R.GPUS_MISSING), (node(ready=False), S.TERMINATING, R.JOIN_TIMEOUT)],
)
def test_one_of_a_row_of_machines_without_usable_nodes_cools_its_pool_down(missing, state, reason):
    """Other offers would fail in the same way, and each is paid until then."""
    of = record(S.JOINED, spec=rented_spec(pool_ref=PoolRef(namespace="team", name="gpus")), failures=1)
    seen = facts(of, node=missing, others_unusable=True, revision={"joining": "a"})
    step = next_step(seen, NOW + RENTED.gpu_deadline)

    assert (step.status.state, step.reason, step.status.failures) == (state, reason, 2)
    assert (step.status.failure_scope, step.status.failure_revision) == (FailureScope.POOL, {"joining": "a"})
    assert "The machines of team/gpus at simulated before it did not become usable nodes either" in step.sentence
    assert "next attempt in 10m at the earliest" in step.sentence
    alone = next_step(replace(seen, others_unusable=False), NOW + RENTED.gpu_deadline)
    assert alone.status.failure_scope is None


def test_a_node_that_registered_and_was_never_ready_is_terminated_without_a_drain():
    step = next_step(facts(record(S.JOINED), node=node(ready=False)), NOW + RENTED.gpu_deadline)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.JOIN_TIMEOUT)


def test_a_node_on_which_a_gpu_pod_runs_has_its_gpus_whatever_its_node_object_shows():
    step = next_step(facts(record(S.JOINED), node=node(gpus=0), pods=(pod(),)), NOW + RENTED.gpu_deadline)
    assert (step.status.state, step.status.reason) == (S.READY, R.NODE_READY)
    leaving = next_step(facts(record(S.JOINED), node=node(gpus=0), pods=(pod(deleted=NOW),)), NOW + minutes(1))
    assert leaving is None


def test_pods_that_run_on_a_node_without_its_gpus_may_finish_first():
    plain = pod(gpus=0)
    in_use = facts(record(S.JOINED), node=node(gpus=0), pods=(plain,))

    step = next_step(in_use, NOW + RENTED.gpu_deadline)

    assert step.status.state is S.JOINED
    assert step.status.reason == R.GPUS_MISSING
    assert step.status.failures is None
    written = facts(after(step), node=node(gpus=0), pods=(plain,))
    assert next_step(written, NOW + RENTED.gpu_deadline + minutes(7)) is None, "the message is written once"


def test_pods_on_a_node_that_stays_not_ready_are_not_waited_for_for_ever():
    """The machine lost its power just after it had registered: its pods will never be seen to end."""
    late = NOW + RENTED.gpu_deadline
    unready = node(ready=False, unready_since=NOW + minutes(1))
    lost = facts(record(S.JOINED), node=unready, pods=(pod(),))

    written = after(next_step(lost, late - minutes(1))) if next_step(lost, late - minutes(1)) else record(S.JOINED)
    step = next_step(facts(written, node=unready, pods=(pod(),)), late)

    assert late >= NOW + minutes(6)
    assert (step.status.state, step.status.reason) == (S.DRAINING, R.JOIN_TIMEOUT)


def test_pods_on_a_node_that_is_lost_near_the_deadline_are_looked_at_again_when_their_time_is_up():
    late = NOW + RENTED.gpu_deadline
    unready = node(ready=False, unready_since=late - minutes(1))

    def lost(of):
        return facts(of, node=unready, pods=(pod(),))

    told = after(next_step(lost(record(S.JOINED)), late))

    assert told.status.state is S.JOINED
    assert step_or_wait(lost(told), late) == (None, unready.unready_since + UNHEALTHY_AFTER)
    assert next_step(lost(told), unready.unready_since + UNHEALTHY_AFTER).status.state is S.DRAINING


def test_a_launch_that_vanishes_before_it_was_ready_counts_as_failed():
    launched = record(S.LAUNCHED)
    first, second = NOW + RENTED.settle_time + seconds(1), NOW + RENTED.settle_time + seconds(40)

    assert next_step(facts(launched, listing=listed(asked=NOW + seconds(30))), first) is None, "too soon to tell"
    once = next_step(facts(launched, listing=listed(asked=first)), first)
    assert (once.status.state, once.status.absences) == (S.LAUNCHED, 1)
    assert next_step(facts(after(once), listing=listed(asked=first)), second) is None, "the same listing again"
    twice = next_step(facts(after(once), listing=listed(asked=second)), second)
    assert (twice.status.state, twice.status.reason) == (S.GONE, R.VANISHED)
    assert twice.status.failures == 1, "or it would be launched again at once, and again"
    assert twice.status.billed_until == first, "the first of them shows that it had ended"


@pytest.mark.parametrize("state", [S.LAUNCHED, S.JOINED])
def test_an_old_cordon_of_forebays_is_taken_off_a_machine_that_comes_back(state):
    step = next_step(facts(record(state, owned=True), node=node("gpu-1", cordoned=NOW - minutes(50))), NOW)

    assert isinstance(step, Uncordon)


def test_a_deleted_machine_is_terminated_while_it_boots():
    step = next_step(facts(record(S.LAUNCHED, deleting=True)), NOW)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.DELETED)
    assert step.status.failures is None


def test_a_machine_of_a_deleted_pool_is_drained_where_pods_may_have_come():
    step = next_step(facts(record(S.JOINED), node=node(), class_exists=False), NOW)

    assert (step.status.state, step.status.reason) == (S.DRAINING, R.POOL_GONE)


@pytest.mark.parametrize("sooner", [True, False])
def test_a_deletion_that_failed_is_tried_again_while_a_deadline_is_waited_for(sooner):
    def joining(*resources):
        return facts(record(S.JOINED, since=NOW, secondary_resources=resources), node=node(gpus=0))

    deadline = requeue_at(joining(), NOW)
    retry = deadline - seconds(30) if sooner else deadline + seconds(30)
    token = SecondaryResource(
        kind="BootstrapToken", name="t", until=ResourceLifetime.JOINED, failures=1, retry_at=retry
    )

    assert requeue_at(joining(token), NOW) == min(deadline, retry)
    assert next_step(joining(token), retry - seconds(1)) is None or not sooner
