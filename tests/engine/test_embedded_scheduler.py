"""The embedded scheduler: which node a pod gets, and the message of a pod that fits nowhere."""

import pytest

from forebay.embedded.api import kinds
from forebay.embedded.api.subresources import bind_pod
from tests.engine.embedded_world import World, passing

PREEMPTION = " no new claims to deallocate, preemption: "


def anti_affinity(labels, key="kubernetes.io/hostname", kind="podAntiAffinity"):
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def message(world, name):
    return world.condition(world.the_pod(name), "PodScheduled")["message"]


async def test_a_pod_without_any_node_is_unschedulable_and_runs_once_one_appears():
    async with World() as world:
        world.pod("train", gpus=1)
        await passing(1)
        refused = world.condition(world.the_pod("train"), "PodScheduled")
        assert (refused["status"], refused["reason"]) == ("False", "Unschedulable")
        assert refused["message"] == "no nodes available to schedule pods"
        assert world.events("train", "FailedScheduling") == ["no nodes available to schedule pods"]

        world.node("gpu-1", gpus=8, ready_after=60)
        await passing(30)
        assert world.where("train") is None
        assert "0/1 nodes are available: 1 node(s) had untolerated taint(s)." in message(world, "train")
        await passing(40)
        assert world.where("train") == "gpu-1"
        assert world.phase("train") == "Running"
        assert world.condition(world.the_pod("train"), "PodScheduled")["status"] == "True"
        assert world.events("train", "Scheduled") == ["Successfully assigned default/train to gpu-1"]


