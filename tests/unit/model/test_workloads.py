import pytest

from forebay.model.quantities import Gpus, Resources
from forebay.model.workloads import (
    ContainerResources,
    Owner,
    Phase,
    PodShape,
    TopologySpread,
    effective_requests,
    pod_names,
)
from tests.unit.demand.builders import pod


def ask(**requests):
    return ContainerResources(requests)


def sidecar(**requests):
    return ContainerResources(requests, restartable=True)


def one_pod_of(**amounts):
    return Resources.parse({**amounts, "pods": 1})


def test_containers_run_together_so_their_requests_add_up():
    assert effective_requests([ask(cpu="100m", memory="1Gi"), ask(cpu="1", memory="1Mi")]) == one_pod_of(
        cpu="1100m", memory="1025Mi"
    )


def test_every_pod_counts_as_one_pod_even_if_it_requests_nothing():
    assert effective_requests([ask()]) == Resources({"pods": 1})


def test_init_containers_run_one_by_one_so_only_the_largest_counts():
    requests = effective_requests([ask(cpu=2, memory="1G")], [ask(cpu=1, memory="2G"), ask(cpu=3, memory="1G")])

    assert requests == one_pod_of(cpu=3, memory="2G")


def test_a_sidecar_runs_beside_the_containers():
    assert effective_requests([ask(cpu=2)], [sidecar(cpu=1)]) == one_pod_of(cpu=3)


def test_an_init_container_runs_beside_the_sidecars_started_before_it_only():
    early, late, job = sidecar(cpu=1), sidecar(cpu=4), ask(cpu=5)

    assert effective_requests([ask(cpu=1)], [early, job]) == one_pod_of(cpu=6)
    assert effective_requests([ask(cpu=1)], [job, early]) == one_pod_of(cpu=5)
    assert effective_requests([ask(cpu=1)], [early, job, late]) == one_pod_of(cpu=6)
    assert effective_requests([ask(cpu=1)], [early, late, job]) == one_pod_of(cpu=10)


def test_each_resource_is_compared_on_its_own():
    requests = effective_requests([ask(**{"nvidia.com/gpu": 8, "cpu": 1})], [ask(cpu=4)])

    assert requests == one_pod_of(**{"nvidia.com/gpu": 8, "cpu": 4})


def test_overhead_comes_on_top():
    assert effective_requests([ask(cpu=1)], [ask(cpu=2)], overhead={"cpu": "250m"}) == one_pod_of(cpu="2250m")


def test_a_limit_stands_in_for_a_request_that_was_left_out_but_not_for_one_of_zero():
    container = ContainerResources(requests={"cpu": "0"}, limits={"cpu": 4, "nvidia.com/gpu": "2"})

    assert effective_requests([container]) == one_pod_of(**{"nvidia.com/gpu": 2})


def test_pod_level_requests_replace_the_sum_before_overhead():
    pod = ContainerResources(requests={"cpu": 8, "nvidia.com/gpu": 4}, limits={"memory": "1Gi"})
    requests = effective_requests([ask(cpu=1), ask(cpu=2)], overhead={"cpu": 1}, pod_level=pod)

    assert requests == one_pod_of(cpu=9, memory="1Gi"), "GPUs cannot be asked for by a pod as a whole"


def test_a_pod_level_limit_does_not_raise_container_requests():
    pod = ContainerResources(limits={"cpu": 8})

    assert effective_requests([ask(cpu=1)], pod_level=pod) == one_pod_of(cpu=1)


def test_rounding_happens_once_after_all_adding():
    assert effective_requests([ask(cpu="0.5m"), ask(cpu="0.5m")]) == one_pod_of(cpu="1m")


def test_a_shape_knows_its_gpus():
    shape = PodShape(requests=one_pod_of(**{"nvidia.com/gpu": 2, "vendor.io/accelerator": 1}))

    assert shape.gpus() == Gpus(2)
    assert shape.gpus(["vendor.io/accelerator"]) == Gpus(1)


@pytest.mark.parametrize(("phase", "ended"), [(phase, phase in {"Succeeded", "Failed"}) for phase in Phase])
def test_only_succeeded_and_failed_pods_have_finished(phase, ended):
    assert phase.ended is ended


@pytest.mark.parametrize(
    ("fields", "occupies"),
    [
        ({}, True),
        ({"owner": Owner("ReplicaSet", "web", "uid")}, True),
        ({"owner": Owner("DaemonSet", "driver", "uid")}, False),
        ({"mirror": True}, False),
        ({"phase": Phase.SUCCEEDED}, False),
    ],
    ids=["alone", "of a ReplicaSet", "of a DaemonSet", "of the kubelet", "ended"],
)
def test_a_node_is_kept_for_pods_but_not_for_daemons_and_those_that_have_ended(fields, occupies):
    assert pod(**{"node": "n1", "phase": Phase.RUNNING, **fields}).occupies_node is occupies


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([], ""),
        (["a"], "ml/a"),
        (["b", "a"], "ml/a and ml/b"),
        (["c", "b", "a"], "ml/a, ml/b and ml/c"),
        (["d", "c", "b", "a"], "ml/a, ml/b, ml/c and 1 more"),
    ],
)
def test_pods_are_named_in_order_and_only_a_few_of_many(names, shown):
    assert pod_names([pod(name=name, namespace="ml") for name in names]) == shown


def test_a_pod_that_says_nothing_has_the_defaults_of_kubernetes():
    shape = PodShape(requests=Resources())
    assert (shape.priority, shape.scheduler_name, shape.resource_claims) == (0, "default-scheduler", False)
    assert (pod().restarted, pod().mirror) == (False, False)
    spread = TopologySpread("zone", 1, None)
    assert (spread.honors_node_affinity, spread.honors_node_taints) == (True, False)


def test_a_pod_that_has_ended_or_is_of_its_node_keeps_no_machine():
    assert pod().occupies_node
    assert not pod(phase=Phase.SUCCEEDED).occupies_node
    assert not pod(phase=Phase.FAILED).occupies_node
    assert not pod(mirror=True).occupies_node
    assert not pod(owner=Owner("DaemonSet", "driver", "u")).occupies_node
    assert pod(owner=Owner("Job", "train", "u")).occupies_node
