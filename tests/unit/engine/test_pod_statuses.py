"""What the virtual node writes about pods."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, Transition
from forebay.api.meta import ObjectMeta
from forebay.api.names import MANAGED_MARK
from forebay.engine.virtual_node.pod_containers import WholePod
from forebay.engine.virtual_node.pod_statuses import RemotePods, bound_at, price_of
from forebay.kube.client import Client
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Phase
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from forebay.offload.record_progress import ReportedExit
from tests.unit.demand.builders import NOW, ago, record, running


def test_the_price_of_a_container_is_what_it_is_billed_at_else_what_was_offered_and_that_of_no_other():
    offered = record("c1", instance_id="i-1")
    offered = replace(offered, spec=replace(offered.spec, hourly_price="1.10"))
    billed = replace(offered, status=replace(offered.status, hourly_price="0.90"))

    assert price_of(offered, "i-1") == "1.10"
    assert price_of(billed, "i-1") == "0.90"
    assert price_of(billed, "i-2") is None
    assert price_of(billed, None) is None
    assert price_of(replace(billed, status=replace(billed.status, instance_id=None)), None) is None
    assert price_of(record("c2", None), "i-1") is None


@pytest.mark.parametrize(
    ("conditions", "at"),
    [
        ([], None),
        ([("PodScheduled", "True")], NOW),
        ([("PodScheduled", "False")], None),
        ([("Ready", "True"), ("PodScheduled", "False")], None),
        ([("Ready", "True"), ("PodScheduled", "True")], NOW),
    ],
)
def test_a_pod_was_bound_when_its_condition_became_true(conditions, at):
    told = [{"type": kind, "status": status, "lastTransitionTime": NOW.isoformat()} for kind, status in conditions]
    bare = [{key: value for key, value in each.items() if key != "lastTransitionTime"} for each in told]
    assert bound_at(WholePod(metadata=ObjectMeta(name="p"), status={"conditions": told})) == at
    assert bound_at(WholePod(metadata=ObjectMeta(name="p"), status={"conditions": bare})) is None


GONE, RUNNING = InstanceState.GONE, InstanceState.RUNNING


class Served:
    """An API server with one pod on the virtual node, and the GPUInstances that a list shows."""

    def __init__(self, seen, *, uid=None, listed=(), containers=None):
        self.seen, self.uid, self.listed, self.status = seen, uid or seen.uid, listed, 200
        self.containers = containers or [{"name": "main", "image": "work:1", "command": ["train"]}]
        self.calls, self.bodies = [], []
        self.pods = RemotePods(Client(InProcess(self._answer), "http://server"), lambda: NOW)

    async def _answer(self, request):
        path = request.url.partition("?")[0].removeprefix("http://server")
        self.calls.append(f"{request.method} {path.rpartition('/')[2]}")
        if request.method in {"PATCH", "DELETE"}:
            self.bodies.append(json.loads(request.body))
        if self.status != 200:
            failed = {"kind": "Status", "code": self.status, "reason": "X", "message": "No."}
            return Response(self.status, body=json.dumps(failed).encode())
        if path.endswith("gpuinstances"):
            items = [{"metadata": each.metadata, "spec": each.spec, "status": each.status} for each in self.listed]
            return Response(200, body=msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": items}))
        metadata = {"name": self.seen.name, "namespace": "default", "uid": self.uid, "resourceVersion": "7"}
        return Response(200, body=json.dumps({"metadata": metadata, "spec": {"containers": self.containers}}).encode())

    async def sync(self, *records, pods=None, reports=None):
        """The requests of one round, and the status that it wrote."""
        self.calls.clear()
        self.bodies.clear()
        await self.pods.sync([self.seen] if pods is None else pods, records, reports or {})
        written = [each["status"] for each in self.bodies if "status" in each]
        return self.calls, written[-1] if written else None


MINE = {MANAGED_MARK: "true"}


def remote(**fields):
    return running("train", node="runpod-virtual-node", **{"labels": MINE, **fields})


def far(pod, state=RUNNING, name="c1", **status):
    step = Transition(state=RUNNING, reason=Reason.CONTAINER_RUNNING, message="Runs.", at=ago(minutes=3))
    given = {"instance_id": "i-1", "transitions": (step,), **status}
    return record(name, state, pods=(pod,), delivers=Delivery.CONTAINER, **given)


async def test_the_status_of_a_pod_is_written_once_and_again_when_something_has_changed():
    seen = remote()
    it, runs = Served(seen), far(seen)
    calls, status = await it.sync(runs)
    assert (calls, status["phase"]) == (["GET train", "PATCH train", "PATCH status"], "Running")
    assert all(each["metadata"]["uid"] == seen.uid for each in it.bodies)
    assert await it.sync(runs) == ([], None)
    assert await it.sync(far(seen)) == ([], None), "another object that says the same"
    calls, status = await it.sync(runs, reports={"uid-of-c1": ReportedExit(exit_code=3, at=NOW)})
    assert (calls[-1], status["phase"]) == ("PATCH status", "Failed")
    await it.sync(pods=[])
    assert (await it.sync(runs))[0][0] == "GET train", "nothing is kept of a pod that was away"


@pytest.mark.parametrize(
    ("state", "fields", "calls"),
    [
        (GONE, {"deleted": NOW}, ["GET train", "PATCH train", "PATCH status", "DELETE train"]),
        (GONE, {"deleted": NOW, "phase": Phase.SUCCEEDED}, ["DELETE train"]),
        (InstanceState.TERMINATING, {"deleted": NOW, "phase": Phase.SUCCEEDED}, []),
        (GONE, {"phase": Phase.SUCCEEDED}, []),
        (RUNNING, {"deleted": NOW}, ["GET train", "PATCH train", "PATCH status"]),
    ],
    ids=["deleted and gone", "ended, deleted and gone", "deleted and not gone", "ended", "deleted while it runs"],
)
async def test_a_deleted_pod_goes_when_its_container_is_proven_gone(state, fields, calls):
    seen = remote(**fields)
    it = Served(seen)
    assert (await it.sync(far(seen, state)))[0] == calls
    for each in it.bodies:
        if "gracePeriodSeconds" in each:
            assert (each["gracePeriodSeconds"], each["preconditions"]["uid"]) == (0, seen.uid)


async def test_of_two_containers_of_a_deleted_pod_both_must_be_gone():
    seen = remote(deleted=NOW, phase=Phase.FAILED)
    assert (await Served(seen).sync(far(seen, GONE), far(seen, RUNNING, "c2")))[0] == []


async def test_a_pod_that_ran_and_has_no_record_is_lost_unless_the_view_is_late():
    seen = remote()
    late = Served(seen, listed=[far(running("other")), far(seen, name="c2")])
    assert await late.sync() == (["GET gpuinstances"], None)
    lost = Served(seen, listed=[far(running("other"))])
    calls, status = await lost.sync()
    assert (calls, status["phase"]) == (["GET gpuinstances", "GET train", "PATCH status"], "Failed")


@pytest.mark.parametrize(
    ("fields", "phase", "word"),
    [
        ({"phase": Phase.PENDING, "labels": {}}, "Pending", "NotSupported"),
        ({"phase": Phase.PENDING}, "Pending", "ContainerCreating"),
        ({"phase": Phase.RUNNING, "labels": {}}, "Pending", "NotSupported"),
    ],
    ids=["not of ours", "waits", "of somebody else"],
)
async def test_a_pod_without_a_container_says_whether_it_will_have_one(fields, phase, word):
    calls, status = await Served(remote(**fields)).sync()
    assert calls == ["GET train", "PATCH status"], "it has not run here, so no record of it is missed"
    assert status["phase"] == phase
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == word


async def test_a_pod_that_was_deleted_before_it_had_a_container_goes():
    for labels, phase in (({}, Phase.PENDING), (MINE, Phase.PENDING), (MINE, Phase.RUNNING)):
        calls, status = await Served(remote(phase=phase, deleted=NOW, labels=labels)).sync()
        assert calls == ["GET train", "PATCH status", "DELETE train"]
        assert status["phase"] == "Failed", "a Job that replaces failed pods waits for that"


async def test_a_pod_that_somebody_else_bound_has_the_status_of_the_container_that_it_got():
    seen = remote(labels={}, phase=Phase.PENDING)
    assert (await Served(seen).sync(far(seen)))[1]["phase"] == "Running"


async def test_the_status_of_one_pod_is_not_written_to_another_of_its_name():
    seen = remote()
    it = Served(seen, uid="another")
    assert (await it.sync(far(seen)))[0] == ["GET train"]


@pytest.mark.parametrize(("status", "told"), [(503, True), (403, True), (404, False), (409, False)])
async def test_a_status_that_could_not_be_written_is_written_in_the_next_round(status, told, capsys):
    seen = remote()
    it = Served(seen)
    it.status = status
    await it.sync(far(seen))
    assert ("remote pod not updated" in capsys.readouterr().out) is told
    it.status = 200
    assert (await it.sync(far(seen)))[1]["phase"] == "Running"


@pytest.mark.parametrize(
    ("containers", "reports"),
    [
        ([{"name": "main", "command": ["train"]}], True),
        ([{"name": "main"}], False),
        ([{"name": "side"}, {"name": "main", "command": ["train"]}], True),
    ],
)
async def test_a_command_reports_its_exit_code_and_an_entry_point_does_not(containers, reports):
    seen = remote()
    it = Served(seen, containers=containers)
    assert not it.pods.reports_exit_code(seen.uid)
    await it.sync(far(seen))
    assert it.pods.reports_exit_code(seen.uid) is reports
