"""Listed pods of RunPod: what is only a hint never hides one."""

import msgspec
import pytest

from forebay.providers.runpod.wire import RunpodPods


@pytest.mark.parametrize(
    ("runtime", "idle"),
    [
        (None, False),
        ({"gpus": None}, False),
        ({"gpus": []}, False),
        ({"gpus": [{"util": 0}, {"util": 0.0}]}, True),
        ({"gpus": [{"util": 0}, {"util": 3.5}]}, False),
        ({"gpus": [{"util": None}]}, False),
        ({"gpus": [{"util": "none"}]}, False),
        ("starting", False),
    ],
)
def test_a_pod_is_listed_whatever_is_told_of_the_use_of_its_gpus(runtime, idle):
    text = msgspec.json.encode({"pods": [{"id": "p-1", "name": "a", "status": "RUNNING", "runtime": runtime}]})

    (pod,) = msgspec.json.decode(text, type=RunpodPods).pods

    assert pod.id == "p-1"
    assert pod.idle is idle
