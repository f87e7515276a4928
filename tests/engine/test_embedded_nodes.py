"""Nodes of the embedded cluster: registration, missing heartbeats, taints, drain and deletion."""

import pytest

from forebay.embedded.api import kinds
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.subresources import evict_pod
from forebay.embedded.controllers.node_lifecycle import TAINT_LAG
from tests.engine.embedded_world import World, passing

KUBELET = "embedded.forebay.dev/kubelet"


def taints(world, name):
    spec = world.store.get(kinds.NODE_KIND, None, name)["spec"]
    return sorted((taint["key"].rpartition("/")[2], taint["effect"]) for taint in spec.get("taints", ()))


def ready(world, name):
    return world.condition(world.store.get(kinds.NODE_KIND, None, name), "Ready")


def set_kubelet(world, name, how):
    world.update(kinds.NODE_KIND, name, lambda node: node["metadata"].update(annotations={KUBELET: how}))


async def test_a_registered_node_becomes_ready_after_its_time():
    async with World() as world:
        world.node("new", ready_after=30)
        await passing(20)
        assert ready(world, "new") is None
        assert taints(world, "new") == [("not-ready", "NoSchedule")]
        world.update(kinds.NODE_KIND, "new", lambda node: node["metadata"]["labels"].update(touched="yes"))
        await passing(11)
        assert (ready(world, "new")["status"], ready(world, "new")["reason"]) == ("True", "KubeletReady")
        assert taints(world, "new") == []


async def test_a_new_node_keeps_its_taint_for_a_moment_after_it_has_become_ready():
    async with World() as world:
        world.node("new")
        await passing(TAINT_LAG / 2)
        assert ready(world, "new")["status"] == "True"
        assert taints(world, "new") == [("not-ready", "NoSchedule")]
        await passing(TAINT_LAG)
        assert taints(world, "new") == []


async def test_a_cordoned_node_has_the_unschedulable_taint():
    async with World() as world:
        world.node("only")
        await passing(1)
        world.update(kinds.NODE_KIND, "only", lambda node: node["spec"].update(unschedulable=True))
        await passing(1)
        assert taints(world, "only") == [("unschedulable", "NoSchedule")]
        world.update(kinds.NODE_KIND, "only", lambda node: node["spec"].update(unschedulable=False))
        await passing(1)
        assert taints(world, "only") == []


