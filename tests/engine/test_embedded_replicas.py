"""ReplicaSets and disruption budgets of the embedded cluster."""

import pytest

from forebay.embedded.api import kinds
from tests.engine.embedded_world import World, passing

WEB = {"app": "web"}


def status(world, name="web"):
    return world.get(kinds.REPLICA_SET_KIND, name)["status"]


async def test_a_replica_set_keeps_its_number():
    async with World() as world:
        world.node("only")
        world.replica_set("web", 3, labels=WEB)
        await passing(5)
        assert status(world) == {
            "replicas": 3,
            "fullyLabeledReplicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "terminatingReplicas": 0,
            "observedGeneration": 1,
        }
        victim = world.pods()[0]["metadata"]["name"]
        world.delete(kinds.POD_KIND, victim)
        await passing(0.5)
        assert status(world)["terminatingReplicas"] == 1
        await passing(5)
        names = [pod["metadata"]["name"] for pod in world.pods()]
        assert len(names) == 3
        assert victim not in names
        assert len(world.events("web", "SuccessfulCreate")) == 4


async def test_scaling_down_deletes_the_pods_that_cost_least():
    async with World() as world:
        world.node("only", pods=2)
        world.replica_set("web", 2, labels=WEB)
        await passing(5)
        world.update(kinds.REPLICA_SET_KIND, "web", lambda rs: rs["spec"].update(replicas=4))
        await passing(5)
        old = {pod["metadata"]["name"] for pod in world.pods() if pod["spec"].get("nodeName")}
        assert (len(old), len(world.pods())) == (2, 4)
        dear = min(old)
        cost = {"controller.kubernetes.io/pod-deletion-cost": "100"}
        world.update(kinds.POD_KIND, dear, lambda pod: pod["metadata"].update(annotations=cost))
        world.update(kinds.REPLICA_SET_KIND, "web", lambda rs: rs["spec"].update(replicas=1))
        await passing(5)
        assert [pod["metadata"]["name"] for pod in world.pods()] == [dear]
        assert status(world)["replicas"] == 1
        assert len(world.events("web", "SuccessfulDelete")) == 3


async def test_ended_pods_are_replaced():
    async with World() as world:
        world.node("only")
        world.replica_set("web", 1, labels=WEB)
        await passing(5)
        [pod] = world.pods()
        world.update_status(kinds.POD_KIND, pod["metadata"]["name"], phase="Failed")
        await passing(5)
        assert sorted(p["status"]["phase"] for p in world.pods()) == ["Failed", "Running"]


async def test_the_pods_of_a_deleted_replica_set_are_deleted():
    async with World() as world:
        world.node("only")
        world.replica_set("web", 2, labels=WEB)
        await passing(5)
        world.delete(kinds.REPLICA_SET_KIND, "web")
        await passing(5)
        assert world.pods() == []


async def test_a_refused_pod_is_reported_on_the_replica_set_and_tried_again():
    async with World() as world:
        world.node("only")
        template = {
            "metadata": {"labels": WEB},
            "spec": {"priorityClassName": "absent", "containers": [{"name": "a", "image": "b"}]},
        }
        spec = {"selector": {"matchLabels": WEB}, "template": template}
        world.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "web"}, "spec": spec})
        await passing(5)
        failure = world.condition(world.get(kinds.REPLICA_SET_KIND, "web"), "ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
        world.store.create(kinds.PRIORITY_CLASS_KIND, {"metadata": {"name": "absent"}, "value": 1})
        await passing(30)
        assert status(world)["readyReplicas"] == 1
        assert world.condition(world.get(kinds.REPLICA_SET_KIND, "web"), "ReplicaFailure") is None


BUDGETS = {
    "at least a number": ({"minAvailable": 3}, (3, 4, 1)),
    "at least a share": ({"minAvailable": "60%"}, (3, 4, 1)),
    "at most a number": ({"maxUnavailable": 2}, (2, 4, 2)),
    "at most a share, rounded up": ({"maxUnavailable": "30%"}, (2, 4, 2)),
    "more than there are": ({"minAvailable": 9}, (9, 4, 0)),
}


@pytest.mark.parametrize("story", BUDGETS, ids=str)
async def test_a_budget_counts_allowed_disruptions(story):
    limits, expected = BUDGETS[story]
    async with World() as world:
        world.node("only")
        world.replica_set("web", 4, labels=WEB)
        spec = {**limits, "selector": {"matchLabels": WEB}}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": {"name": "web"}, "spec": spec})
        await passing(5)
        budget = world.get(kinds.DISRUPTION_BUDGET_KIND, "web")["status"]
        assert (budget["desiredHealthy"], budget["expectedPods"], budget["disruptionsAllowed"]) == expected


async def test_a_budget_without_an_expected_count_allows_nothing_and_says_why():
    async with World() as world:
        world.node("only")
        world.job("train", does={"run-time": "1h"})
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"job-name": "train"}}}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": {"name": "train"}, "spec": spec})
        await passing(5)
        budget = world.get(kinds.DISRUPTION_BUDGET_KIND, "train")
        assert budget["status"]["disruptionsAllowed"] == 0
        failed = world.condition(budget, "DisruptionAllowed")
        assert (failed["reason"], failed["message"]) == (
            "SyncFailed",
            "Job train does not implement the scale subresource",
        )


async def test_a_controller_can_be_left_out():
    async with World(without=["scheduler", "kubelet"]) as world:
        world.node("only")
        world.pod("mine")
        await passing(60)
        assert world.where("mine") is None
        assert world.condition(world.store.get(kinds.NODE_KIND, None, "only"), "Ready")["status"] == "True"


async def test_leaving_out_an_unknown_controller_is_an_error():
    with pytest.raises(ValueError, match="unknown controllers: deployments; known are: nodes, evictions, scheduler"):
        World(without=["deployments"])
