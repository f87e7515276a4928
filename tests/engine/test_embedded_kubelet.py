"""The embedded kubelet: pods as timers that write the statuses of a real kubelet."""

from forebay.embedded.api import kinds
from forebay.embedded.controllers import Controllers
from tests.engine.embedded_world import World, passing


def container(world, name):
    [status] = world.the_pod(name)["status"]["containerStatuses"]
    return status


async def test_a_pod_starts_runs_and_ends_on_time():
    async with World() as world:
        world.node("only", address="10.0.0.7")
        world.pod("work", restart="Never", does={"start-delay": "5s", "run-time": "30s"})
        await passing(1)
        status = world.the_pod("work")["status"]
        assert status["phase"] == "Pending"
        assert container(world, "work")["state"] == {"waiting": {"reason": "ContainerCreating"}}
        assert status["hostIP"] == "10.0.0.7"
        await passing(5)
        status = world.the_pod("work")["status"]
        assert status["phase"] == "Running"
        assert {c["type"]: c["status"] for c in status["conditions"]} == dict.fromkeys(
            ("PodReadyToStartContainers", "PodScheduled", "Initialized", "ContainersReady", "Ready"), "True"
        )
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        assert container(world, "work")["ready"]
        await passing(30)
        status = world.the_pod("work")["status"]
        assert status["phase"] == "Succeeded"
        ended = container(world, "work")["state"]["terminated"]
        assert ended == {
            "exitCode": 0,
            "reason": "Completed",
            "startedAt": "2030-01-01T00:00:05Z",
            "finishedAt": "2030-01-01T00:00:35Z",
        }
        assert world.condition(world.the_pod("work"), "Ready")["reason"] == "PodCompleted"


async def test_a_pod_that_may_not_restart_fails_with_its_exit_code():
    async with World() as world:
        world.node("only")
        world.pod("work", restart="Never", does={"run-time": "5s", "exit-code": "3"})
        await passing(10)
        assert world.phase("work") == "Failed"
        ended = container(world, "work")["state"]["terminated"]
        assert (ended["exitCode"], ended["reason"]) == (3, "Error")


async def test_a_pod_without_annotations_runs_for_ever_or_ten_seconds():
    async with World() as world:
        world.node("only")
        world.pod("server")
        world.pod("task", restart="OnFailure")
        await passing(3600)
        assert (world.phase("server"), world.phase("task")) == ("Running", "Succeeded")


async def test_a_crash_loop_waits_longer_each_time():
    async with World() as world:
        world.node("only")
        world.pod("crash", does={"run-time": "1s", "exit-code": "1"})
        await passing(2.5)
        assert container(world, "crash")["state"]["terminated"]["exitCode"] == 1
        assert world.phase("crash") == "Running"
        await passing(2)
        status = container(world, "crash")
        assert status["restartCount"] == 1
        waiting = status["state"]["waiting"]
        assert waiting["reason"] == "CrashLoopBackOff"
        uid = world.the_pod("crash")["metadata"]["uid"]
        assert waiting["message"] == f"back-off 10s restarting failed container=main pod=crash_default({uid})"
        assert status["lastState"]["terminated"]["exitCode"] == 1
        await passing(11)
        assert container(world, "crash")["restartCount"] == 2
        assert "back-off 20s" in container(world, "crash")["state"]["waiting"]["message"]
        await passing(3600)
        assert "back-off 5m0s" in container(world, "crash")["state"]["waiting"]["message"]
        assert world.condition(world.the_pod("crash"), "Ready")["status"] == "False"


async def test_a_container_that_exited_before_its_pod_was_deleted_keeps_its_exit():
    async with World() as world:
        world.node("only")
        pod = world.pod("crash", does={"run-time": "5s", "exit-code": "1"})
        world.store.update(kinds.POD_KIND, {**pod, "metadata": {**pod["metadata"], "finalizers": ["example.com/look"]}})
        await passing(6.5)
        before = container(world, "crash")["state"]
        assert before["terminated"]["exitCode"] == 1
        world.delete(kinds.POD_KIND, "crash")
        await passing(5)
        assert world.phase("crash") == "Failed"
        assert container(world, "crash")["state"] == before


async def test_a_container_may_succeed_at_its_second_start():
    async with World() as world:
        world.node("only")
        world.pod("flaky", restart="OnFailure", does={"run-time": "1s", "exit-code": "1,0"})
        await passing(10)
        assert world.phase("flaky") == "Succeeded"
        assert container(world, "flaky")["restartCount"] == 1