async def test_the_reasons_are_counted_and_worded_as_the_real_scheduler_does():
    async with World() as world:
        world.node("cordoned")
        world.update(kinds.NODE_KIND, "cordoned", lambda node: node["spec"].update(unschedulable=True))
        world.node("tainted", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
        world.node("small", cpu="2", gpus=4, pods=1)
        world.node("full", cpu="2", gpus=1)
        await passing(1)
        world.pod("owner", cpu="2", nodeSelector={"kubernetes.io/hostname": "full"})
        await passing(1)
        world.pod("big", cpu="2", gpus=8)
        world.pod("elsewhere", nodeSelector={"a": "b"})
        world.pod("late", cpu="2", nodeSelector={"kubernetes.io/hostname": "full"})
        await passing(1)
        assert message(world, "big") == (
            "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), "
            "1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu."
            f"{PREEMPTION}0/4 nodes are available: 4 Preemption is not helpful for scheduling."
        )
        assert message(world, "elsewhere") == (
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, "
            "2 node(s) didn't match Pod's node affinity/selector."
            f"{PREEMPTION}0/4 nodes are available: 4 Preemption is not helpful for scheduling."
        )
        assert message(world, "late").endswith(
            "0/4 nodes are available: 1 No preemption victims found for incoming pod, "
            "3 Preemption is not helpful for scheduling."
        )


async def test_the_message_of_an_unschedulable_pod_follows_changes_of_the_nodes():
    async with World() as world:
        for name in ("a", "b"):
            world.node(name, gpus=8, ready_after=30)
        world.pod("greedy", gpus=16)
        await passing(5)
        before = world.condition(world.the_pod("greedy"), "PodScheduled")
        assert before["message"].startswith("0/2 nodes are available: 2 node(s) had untolerated taint(s).")
        await passing(28)
        after = world.condition(world.the_pod("greedy"), "PodScheduled")
        assert after["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
        assert after["lastTransitionTime"] == before["lastTransitionTime"]
        world.store.delete(kinds.NODE_KIND, None, "a")
        await passing(2)
        assert world.condition(world.the_pod("greedy"), "PodScheduled")["message"].startswith("0/1 nodes")


async def test_a_nomination_survives_changes_of_other_nodes():
    async with World() as world:
        world.pod("greedy", gpus=16)
        await passing(1)
        world.update_status(kinds.POD_KIND, "greedy", nominatedNodeName="coming")
        world.node("small", gpus=1)
        await passing(10)
        assert world.the_pod("greedy")["status"]["nominatedNodeName"] == "coming"


async def test_pods_spread_over_the_emptiest_nodes():
    async with World() as world:
        for name in ("a", "b", "c"):
            world.node(name)
        await passing(1)
        for number in range(6):
            world.pod(f"p{number}", cpu="1")
        await passing(1)
        assert [world.where(f"p{number}") for number in range(6)] == ["a", "b", "c", "a", "b", "c"]


async def test_the_pod_of_highest_priority_is_scheduled_first():
    async with World() as world:
        world.store.create(kinds.PRIORITY_CLASS_KIND, {"metadata": {"name": "urgent"}, "value": 1000})
        world.pod("first", gpus=8)
        world.pod("urgent", gpus=8, priorityClassName="urgent")
        await passing(1)
        world.node("only", gpus=8)
        await passing(5)
        assert (world.where("first"), world.where("urgent")) == (None, "only")


async def test_the_message_of_a_pod_that_could_preempt_says_that_this_scheduler_does_not():
    async with World() as world:
        world.store.create(kinds.PRIORITY_CLASS_KIND, {"metadata": {"name": "urgent"}, "value": 1000})
        world.node("only", gpus=8)
        await passing(1)
        world.pod("lowly", gpus=8)
        await passing(1)
        world.pod("urgent", gpus=8, priorityClassName="urgent")
        await passing(1)
        assert message(world, "urgent") == (
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
            f"{PREEMPTION}lower-priority pods may be in the way, and the embedded scheduler does not preempt."
        )


async def test_the_requests_of_an_ended_pod_are_free_again():
    async with World() as world:
        world.node("only", gpus=1)
        await passing(1)
        world.pod("first", gpus=1, restart="Never", does={"run-time": "60s"})
        world.pod("second", gpus=1)
        await passing(30)
        assert world.where("second") is None
        await passing(32)
        assert world.phase("first") == "Succeeded"
        assert world.where("second") == "only"


async def test_a_startup_taint_keeps_pods_away_until_it_is_removed():
    async with World() as world:
        world.pod("train", gpus=1)
        world.node("new", gpus=8, taints=[{"key": "forebay.dev/startup", "effect": "NoSchedule"}])
        await passing(10)
        assert "1 node(s) had untolerated taint(s)" in message(world, "train")
        world.update(kinds.NODE_KIND, "new", lambda node: node["spec"].update(taints=[]))
        await passing(0)
        await passing(1)
        assert world.where("train") == "new"


async def test_a_nominated_pod_gets_the_room_reserved_for_it():
    async with World() as world:
        world.pod("big", gpus=8)
        for number in range(4):
            world.pod(f"small-{number}", gpus=1)
        await passing(1)
        world.node("new", gpus=8, taints=[{"key": "forebay.dev/startup", "effect": "NoSchedule"}])
        await passing(1)
        world.update_status(kinds.POD_KIND, "big", nominatedNodeName="new")
        await passing(1)
        assert world.where("big") is None  # a nomination alone is no reason to try again
        world.update(kinds.NODE_KIND, "new", lambda node: node["spec"].update(taints=[]))
        await passing(1)
        assert world.where("big") == "new"
        assert {world.where(f"small-{number}") for number in range(4)} == {None}
        assert "nominatedNodeName" not in world.the_pod("big")["status"]


async def test_a_nomination_does_not_survive_a_failed_attempt():
    async with World() as world:
        world.pod("train", gpus=8)
        await passing(1)
        world.update_status(kinds.POD_KIND, "train", nominatedNodeName="wanted")
        world.node("other", gpus=2)
        world.node("wanted", gpus=4)
        await passing(1)
        assert "nominatedNodeName" not in world.the_pod("train")["status"]


async def test_pods_with_anti_affinity_share_no_node():
    async with World() as world:
        for name in ("a", "b"):
            world.node(name)
        await passing(1)
        for number in range(3):
            world.pod(f"p{number}", labels={"app": "x"}, affinity=anti_affinity({"app": "x"}))
        await passing(1)
        assert [world.where(f"p{number}") for number in range(3)] == ["a", "b", None]
        assert "2 node(s) didn't match pod anti-affinity rules" in message(world, "p2")

        world.pod("stranger", labels={"app": "x"})
        await passing(1)
        assert "2 node(s) didn't satisfy existing pods anti-affinity rules" in message(world, "stranger")

        world.delete(kinds.POD_KIND, "p0")
        await passing(5)
        assert world.where("p2") == "a"


async def test_pods_with_affinity_follow_the_first_into_its_zone():
    async with World() as world:
        for name, zone in (("a1", "a"), ("b1", "b"), ("b2", "b")):
            world.node(name, cpu="2", labels={"zone": zone})
        world.node("nowhere")
        await passing(1)
        together = anti_affinity({"app": "x"}, "zone", "podAffinity")
        world.pod("first", cpu="2", labels={"app": "x"}, affinity=together, nodeSelector={"zone": "b"})
        await passing(1)
        world.pod("second", cpu="2", labels={"app": "x"}, affinity=together)
        world.pod("third", cpu="2", labels={"app": "x"}, affinity=together)
        await passing(1)
        assert (world.where("first"), world.where("second"), world.where("third")) == ("b1", "b2", None)
        assert "2 node(s) didn't match pod affinity rules" in message(world, "third")


async def test_pods_with_affinity_are_tried_again_when_a_matching_pod_is_bound():
    near = {"labelSelector": {"matchLabels": {"app": "store"}}, "topologyKey": "kubernetes.io/hostname"}
    together = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    async with World() as world:
        for name in ("a", "b"):
            world.node(name)
        await passing(1)
        for name in ("first", "second"):
            world.pod(name, affinity=together)
        await passing(5)
        assert world.where("first") is None
        world.pod("store", labels={"app": "store"})
        await passing(5)
        assert {world.where(name) for name in ("first", "second")} == {world.where("store")}


async def test_a_host_port_is_taken_once_per_node():
    async with World() as world:
        world.node("only")
        await passing(1)
        port = [{"containerPort": 80, "hostPort": 8080}]
        for name in ("one", "two"):
            world.pod(name, containers=[{"name": "main", "image": "web:1", "ports": port}])
        await passing(1)
        assert world.where("one") == "only"
        assert "1 node(s) didn't have free ports for the requested pod ports" in message(world, "two")


async def test_a_gated_pod_waits_for_its_gate():
    async with World() as world:
        world.node("only")
        world.pod("held", schedulingGates=[{"name": "forebay.dev/budget"}])
        await passing(5)
        held = world.condition(world.the_pod("held"), "PodScheduled")
        assert (held["reason"], world.where("held")) == ("SchedulingGated", None)
        world.update(kinds.POD_KIND, "held", lambda pod: pod["spec"].pop("schedulingGates"))
        await passing(1)
        assert world.where("held") == "only"


async def test_pods_of_another_scheduler_are_not_touched():
    async with World() as world:
        world.node("only")
        world.pod("foreign", schedulerName="kai")
        await passing(5)
        assert world.where("foreign") is None
        assert world.condition(world.the_pod("foreign"), "PodScheduled") is None


async def test_a_pod_bound_by_another_client_takes_room():
    async with World() as world:
        world.node("a", gpus=1)
        await passing(1)
        world.pod("ours", gpus=1, schedulerName="forebay")
        bind_pod(world.store, "default", "ours", {"target": {"name": "a"}})
        world.pod("theirs", gpus=1)
        await passing(5)
        assert (world.where("ours"), world.where("theirs")) == ("a", None)


async def test_the_message_of_a_pod_names_what_this_scheduler_does_not_implement():
    async with World() as world:
        world.node("only")
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        world.pod("spread", topologySpreadConstraints=[spread])
        await passing(1)
        assert (
            message(world, "spread") == "the embedded scheduler does not implement required topologySpreadConstraints"
        )


async def test_a_pod_that_cannot_be_decoded_gets_a_condition_and_the_others_are_bound():
    async with World() as world:
        world.node("only")
        terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}]}
        world.pod("odd", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
        world.pod("fine")
        await passing(1)
        assert world.where("fine") == "only"
        refused = world.condition(world.the_pod("odd"), "PodScheduled")
        assert refused["reason"] == "SchedulerError"
        assert "Near" in refused["message"]


@pytest.mark.parametrize("leave", ["delete", "finish"])
async def test_unbound_pods_leave_the_queue(leave):
    async with World() as world:
        world.pod("gone", gpus=1)
        await passing(1)
        if leave == "delete":
            world.delete(kinds.POD_KIND, "gone")
        else:
            world.update_status(kinds.POD_KIND, "gone", phase="Failed")
        world.node("new", gpus=1)
        world.pod("next", gpus=1)
        await passing(1)
        assert world.where("next") == "new"
