"""Which pods of marked Jobs leave, and what the others wait for."""

from datetime import timedelta

import pytest

from forebay.model.containers import ContainerPort
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.workloads import Owner
from forebay.offload.departure import MarkedJob, OffloadRules, departures
from forebay.offload.marks import InvalidMark, Marks, is_managed, read_marks
from tests.unit.demand.builders import NOW, ago, pod, running

PATIENT = OffloadRules(max_pending=timedelta(minutes=10), pending_threshold=1)


def job(name="train", age=5, **fields):
    marks = {"runpod.io/managed": "true", **fields.pop("annotations", {})}
    return MarkedJob(
        namespace="default",
        name=name,
        uid=f"job-{name}",
        created=ago(minutes=age),
        annotations=marks,
        **fields,
    )


def pod_of(of, **fields):
    return pod(f"{of.name}-0", owner=Owner("Job", of.name, of.uid), **fields)


def decide(*pairs, rules=PATIENT):
    jobs = {each.uid: each for each, _ in pairs}
    leaves, stays = departures([each for _, each in pairs], jobs, rules, None, NOW)
    return {each.job.name for each in leaves}, {each.pod.owner.name: each for each in stays}


def single(of, rules=PATIENT, **fields):
    return decide((of, pod_of(of, **fields)), rules=rules)


@pytest.mark.parametrize(
    ("labels", "annotations", "managed"),
    [
        ({}, {}, False),
        ({}, {"runpod.io/managed": "true"}, True),
        ({"runpod.io/managed": "true"}, {}, True),
        ({}, {"runpod.io/managed": ""}, True),
        ({}, {"runpod.io/managed": "False"}, False),
        ({"runpod.io/managed": "true"}, {"runpod.io/managed": "false"}, False),
    ],
)
def test_a_job_is_marked_by_label_or_annotation_and_false_means_no(labels, annotations, managed):
    assert is_managed(labels, annotations) is managed


def test_by_default_a_marked_job_leaves_as_soon_as_the_scheduler_finds_no_node():
    assert single(job(), OffloadRules()) == ({"train"}, {})


@pytest.mark.parametrize(
    ("waited", "why"),
    [
        (timedelta(milliseconds=80), "No node takes the pod."),
        (timedelta(seconds=90), "No node has taken the pod for 90s."),
    ],
)
def test_why_it_leaves_tells_a_wait_that_is_worth_telling(waited, why):
    (leaves,), _ = departures(
        [pod_of(job(), unschedulable_since=NOW - waited)], {job().uid: job()}, OffloadRules(), None, NOW
    )
    assert leaves.why == why


def test_a_patient_cluster_keeps_the_job_until_its_time_is_over():
    leaves, stays = single(job())
    assert leaves == set()
    assert stays["train"].reason is Reason.OFFLOAD_NOT_DUE
    assert stays["train"].until == ago(minutes=4) + timedelta(minutes=10)
    assert single(job(), unschedulable_since=ago(minutes=11))[0] == {"train"}


def test_a_forced_job_leaves_at_once():
    assert single(job(annotations={"runpod.io/offload": "true"}))[0] == {"train"}


def test_of_many_waiting_jobs_the_oldest_may_wait_and_the_others_leave():
    old, young, younger = job("old", 9), job("young", 6), job("younger", 5)
    leaves, stays = decide(*((each, pod_of(each)) for each in (younger, old, young)))
    assert leaves == {"young", "younger"}
    assert set(stays) == {"old"}


@pytest.mark.parametrize(
    "fields",
    [
        {"unschedulable_since": None},
        {"gpus": 0},
        {"scheduling_gates": ("forebay.dev/budget",)},
        {"deleted": ago(seconds=1)},
    ],
)
def test_a_pod_that_is_no_demand_is_left_out_of_it(fields):
    assert single(job(annotations={"runpod.io/offload": "true"}), **fields) == (set(), {})


def test_a_running_job_never_moves():
    of = job(annotations={"runpod.io/offload": "true"})
    bound = running("train-0", owner=Owner("Job", of.name, of.uid))
    assert decide((of, bound)) == (set(), {})


def test_an_unmarked_job_and_pods_of_other_owners_stay_out_of_it():
    unmarked = MarkedJob(namespace="default", name="plain", uid="job-plain", created=NOW)
    other = pod("web", owner=Owner("ReplicaSet", "web", "job-plain"))
    assert decide((unmarked, pod_of(unmarked)), (unmarked, other)) == (set(), {})


@pytest.mark.parametrize("state", ["suspended", "deleted"])
def test_a_job_that_is_suspended_or_deleted_stays(state):
    leaves, stays = single(job(annotations={"runpod.io/offload": "true"}, **{state: True}))
    assert leaves == set()
    assert stays["train"].reason is Reason.OFFLOAD_NOT_DUE


def test_a_mark_that_cannot_be_read_is_a_reason_and_no_guess():
    leaves, stays = single(job(annotations={"runpod.io/max-price": "cheap"}), OffloadRules())
    assert leaves == set()
    assert stays["train"].reason is Reason.OFFLOAD_NOT_POSSIBLE
    assert "runpod.io/max-price" in stays["train"].sentence


def test_marks_say_what_the_container_must_have():
    assert read_marks(
        {
            "runpod.io/offload": "true",
            "runpod.io/required-gpu-memory": "24",
            "runpod.io/cloud-type": "community",
            "runpod.io/datacenter-ids": "US-TX-3, EU-RO-1",
            "runpod.io/gpu-types": "NVIDIA L4,NVIDIA A40",
            "runpod.io/templateId": "tpl",
            "runpod.io/container-registry-auth-id": "reg",
            "runpod.io/ports": "8888/http,22",
            "runpod.io/max-price": "0.75",
        }
    ) == Marks(
        forced=True,
        gpu_memory_gib=24,
        cloud="COMMUNITY",
        data_centers=("US-TX-3", "EU-RO-1"),
        gpu_types=("NVIDIA L4", "NVIDIA A40"),
        template="tpl",
        registry_auth="reg",
        ports=(ContainerPort(port=8888, protocol="HTTP"), ContainerPort(port=22)),
        max_price=UsdPerHour("0.75"),
    )
    assert read_marks({}).gpu_memory_gib == 16


@pytest.mark.parametrize(
    ("mark", "value"),
    [
        ("required-gpu-memory", "lots"),
        ("required-gpu-memory", "-1"),
        ("required-gpu-memory", "²"),
        ("cloud-type", "ANY"),
        ("ports", "0/tcp"),
        ("ports", "53/udp"),
        ("ports", "http"),
        ("max-price", "-0.5"),
        ("max-price", "0"),
        ("max-price", "nan"),
        ("max-price", "1e400"),
        ("max-price", "9" * 5000),
        ("required-gpu-memory", "80GB"),
        ("gpu-types", ",,"),
        ("datacenter-ids", " , "),
        ("ports", "9" * 5000),
    ],
)
def test_an_unreadable_mark_names_itself(mark, value):
    with pytest.raises(InvalidMark, match=f"runpod.io/{mark}") as caught:
        read_marks({f"runpod.io/{mark}": value})
    assert len(str(caught.value)) < 250
