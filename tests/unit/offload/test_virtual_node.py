"""The virtual node, the binding of a pod to it, and the marks of remote pods."""

from forebay.model.quantities import UsdPerHour
from forebay.offload.binding import binding, job_marks, pod_marks, without_time_limits
from forebay.offload.virtual_node import LogEndpoint, node_status, virtual_node
from tests.unit.demand.builders import NOW, ago


def status(endpoint=None):
    return node_status(ago(hours=1), NOW, most_pods=500, endpoint=endpoint, version="v1.36.4")


def test_the_node_repels_everything_that_does_not_tolerate_it():
    node = virtual_node()
    assert node["metadata"]["name"] == "runpod-virtual-node"
    assert node["metadata"]["labels"]["type"] == "virtual-kubelet"
    assert node["spec"]["taints"] == [{"key": "runpod.io/virtual", "value": "true", "effect": "NoSchedule"}]


def test_it_has_no_gpu_that_could_count_as_free_and_no_room_for_a_pod_of_any_scheduler():
    assert status()["allocatable"] == {"pods": "0", "cpu": "0", "memory": "0"}
    assert status()["capacity"] == {"pods": "500", "cpu": "0", "memory": "0"}


def test_its_heartbeat_is_now_and_its_transition_when_it_became_ready():
    ready = next(each for each in status()["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["lastHeartbeatTime"]) == ("True", "2026-03-02T12:00:00Z")
    assert ready["lastTransitionTime"] == "2026-03-02T11:00:00Z"


def test_logs_are_asked_for_at_an_address_and_never_at_a_host_name():
    found = status(LogEndpoint(address="10.0.0.7", port=10250))
    assert found["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
    assert found["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert "addresses" not in status()


def test_a_binding_names_the_very_pod_and_marks_it_in_the_same_write():
    body = binding("team", "train-0", "uid-1")
    assert body["metadata"]["uid"] == "uid-1"
    assert body["metadata"]["labels"] == {"runpod.io/managed": "true"}
    assert body["target"]["name"] == "runpod-virtual-node"


def test_tolerations_lose_their_time_limit_and_only_if_they_are_still_the_same():
    limited = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
    patch = without_time_limits([{"operator": "Exists"}, limited])
    assert patch == [
        {"op": "test", "path": "/spec/tolerations/1", "value": limited},
        {"op": "remove", "path": "/spec/tolerations/1/tolerationSeconds"},
    ]
    assert without_time_limits([{"operator": "Exists"}]) == []
    assert len(without_time_limits([limited | {"tolerationSeconds": 0}])) == 2


def test_marks_of_pods_and_jobs():
    assert pod_marks("abc123", UsdPerHour("0.44"))["metadata"] == {
        "labels": {"runpod.io/managed": "true", "runpod.io/pod-id": "abc123"},
        "annotations": {
            "runpod.io/external": "true",
            "runpod.io/pod-id": "abc123",
            "runpod.io/cost-per-hr": "0.44",
        },
    }
    assert job_marks("abc123", None) == {
        "runpod.io/offloaded": "true",
        "runpod.io/pod-id": "abc123",
        "runpod.io/retry-after": None,
    }


def test_an_id_that_is_no_label_value_is_an_annotation_only():
    marks = pod_marks("a/b")["metadata"]
    assert "runpod.io/pod-id" not in marks["labels"]
    assert marks["annotations"]["runpod.io/pod-id"] == "a/b"