async def test_a_deleted_pod_ends_gracefully():
    async with World() as world:
        world.node("only")
        world.pod("server", does={"stop-delay": "10s"})
        seen = []
        world.store.subscribe(kinds.POD_KIND, lambda change: seen.append((change.type, change.new["status"]["phase"])))
        await passing(5)
        world.delete(kinds.POD_KIND, "server")
        await passing(9)
        assert world.phase("server") == "Running"
        await passing(2)
        assert world.pods() == []
        assert seen[-2:] == [("MODIFIED", "Failed"), ("DELETED", "Failed")]
        assert world.events("server", "Killing") == ["Stopping container main"]


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace():
    async with World() as world:
        world.node("only")
        world.pod("stubborn", does={"stop-delay": "1h"})
        await passing(5)
        exits = []
        world.store.subscribe(
            kinds.POD_KIND,
            lambda change: exits.append(change.new["status"]["containerStatuses"][0]["state"]),
        )
        world.delete(kinds.POD_KIND, "stubborn", grace=20)
        await passing(19)
        assert len(world.pods()) == 1
        await passing(2)
        assert world.pods() == []
        assert exits[-1]["terminated"]["exitCode"] == 137


async def test_a_finalizer_keeps_the_object_of_an_ended_pod():
    async with World() as world:
        world.node("only")
        world.pod("counted")
        world.update(kinds.POD_KIND, "counted", lambda pod: pod["metadata"].update(finalizers=["forebay.dev/usage"]))
        await passing(5)
        world.delete(kinds.POD_KIND, "counted")
        await passing(60)
        assert world.phase("counted") == "Failed"
        world.store.remove_finalizer(kinds.POD_KIND, world.the_pod("counted"), "forebay.dev/usage")
        assert world.pods() == []


async def test_an_invalid_annotation_fails_its_pod_and_no_other():
    async with World() as world:
        world.node("only")
        world.pod("odd", does={"run-time": "soon"})
        world.pod("fine")
        await passing(5)
        assert world.phase("fine") == "Running"
        status = world.the_pod("odd")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "InvalidAnnotation")
        assert status["message"] == (
            'embedded.forebay.dev/run-time: "soon" is not a duration: write it like 30s, 5m or 1h30m'
        )
        assert world.events("odd", "InvalidAnnotation") == [status["message"]]


async def test_init_containers_and_sidecars_have_statuses_too():
    async with World() as world:
        world.node("only")
        inits = [{"name": "fetch", "image": "a"}, {"name": "proxy", "image": "b", "restartPolicy": "Always"}]
        world.pod("work", initContainers=inits)
        await passing(5)
        fetch, proxy = world.the_pod("work")["status"]["initContainerStatuses"]
        assert fetch["state"]["terminated"]["exitCode"] == 0
        assert "running" in proxy["state"]


async def test_nodes_with_another_kubelet_are_left_to_it():
    async with World() as world:
        world.node("virtual", labels={"type": "virtual-kubelet"})
        world.node("mine", annotations={"embedded.forebay.dev/kubelet": "none"})
        for node in ("virtual", "mine"):
            world.pod(f"on-{node}", nodeName=node)
        await passing(30)
        assert (world.phase("on-virtual"), world.phase("on-mine")) == ("Pending", "Pending")


async def test_restarted_controllers_take_over_running_pods():
    async with World() as world:
        world.node("only")
        world.pod("work", restart="Never", does={"run-time": "60s"})
        world.job("train", does={"run-time": "60s"})
        await passing(30)
        await world.controllers.stop()
        await passing(5)
        assert world.phase("work") == "Running"
        world.controllers = Controllers(world.store)
        world.controllers.start()
        await passing(24)
        assert world.phase("work") == "Running"
        await passing(5)
        assert world.phase("work") == "Succeeded"
        assert world.condition(world.the_job("train"), "Complete") is not None


async def test_stopped_controllers_leave_no_timer_behind():
    async with World() as world:
        world.node("only", ready_after=5)
        world.pod("work", does={"run-time": "60s"})
        world.job("train")
        await passing(20)
        await world.controllers.stop()
        version = world.store.version
        await passing(3600)
        assert world.store.version == version


async def test_an_object_that_cannot_be_decoded_gets_a_warning_event_and_disturbs_no_other():
    async with World() as world:
        world.node("only")
        world.pod("odd")
        await passing(1)
        world.update_status(kinds.POD_KIND, "odd", conditions=["ready"])
        world.update(kinds.NODE_KIND, "only", lambda node: node["metadata"]["labels"].update(touched="yes"))
        node = world.node("broken")
        world.store.update(
            kinds.NODE_KIND, {**node, "status": {**node["status"], "conditions": "none"}}, subresource="status"
        )
        world.job("odder", parallelism="two")
        world.pod("fine")
        await passing(5)
        assert (world.phase("fine"), world.where("fine")) == ("Running", "only")
        [about_pod] = world.events("odd", "InvalidPod")
        assert "conditions" in about_pod
        [about_node] = world.events("broken", "InvalidNode")
        assert "conditions" in about_node
        [about_job] = world.events("odder", "FailedSync")
        assert "parallelism" in about_job
