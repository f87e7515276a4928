"""`forebay explain` of a pod that a budget holds: which budget, its usage, and when it has room again."""

import pytest

from forebay.cli.cluster_reader import ClusterReader
from forebay.cli.explain.command import explanation_of
from forebay.embedded.api import kinds
from forebay.kube.client import Client
from forebay.kube.errors import Forbidden
from forebay.net.in_process import InProcess
from forebay.settings import Settings
from forebay.simulate.power import Powered
from tests.engine.budget_world import operator, passing, world
from tests.engine.power_world import SERVER
from tests.net.faults import Answer, Faulty

BOX = Powered(name="box-1", gpus=1, boot=60)
GATE = [{"name": "forebay.dev/budget"}]
REFUSED = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}'


async def explained(it, kind, name, client=None):
    explanation, _ = await explanation_of(
        ClusterReader(client or it.user, "default", "kube-system"), Settings(), kind, name, "default"
    )
    return explanation


async def test_a_pod_behind_the_gate_shows_the_budget_that_holds_it_and_until_when():
    async with world(nodes=("n1",)) as it, operator(it):
        it.budget(hours="0.2", window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="15m")
        await passing(1000)
        it.pod("second", 1, schedulingGates=GATE)
        await passing(30)
        explanation = await explained(it, "pod", "second")
        assert explanation.reason == "HeldByBudget"
        assert "GPUWorkloadBudget team-a: 0.25 GPU-h of 0.2 GPU-h used in the last 1h." in explanation.answer
        assert "GPUWorkloadBudget team-a has too little headroom for the pod" in explanation.next
        assert "not before" in explanation.next
        (event,) = it.told("second", "HeldByBudget")
        assert event.split("not before")[1][:20] == explanation.next.split("not before")[1][:20]


async def test_a_pod_that_no_capacity_is_launched_for_shows_the_budget_that_holds_it():
    async with world(BOX, nodes=()) as it, operator(it):
        it.budget("narrow", hours="0.01", window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="10m")
        await passing(800)
        it.pod("second", 1)
        await passing(30)
        explanation = await explained(it, "pod", "second")
        assert explanation.reason == "HeldByBudget"
        assert "GPUWorkloadBudget narrow: " in explanation.answer
        assert "GPUWorkloadBudget narrow has too little headroom for the pod" in explanation.next


async def test_a_pod_whose_budgets_have_room_shows_that_the_gate_is_removed():
    async with world(nodes=("n1",)) as it, operator(it):
        it.budget(hours="10")
        it.pod("other", 1, labels={"team": "b"}, schedulingGates=[{"name": "theirs"}, *GATE])
        await passing(2)
        it.store.create(
            kinds.POD_KIND,
            {
                "metadata": {"name": "gated", "namespace": "default", "labels": {"team": "a"}},
                "spec": {
                    "schedulingGates": GATE,
                    "containers": [{"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
                },
            },
        )
        explanation = await explained(it, "pod", "gated")
        assert explanation.next == "The pod's budgets have room: the operator removes the gate within seconds."


async def test_without_access_to_ledgers_usage_is_as_last_reported():
    async with world(nodes=("n1",)) as it, operator(it):
        it.budget(hours="0.2", window=1, action="Pause", grace=100_000)
        it.pod("first", 1, runs="15m")
        await passing(1000)
        it.pod("second", 1, schedulingGates=GATE)
        await passing(30)

        def without_ledgers(request):
            return Answer(403, body=REFUSED) if "configmaps" in request.url else None

        client = Client(Faulty(InProcess(it.cluster.handler), without_ledgers), SERVER)
        explanation = await explained(it, "pod", "second", client)
        await client.close()
        assert "GPUWorkloadBudget team-a: 0.25 of 0.2 GPU-h used when the operator last reported." in explanation.answer
        assert explanation.next.startswith("HeldByBudget: GPUWorkloadBudget team-a has")


async def test_a_paused_job_shows_the_budget_that_suspended_it():
    async with world(nodes=("n1",)) as it, operator(it):
        it.budget(hours="0.05", window=1, action="Pause", grace=0)
        it.job("train")
        await passing(400)
        explanation = await explained(it, "job", "train")
        assert explanation.reason == "Paused"
        assert "GPUWorkloadBudget team-a suspended this Job at " in explanation.next


@pytest.mark.parametrize("kind", ["pod", "job"])
async def test_a_team_with_rights_in_its_namespace_alone_is_told_why_its_pod_waits(kind):
    async with world(BOX, nodes=()) as it, operator(it):
        it.job("train", gpus=8)
        await passing(30)
        (pod,) = [each["metadata"]["name"] for each in it.store.list(kinds.POD_KIND)]

        def at_the_cluster_scope(request):
            path = request.url.partition("?")[0]
            return None if "/namespaces/default/" in path else Answer(403, body=REFUSED)

        client = Client(Faulty(InProcess(it.cluster.handler), at_the_cluster_scope), SERVER)
        explanation = await explained(it, kind, pod if kind == "pod" else "train", client)
        with pytest.raises(Forbidden):
            await explained(it, "node", "box-1", client)
        await client.close()

    assert explanation.reason == "NoOfferFits"
    assert "request less, or allow larger machines" in explanation.next
    assert explanation.hidden == ("GPUInstances", "nodes", "GPUNodePools")