async def test_a_dead_kubelet_makes_its_node_unreachable_and_its_pods_are_deleted_after_their_toleration():
    async with World() as world:
        world.node("only")
        world.pod("default")
        world.pod("patient", tolerations=[{"operator": "Exists"}])
        world.pod(
            "hasty",
            tolerations=[
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 20,
                }
            ],
        )
        await passing(10)
        set_kubelet(world, "only", "dead")
        await passing(45)
        assert ready(world, "only")["status"] == "True"
        await passing(10)
        silent = ready(world, "only")
        assert (silent["status"], silent["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert silent["message"] == "Kubelet stopped posting node status."
        assert taints(world, "only") == [("unreachable", "NoExecute"), ("unreachable", "NoSchedule")]
        assert world.condition(world.the_pod("default"), "Ready")["status"] == "False"

        await passing(20)
        hasty = world.the_pod("hasty")
        assert "deletionTimestamp" in hasty["metadata"]
        assert world.condition(hasty, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert world.events("hasty", "TaintManagerEviction") == ["Marking for deletion Pod default/hasty"]
        await passing(290)
        assert "deletionTimestamp" in world.the_pod("default")["metadata"]
        assert "deletionTimestamp" not in world.the_pod("patient")["metadata"]


async def test_a_kubelet_that_comes_back_brings_its_node_and_pods_back():
    async with World() as world:
        world.node("only")
        world.pod("server")
        await passing(10)
        set_kubelet(world, "only", "dead")
        await passing(100)
        set_kubelet(world, "only", "embedded")
        await passing(2)
        assert ready(world, "only")["status"] == "True"
        assert taints(world, "only") == []
        assert world.condition(world.the_pod("server"), "Ready")["status"] == "True"
        await passing(600)
        assert "deletionTimestamp" not in world.the_pod("server")["metadata"]


async def test_a_node_with_another_kubelet_stays_ready_while_its_lease_is_renewed():
    async with World() as world:
        world.node("virtual", labels={"type": "virtual-kubelet"})
        up = {"type": "Ready", "status": "True", "reason": "Up", "message": ""}
        node = world.store.get(kinds.NODE_KIND, None, "virtual")
        world.store.update(
            kinds.NODE_KIND, {**node, "status": {**node["status"], "conditions": [up]}}, subresource="status"
        )
        lease = {"metadata": {"name": "virtual", "namespace": "kube-node-lease"}, "spec": {"holderIdentity": "me"}}
        held = world.store.create(kinds.LEASE_KIND, lease)
        for beat in range(12):
            await passing(10)
            held = world.store.update(
                kinds.LEASE_KIND, {**held, "spec": {"holderIdentity": "me", "leaseTransitions": beat}}
            )
        assert ready(world, "virtual")["status"] == "True"
        await passing(60)
        assert ready(world, "virtual")["status"] == "Unknown"


@pytest.mark.parametrize("how", ["never tolerated", "tolerated for a while", "tolerated for ever"])
async def test_a_taint_that_evicts(how):
    tolerations = {
        "never tolerated": [],
        "tolerated for a while": [{"key": "reclaim", "operator": "Exists", "tolerationSeconds": 60}],
        "tolerated for ever": [{"key": "reclaim", "operator": "Exists"}],
    }[how]
    async with World() as world:
        world.node("only")
        world.pod("work", tolerations=tolerations)
        await passing(10)
        world.update(
            kinds.NODE_KIND, "only", lambda n: n["spec"].update(taints=[{"key": "reclaim", "effect": "NoExecute"}])
        )
        await passing(30)
        assert len(world.pods()) == (0 if how == "never tolerated" else 1)
        await passing(40)
        assert len(world.pods()) == (1 if how == "tolerated for ever" else 0)


async def test_removing_toleration_seconds_saves_the_pod_and_raising_them_does_not():
    async with World() as world:
        world.node("only")
        limited = [{"key": "reclaim", "operator": "Exists", "tolerationSeconds": 60}]
        for name in ("freed", "raised"):
            world.pod(name, tolerations=limited)
        await passing(10)
        world.update(
            kinds.NODE_KIND, "only", lambda n: n["spec"].update(taints=[{"key": "reclaim", "effect": "NoExecute"}])
        )
        await passing(30)
        world.update(kinds.POD_KIND, "freed", lambda pod: pod["spec"]["tolerations"][0].pop("tolerationSeconds"))
        world.update(
            kinds.POD_KIND, "raised", lambda pod: pod["spec"]["tolerations"][0].update(tolerationSeconds=86400)
        )
        await passing(40)
        assert [pod["metadata"]["name"] for pod in world.pods()] == ["freed"]


async def test_the_pods_of_a_deleted_node_are_deleted():
    async with World() as world:
        world.node("doomed")
        world.job("train", backoffLimit=6, does={"run-time": "1h"})
        world.pod("counted")
        world.update(kinds.POD_KIND, "counted", lambda pod: pod["metadata"].update(finalizers=["forebay.dev/usage"]))
        await passing(10)
        world.store.delete(kinds.NODE_KIND, None, "doomed")
        await passing(30)
        assert world.phase("counted") == "Running"
        await passing(15)
        lost = world.the_pod("counted")
        assert lost["status"]["phase"] == "Failed"
        target = world.condition(lost, "DisruptionTarget")
        assert (target["reason"], target["message"]) == ("DeletionByPodGC", "PodGC: node no longer exists")
        assert "deletionTimestamp" in lost["metadata"]
        await passing(15)
        [again] = world.pods("train")
        assert again["spec"].get("nodeName") is None
        assert world.the_job("train")["status"]["failed"] == 1


async def test_a_pod_bound_to_a_node_that_never_registers_is_deleted():
    async with World() as world:
        world.pod("lost", nodeName="nowhere")
        await passing(60)
        assert world.pods() == []


async def test_a_drain_respects_the_disruption_budget():
    async with World() as world:
        for name in ("a", "b"):
            world.node(name)
        await passing(1)
        labels = {"app": "web"}
        world.replica_set("web", 3, labels=labels)
        spec = {"minAvailable": 2, "selector": {"matchLabels": labels}}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": {"name": "web"}, "spec": spec})
        await passing(5)
        budget = world.get(kinds.DISRUPTION_BUDGET_KIND, "web")["status"]
        counts = ("currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed", "observedGeneration")
        assert [budget[count] for count in counts] == [3, 2, 3, 1, 1]
        assert budget["conditions"][0]["reason"] == "SufficientPods"

        world.update(kinds.NODE_KIND, "a", lambda node: node["spec"].update(unschedulable=True))
        leaving = [pod["metadata"]["name"] for pod in world.pods() if pod["spec"]["nodeName"] == "a"]
        assert len(leaving) == 2
        evict_pod(world.store, "default", leaving[0], {})
        with pytest.raises(ApiFailure) as refused:
            evict_pod(world.store, "default", leaving[1], {})
        assert refused.value.code == 429
        await passing(10)
        evict_pod(world.store, "default", leaving[1], {})
        await passing(10)
        assert [pod["spec"]["nodeName"] for pod in world.pods()] == ["b", "b", "b"]
        assert world.get(kinds.DISRUPTION_BUDGET_KIND, "web")["status"]["disruptionsAllowed"] == 1
