"""Machines whose nodes are late: repeated power-on calls, missing GPUs, machines that people hold, and what is told."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import Purpose
from forebay.api.names import MAINTENANCE_ANNOTATION
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.lifecycle.registration import DRIVER_TIME, REPEAT_POWER_ON_AFTER
from forebay.lifecycle.steps import Launch
from forebay.model.quantities import Resources
from forebay.model.sources import Capabilities, Delivery, InstancePhase
from tests.unit.lifecycle.builders import (
    NOW,
    OWNED,
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
    owned_spec,
    pod,
    record,
    requeue_at,
    seconds,
)

OFF = node("gpu-1", ready=False)
UNKNOWN = listed(unknown=["gpu-1"])


def booting(capabilities=None, *, boot_deadline="15m", held=False, **fields):
    status = {key: value for key, value in fields.items() if key not in ("wanted", "spec", "listing")}
    made = record(S.LAUNCHED, owned=True, spec=fields.get("spec", owned_spec(boot_deadline=boot_deadline)), **status)
    there = replace(OFF, annotations={MAINTENANCE_ANNOTATION: ""}) if held else OFF
    return facts(
        made, capabilities, node=there, listing=fields.get("listing", UNKNOWN), wanted=fields.get("wanted", True)
    )


def test_a_booting_machine_is_looked_at_again_when_its_power_on_call_is_due_or_its_time_is_up():
    assert requeue_at(booting(), NOW) == NOW + REPEAT_POWER_ON_AFTER
    assert requeue_at(booting(attempted_at=NOW - minutes(1)), NOW) == NOW + REPEAT_POWER_ON_AFTER - minutes(1)
    assert requeue_at(booting(attempted_at=None), NOW) == NOW + REPEAT_POWER_ON_AFTER, "since it was launched"
    assert requeue_at(booting(boot_deadline="90s"), NOW) == NOW + seconds(90)
    assert requeue_at(booting(attempt=MAX_ATTEMPTS), NOW) == NOW + minutes(15), "no more calls"
    assert requeue_at(booting(not_before=NOW + minutes(3)), NOW) == NOW + minutes(3)


def test_a_repeated_power_on_call_counts_as_an_attempt_and_says_why():
    step = next_step(booting(), NOW + REPEAT_POWER_ON_AFTER)

    assert isinstance(step, Launch)
    assert step.status.attempt == 2
    assert step.status.not_before == NOW + 2 * REPEAT_POWER_ON_AFTER
    assert step.sentence == (
        "Repeating the power-on call of gpu-1: node gpu-1 is not Ready yet, and a machine that was still shutting down "
        "may have ignored the call."
    )


def test_a_machine_that_was_found_on_and_went_off_before_its_node_came_is_powered_on_for_its_pods():
    step = next_step(booting(attempt=None), NOW + REPEAT_POWER_ON_AFTER)

    assert isinstance(step, Launch)
    assert step.status.attempt == 2


@pytest.mark.parametrize(
    "of",
    [
        booting(wanted=False),
        booting(held=True),
        booting(listing=listed(instance("gpu-1", InstancePhase.STARTING))),
        booting(Capabilities(deliveries=(Delivery.POWER,), settle_time=OWNED.settle_time)),
        booting(spec=replace(owned_spec(), purpose=Purpose.ADOPTED)),
    ],
    ids=["nobody wants it", "under maintenance", "it starts", "calls are not idempotent", "it was found"],
)
def test_a_power_on_call_is_not_repeated(of):
    assert next_step(of, NOW + REPEAT_POWER_ON_AFTER) is None
    assert requeue_at(of, NOW + REPEAT_POWER_ON_AFTER) == NOW + minutes(15)


def test_a_rented_machine_is_not_launched_again_while_it_boots():
    starting = facts(record(S.LAUNCHED), replace(RENTED, idempotent_launch=True))
    assert next_step(starting, NOW + REPEAT_POWER_ON_AFTER) is None


@pytest.mark.parametrize(
    ("of", "reason", "why"),
    [
        (booting(attempt=None), R.JOIN_TIMEOUT, "Forebay did not power it on"),
        (booting(held=True), R.UNDER_MAINTENANCE, f"node gpu-1 has the annotation {MAINTENANCE_ANNOTATION}"),
    ],
    ids=["powered on by people", "under maintenance"],
)
def test_a_machine_of_people_stays_on_though_its_node_does_not_come_and_says_so_once(of, reason, why):
    step = next_step(of, NOW + minutes(15))

    assert (step.status.state, step.status.reason) == (S.LAUNCHED, reason)
    assert step.sentence == (
        "gpu-1 was powered on but node gpu-1 did not become Ready within 15m. It stays on, because "
        f"{why}; to have it powered off, delete this GPUInstance."
    )
    assert next_step(replace(of, record=after(step)), NOW + minutes(16)) is None


def test_a_machine_of_people_that_goes_off_again_is_gone():
    """Others report "off" until they have booted; of one that was on, two such listings are the end."""
    found = record(S.LAUNCHED, owned=True, attempt=None, attempted_at=None)
    for minute in (1, 2):
        asked = NOW + minutes(minute)
        step = next_step(facts(found, node=OFF, listing=listed(asked=asked)), asked)
        found = after(step)
    assert (found.status.state, found.status.reason) == (S.GONE, R.VANISHED)


def test_a_joined_machine_of_people_stays_on_without_its_gpus():
    joined = record(S.JOINED, owned=True, attempt=None)
    step = next_step(facts(joined, node=node("gpu-1", gpus=0)), NOW + minutes(15))

    assert (step.status.state, step.status.reason) == (S.JOINED, R.GPUS_MISSING)
    assert "It stays on, because Forebay did not power it on" in step.sentence


@pytest.mark.parametrize(("since", "accepted"), [(None, DRIVER_TIME), (NOW + minutes(1), DRIVER_TIME + minutes(1))])
def test_a_node_with_some_of_its_gpus_is_accepted_once_its_driver_had_its_time(since, accepted):
    one = replace(node(gpus=1, ready_since=since), capacity=Resources({"nvidia.com/gpu": 2}))
    joined = facts(record(S.JOINED), node=one)

    assert requeue_at(joined, NOW) == NOW + accepted
    assert next_step(joined, NOW + accepted - seconds(1)) is None
    step = next_step(joined, NOW + accepted)
    assert step.status.state is S.READY
    assert step.sentence == (
        "Node pool-abc is Ready with 1 of 2 nvidia.com/gpu: the others have failed (capacity and allocatable of the "
        f"Node differ), {int(accepted.total_seconds()) // 60}m after the launch call. Pods can run on it."
    )


def test_a_node_with_some_of_its_gpus_is_accepted_at_its_deadline_at_the_latest():
    late = facts(record(S.JOINED), node=node(gpus=1, ready_since=NOW + RENTED.gpu_deadline - seconds(9)))

    assert requeue_at(late, NOW) == NOW + RENTED.gpu_deadline
    step = next_step(late, NOW + RENTED.gpu_deadline)
    assert step.status.state is S.READY
    assert "with 1 of 2 nvidia.com/gpu, 10m after" in step.sentence, "the Node has no more either"


def test_what_a_new_node_reports_is_recorded_and_that_of_an_owned_machine_is_known_from_its_configuration():
    rented = next_step(facts(record(S.JOINED), node=node()), NOW)
    owned = next_step(facts(record(S.JOINED, owned=True, attempted_at=None), node=node("gpu-1")), NOW)

    assert rented.status.allocatable == {"cpu": "8000m"}
    assert owned.status.allocatable == {}
    assert owned.sentence == "Node gpu-1 is Ready with its GPUs. Pods can run on it.", "nobody called for it"


@pytest.mark.parametrize(
    ("variable", "where"),
    [(None, "gpuCount of machine gpu-1 in GPUNodeClass None"), ("GPU_COUNT", "environment variable GPU_COUNT")],
)
def test_a_wrong_number_of_gpus_names_what_to_correct(variable, where):
    more = facts(record(S.JOINED, owned=True), node=node("gpu-1", gpus=4), gpu_count_variable=variable)
    none = facts(record(S.JOINED, owned=True), node=node("gpu-1", gpus=0), gpu_count_variable=variable)
    wrong = f"The node has 4 nvidia.com/gpu, but {where} says 2: correct it, or check the GPUs."

    assert next_step(more, NOW).sentence.endswith(wrong)
    assert "correct it" not in next_step(none, NOW + minutes(15)).sentence, "its driver does not run"
    assert "correct it" not in next_step(facts(record(S.JOINED), node=node(gpus=4)), NOW).sentence


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        (None, "Node pool-abc registered but did not become Ready within 10m."),
        (node(ready=False), "Node pool-abc registered but did not become Ready within 10m."),
        (
            node(gpus=0),
            (
                "Node pool-abc is Ready, but its GPUs did not become allocatable within 10m: check its driver and "
                "device plugin."
            ),
        ),
        (
            node(taints=[("node.kubernetes.io/not-ready", "", "NoSchedule")]),
            (
                "Node pool-abc is Ready, but taint node.kubernetes.io/not-ready was not removed within 10m: check what "
                "removes it."
            ),
        ),
        (
            node(taints=[("example.com/agent", "", "NoExecute")]),
            "Node pool-abc is Ready, but a startup taint was not removed within 10m: check what removes it.",
        ),
    ],
    ids=["missing", "not ready", "without GPUs", "a taint of Kubernetes", "a startup taint of the pool"],
)
def test_a_node_that_is_not_initialized_by_its_deadline_says_what_is_missing(there, sentence):
    step = next_step(facts(record(S.JOINED, failures=1), node=there), NOW + RENTED.gpu_deadline)

    assert step.sentence == f"{sentence} Terminating it; next attempt in 10m at the earliest."
    assert step.status.failures == 2


def test_a_node_with_pods_says_how_many_run_on_it_without_its_gpus():
    pods = (pod("a", gpus=0), pod("b", gpus=0))
    step = next_step(facts(record(S.JOINED), node=node(gpus=0), pods=pods), NOW + RENTED.gpu_deadline)

    assert step.sentence.endswith("2 pods run on it anyway; it is terminated when they have ended.")


@pytest.mark.parametrize(
    ("of", "late", "sentence"),
    [
        (
            facts(record(S.LAUNCHED), listing=listed(instance(phase=InstancePhase.STARTING))),
            RENTED.launch_deadline,
            "Launch of a100x2 in us-east at simulated was accepted, but it did not run within 10m.",
        ),
        (
            facts(record(S.LAUNCHED)),
            RENTED.launch_deadline + RENTED.join_deadline,
            "a100x2 in us-east at simulated did not register as a node within 25m.",
        ),
    ],
    ids=["never ran", "nobody knows"],
)
def test_a_rented_machine_that_never_registers_says_how_far_it_came(of, late, sentence):
    assert requeue_at(of, NOW) == NOW + RENTED.launch_deadline
    step = next_step(of, NOW + late)
    assert step.sentence == f"{sentence} Terminating it; next attempt in 5m at the earliest."
