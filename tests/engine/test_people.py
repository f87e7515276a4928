"""Machines that people use for themselves: powered on by hand, cordoned, rebooted, marked for maintenance."""

import asyncio
from datetime import timedelta

from forebay.embedded.api import kinds
from forebay.net.transport import AnswerLost
from forebay.simulate.power import Powered
from forebay.simulate.power_faults import Boot
from tests.engine.power_world import lab, operator
from tests.engine.test_lost_nodes import hear, silence

BOX = Powered(name="box", gpus=2, boot=10)
SPARE = Powered(name="spare", gpus=2, boot=10)
FOR_EVER = [{"key": f"node.kubernetes.io/{lost}", "operator": "Exists"} for lost in ("not-ready", "unreachable")]


def cordon(world, name, *, on=True):
    world.change(kinds.NODE_KIND, name, lambda node: node["spec"].update(unschedulable=on))


def annotate(world, kind, name, **annotations):
    named = {f"forebay.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    world.change(kind, name, lambda each: each["metadata"].setdefault("annotations", {}).update(named))


def instances(world):
    return world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")


async def in_use(world, runs="60s", **pod):
    world.pod("train", 1, runs=runs, **pod)
    await asyncio.sleep(30)
    assert world.state("box") == "Ready"


async def test_a_machine_powered_on_by_hand_for_other_work_stays_on_and_nobody_waits_for_it():
    async with lab(BOX, SPARE) as world:
        world.power.script_boots("box", Boot(joins=False, runs_other_work=True))
        world.power.power_on_by_hand("box")
        async with operator(world, status=True):
            await asyncio.sleep(3600)
            assert world.power.on == {"box"}
            assert world.asked("stop") == []
            assert "Forebay did not power it on" in world.record("box")["status"]["message"]
            world.pod("train", 2, runs="30s")
            await asyncio.sleep(60)
            assert world.phase("train") == "Succeeded", "on the spare machine"
            world.power.lose_power("box")
            await asyncio.sleep(120)
            assert world.state("box") == "Gone", "its owner has powered it off"


async def test_a_machine_powered_on_by_hand_between_the_plan_and_the_call_is_not_cut():
    """The pod waits no longer for it than for any machine, and then gets another."""
    async with lab(BOX, SPARE, Powered(name="first", gpus=2, boot=10)) as world:
        world.power.script_boots("box", Boot(joins=False, runs_other_work=True))
        machines = world.configured(status=True, box={"hourly_price": "1"}, spare={"hourly_price": "5"})
        async with operator(world, machines=machines, power_on_interval=timedelta(minutes=3)):
            world.pod("other", 2, runs="30s")
            await asyncio.sleep(10)
            assert world.asked("start") == ["first"]
            world.pod("train", 2, runs="30s")
            await asyncio.sleep(2)
            assert [each["name"] for each in world.record("box")["spec"]["pods"]] == ["train"]
            world.power.power_on_by_hand("box")
            await asyncio.sleep(3600)
            assert world.power.on == {"box"}, "somebody uses it"
            assert "box" not in {*world.asked("start"), *world.asked("stop")}
            assert world.phase("train") == "Succeeded"
            assert "Forebay did not power it on" in world.record("box")["status"]["message"]
            world.power.lose_power("box")
            await asyncio.sleep(120)
            assert world.state("box") == "Gone", "its owner has powered it off"


class _Lost:
    """The first power-on call gets no answer, and arrives ten minutes later."""

    def __init__(self, inner, left):
        self._inner = inner
        self._left = left

    async def request(self, request):
        if self._left and request.url.endswith("/box/start"):
            self._left.pop()
            asyncio.get_running_loop().call_later(600, lambda: asyncio.ensure_future(self._inner.request(request)))
            raise AnswerLost(f"{request}: lost", request)
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


async def test_a_power_on_call_of_forebay_that_takes_effect_after_the_end_is_no_hand_of_a_person():
    """Neither where the machine never becomes a node, nor where its node never has GPUs."""
    for boot in (Boot(joins=False, runs_other_work=True), Boot(gpus_appear=False)):
        async with lab(Powered(name="box", gpus=2, boot=10, driver=5)) as world:
            lost = [1]
            async with operator(world, status=True, wrap=lambda inner, lost=lost: _Lost(inner, lost)):
                world.pod("train", 2, runs="30s")
                await asyncio.sleep(2)
                world.store.delete(kinds.POD_KIND, "default", "train")
                await asyncio.sleep(590)
                assert not lost
                assert world.state("box") == "Gone"
                assert not world.power.on
                world.power.script_boots("box", boot)
                await asyncio.sleep(120)
                assert world.power.on == {"box"}
                assert "seems to have taken effect late" in world.record("box")["spec"]["why"]
                await asyncio.sleep(3600)
                assert world.power.on == frozenset()
                assert world.asked("stop")[-1] == "box"


async def test_a_machine_powered_on_by_hand_without_its_driver_stays_on():
    async with lab(Powered(name="box", gpus=2, boot=10, driver=5)) as world:
        world.power.script_boots("box", Boot(gpus_appear=False))
        world.power.power_on_by_hand("box")
        async with operator(world, status=True):
            await asyncio.sleep(3600)
            assert world.asked("stop") == []
            assert world.state("box") == "Joined"


async def test_a_cordoned_machine_is_not_powered_off_until_it_is_uncordoned():
    async with lab(BOX) as world, operator(world):
        await in_use(world)
        cordon(world, "box")
        await asyncio.sleep(3600)
        assert world.phase("train") == "Succeeded"
        assert world.asked("stop") == []
        assert world.is_cordoned("box")
        idle = next(each for each in world.record("box")["status"]["conditions"] if each["type"] == "Idle")
        assert (idle["status"], idle["reason"]) == ("False", "UnderMaintenance")
        assert "cordoned, and not by Forebay" in idle["message"]
        cordon(world, "box", on=False)
        await asyncio.sleep(60)
        assert world.asked("stop") == ["box"]


async def test_a_cordoned_machine_may_be_off_for_hours_and_has_its_boot_time_afterwards():
    async with lab(BOX) as world, operator(world):
        await in_use(world)
        await asyncio.sleep(20)
        cordon(world, "box")
        await asyncio.sleep(60)
        hear(world, "box", "False")
        silence(world, "box")
        await asyncio.sleep(6 * 3600)
        assert world.asked("stop") == []
        assert "leaves its machine as it is" in world.record("box")["status"]["message"]
        cordon(world, "box", on=False)
        await asyncio.sleep(14 * 60)
        assert world.asked("stop") == []
        await asyncio.sleep(5 * 60)
        assert world.asked("stop") == ["box"], "now it is a machine like any other"


async def test_a_machine_rebooted_by_hand_has_its_boot_timeout():
    async with lab(BOX) as world, operator(world):
        await in_use(world, runs=None)
        silence(world, "box")
        await asyncio.sleep(13 * 60)
        assert world.state("box") == "Ready"
        hear(world, "box", "True")
        await asyncio.sleep(60)
        assert world.asked("stop") == []
        assert world.state("box") == "Ready"


async def test_a_lost_node_waits_for_pods_that_are_to_stay_there():
    protected = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    for pod in ({"metadata": protected}, {"tolerations": FOR_EVER}):
        async with lab(BOX) as world, operator(world):
            await in_use(world, runs=None, **pod)
            silence(world, "box")
            await asyncio.sleep(3 * 3600)
            assert world.asked("stop") == []
            assert world.state("box") == "Ready"
            assert "default/train is to stay there" in world.record("box")["status"]["message"]


async def test_a_machine_marked_for_maintenance_is_neither_powered_off_nor_on():
    async with lab(BOX, SPARE) as world, operator(world):
        await in_use(world)
        annotate(world, kinds.NODE_KIND, "box", maintenance="new fans, ask Ada")
        await asyncio.sleep(3600)
        assert world.asked("stop") == []
        world.power.lose_power("box")
        await asyncio.sleep(3600)
        assert world.asked("stop") == []
        world.give_back("box")
        await asyncio.sleep(120)
        assert world.state("box") in {"Gone", None}
        world.pod("next", 1, runs="30s")
        await asyncio.sleep(60)
        assert world.asked("start")[-1] == "spare"
        world.pod("wide", 2, runs="30s", nodeSelector={"kubernetes.io/hostname": "box"})
        await asyncio.sleep(60)
        assert "new fans, ask Ada" in world.told("wide", "UnderMaintenance")[-1]
        assert world.asked("start").count("box") == 1


async def test_a_marked_gpuinstance_is_not_drained():
    async with lab(BOX) as world, operator(world, idle_delay=timedelta(seconds=30)):
        await in_use(world)
        annotate(world, instances(world), "box", maintenance="true")
        await asyncio.sleep(3600)
        assert world.asked("stop") == []
        annotate(world, instances(world), "box", maintenance="false")
        await asyncio.sleep(90)
        assert world.asked("stop") == ["box"]


async def test_a_cordon_that_comes_while_forebay_waits_to_drain_is_respected():
    """Between the decision and Forebay's own cordon: nobody tells a person that the machine is leaving."""
    async with lab(BOX) as world, operator(world, drain_delay=timedelta(seconds=60)):
        await in_use(world, runs="20s")
        await asyncio.sleep(30)
        assert world.state("box") == "Draining"
        annotate(world, kinds.NODE_KIND, "box", maintenance="true")
        await asyncio.sleep(600)
        assert world.state("box") == "Ready"
        assert not world.is_cordoned("box"), "Forebay has taken back its own cordon"
        assert world.asked("stop") == []


async def test_pods_without_a_gpu_do_not_keep_a_machine_on():
    async with lab(BOX) as world, operator(world):
        await in_use(world, runs="120s")
        world.pod("squatter", 0, runs=None, nodeName="box", namespace="default")
        await asyncio.sleep(300)
        assert world.asked("stop") == ["box"]
        assert world.store.find(kinds.POD_KIND, "default", "squatter") is None
        assert any("default/squatter" in each for each in world.told("box", "Idle"))


async def test_pods_without_a_gpu_leave_as_their_disruption_budgets_allow_and_gpu_pods_come_back():
    async with lab(BOX) as world, operator(world):
        await in_use(world)
        world.pod("squatter", 0, runs=None, nodeName="box", metadata={"labels": {"app": "squatter"}})
        budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "squatter"}}}
        named = {"name": "squatter", "namespace": "default"}
        world.store.create(kinds.DISRUPTION_BUDGET_KIND, {"metadata": named, "spec": budget})
        await asyncio.sleep(600)
        assert world.state("box") == "Draining"
        assert world.phase("squatter") == "Running"
        assert "default/squatter" in world.record("box")["status"]["message"]
        world.pod("next", 1, runs="60s")
        await asyncio.sleep(30)
        assert world.where("next") == "box", "the machine is on, so it is used"
        world.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "squatter")
        await asyncio.sleep(300)
        assert world.asked("start") == world.asked("stop") == ["box"]


async def test_a_pod_without_a_gpu_that_must_not_be_evicted_keeps_the_machine():
    async with lab(BOX) as world, operator(world):
        await in_use(world)
        stays = {"annotations": {"forebay.dev/do-not-disrupt": "true"}}
        world.pod("squatter", 0, runs=None, nodeName="box", metadata=stays)
        await asyncio.sleep(3600)
        assert world.asked("stop") == []
        assert world.phase("squatter") == "Running"


async def test_pods_that_come_back_to_a_cordoned_node_are_evicted_ever_more_rarely_and_named():
    async with lab(BOX) as world, operator(world):
        await in_use(world)
        pod = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "web", "image": "web:1"}],
                "nodeSelector": {"kubernetes.io/hostname": "box"},
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 1,
            },
        }
        spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
        world.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        seen = set()

        def web():
            found = [each["metadata"] for each in world.store.list(kinds.POD_KIND)]
            return {each["uid"] for each in found if each["name"].startswith("web")}

        for _ in range(1800):
            await asyncio.sleep(2)
            seen |= web()
        assert world.state("box") == "Draining"
        assert 5 < len(seen) < 30, "every ten seconds it would be 350"
        message = world.record("box")["status"]["message"]
        assert "default/web-" in message
        assert "although it is cordoned" in message
        assert "next in 10m" in message
        world.store.delete(kinds.REPLICA_SET_KIND, "default", "web")
        await asyncio.sleep(900)
        assert world.asked("stop") == ["box"]
