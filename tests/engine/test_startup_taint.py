"""A machine is kept for the pods it was launched for from before it is powered on until they are bound."""

import asyncio
from urllib.parse import urlsplit

import msgspec

from forebay.api.names import STARTUP_TAINT
from forebay.embedded.api import kinds
from forebay.embedded.controllers import register_node
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.net.transport import Response
from forebay.simulate.power import Powered
from forebay.simulate.power_faults import Boot
from tests.engine.power_world import POWER, lab, operator

CHECKED = {"key": "example.com/checked", "effect": "PreferNoSchedule"}
BOX = Powered(name="box", gpus=2, boot=10)
SLOW = Powered(name="box", gpus=2, boot=10, driver=60)
FORBIDDEN = Response(403, body=b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}')


class Observed:
    """A transport that notes patches of the node and the pod and the power-on call, and forbids some of them."""

    def __init__(self, inner, notes, world, forbid=()):
        self._inner, self._notes, self._world, self._forbid = inner, notes, world, forbid

    async def request(self, request):
        path = urlsplit(request.url).path
        what = _NOTED.get(path) if request.method in {"PATCH", "POST"} else None
        if what == "nomination" and b"nominatedNodeName" not in request.body:
            what = None  # the condition that says why the pod waits
        if what in self._forbid:
            self._notes.append(f"{what} forbidden")
            return FORBIDDEN
        if what == "power on":
            self._notes.append(f"power on, {'reserved' if startup_taints(self._world) else 'open'}")
        elif what:
            self._notes.append(what)
        return await self._inner.request(request)

    async def close(self):
        await self._inner.close()


_NOTED = {
    "/api/v1/nodes/box": "node",
    "/api/v1/namespaces/default/pods/train": "toleration",
    "/api/v1/namespaces/default/pods/train/status": "nomination",
    "/box/start": "power on",
}


def startup_taints(world, name="box"):
    node = world.store.find(kinds.NODE_KIND, None, name)
    found = () if node is None else node["spec"].get("taints", ())
    return [taint for taint in found if taint["key"] == STARTUP_TAINT]


def tolerated(world, name="train"):
    pod = world.store.get(kinds.POD_KIND, "default", name)
    return [each["value"] for each in pod["spec"].get("tolerations", ()) if each.get("key") == STARTUP_TAINT]


def observed(world, notes, **options):
    return operator(world, wrap=lambda inner: Observed(inner, notes, world, **options))


def powered_off_before(world):
    """Its Node object is there, NotReady, as after an earlier run."""
    register_node(world.store, "box", allocatable={"cpu": "32", "memory": "128Gi", "nvidia.com/gpu": 2})
    world.power._nodes.node_stopped(BOX)


async def test_the_node_object_of_a_machine_is_reserved_before_it_is_powered_on_and_opened_when_its_pod_is_bound():
    notes = []
    async with lab(BOX) as world:
        powered_off_before(world)
        async with observed(world, notes):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(5)
            uid = world.record("box")["metadata"]["uid"]
            assert startup_taints(world) == [{"key": STARTUP_TAINT, "value": uid, "effect": "NoSchedule"}]
            assert tolerated(world) == [uid], "while it boots"
            await asyncio.sleep(30)
            assert world.where("train") == "box"
            assert startup_taints(world) == []
    assert notes[:3] == ["node", "power on, reserved", "toleration"]
    assert "nomination" not in notes


async def test_a_machine_that_joins_without_its_taint_is_reserved_on_sight():
    """The first time there is no Node object that could be tainted before."""
    notes = []
    async with lab(BOX) as world, observed(world, notes):
        world.pod("train", 2, runs=None)
        await asyncio.sleep(40)
        assert world.where("train") == "box"
        assert startup_taints(world) == []
    assert notes[:3] == ["power on, open", "toleration", "node"]


async def test_a_machine_is_powered_on_though_its_node_may_not_be_changed():
    notes = []
    async with lab(BOX) as world:
        powered_off_before(world)
        async with observed(world, notes, forbid={"node"}):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(40)
            assert world.where("train") == "box"
    assert notes[:2] == ["node forbidden", "power on, open"]


async def test_where_nobody_may_change_pods_the_node_is_opened_as_soon_as_it_is_ready():
    notes = []
    async with lab(BOX) as world:
        powered_off_before(world)
        async with observed(world, notes, forbid={"toleration"}):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(20)
            assert world.where("train") == "box"
            assert startup_taints(world) == []
    assert notes.count("toleration forbidden") == 1, "it is not asked again and again"


async def test_a_pod_that_ends_while_its_machine_boots_does_not_keep_the_others_out():
    async with lab(BOX) as world:
        powered_off_before(world)
        async with operator(world):
            world.pod("train", 2, runs=None)
            await asyncio.sleep(5)
            world.store.delete(kinds.POD_KIND, "default", "train")
            world.pod("next", 2, runs=None)
            await asyncio.sleep(15)
            assert world.where("next") == "box"


async def test_a_taint_that_somebody_else_puts_on_the_node_meanwhile_stays():
    async with lab(BOX) as world:
        powered_off_before(world)
        async with operator(world):
            world.pod("train", 1, runs=None)
            await asyncio.sleep(5)
            world.change(kinds.NODE_KIND, "box", lambda node: node["spec"]["taints"].insert(0, CHECKED))
            await asyncio.sleep(30)
            assert world.where("train") == "box"
            assert world.node("box")["spec"]["taints"] == [CHECKED]


async def test_other_pods_do_not_come_before_those_it_was_launched_for():
    """The small ones wait as well, and come first in the scheduler's queue."""
    async with lab(BOX, Powered(name="other", gpus=2, boot=25)) as world, operator(world):
        world.pod("train", 2, runs=None)
        await asyncio.sleep(1)
        for name in ("a", "b"):
            world.pod(name, 1, runs=None)
        await asyncio.sleep(60)
        assert [world.where(name) for name in ("train", "a", "b")] == ["box", "other", "other"]


async def test_a_device_plugin_that_does_not_tolerate_the_taint_is_let_in():
    """Its GPUs come only after the node was open for a while; then it is kept for its pod again."""
    async with lab(SLOW) as world:
        powered_off_before(world)
        world.change(kinds.NODE_KIND, "box", lambda node: node["status"]["allocatable"].pop("nvidia.com/gpu"))
        async with operator(world):
            world.pod("train", 2, runs=None)
            await asyncio.sleep(15)
            assert startup_taints(world), "Ready, without GPUs"
            await asyncio.sleep(15)
            assert not startup_taints(world)
            await asyncio.sleep(60)
            assert world.where("train") == "box"
            assert not startup_taints(world)


async def test_startup_taints_of_the_pool_stay_until_somebody_removes_them_and_the_node_is_launching_until_then():
    driver = {"key": "example.com/driver", "effect": "NoSchedule"}
    async with lab(BOX) as world:
        powered_off_before(world)
        machines = [{**each, "bootTimeout": "10m"} for each in map(msgspec.to_builtins, world.power.configured(POWER))]
        providers = [{"name": "webhook", "machines": machines}]
        await world.user.create(
            GPU_NODE_CLASSES, {"metadata": {"name": "own"}, "spec": {"providers": providers, "allowedNamespaces": {}}}
        )
        pool = {"nodeClassRef": {"name": "own"}, "template": {"spec": {"startupTaints": [driver]}}}
        await world.user.create(
            GPU_NODE_POOLS, {"metadata": {"name": "team", "namespace": "default"}, "spec": pool}, namespace="default"
        )
        async with operator(world, machines=()):
            world.pod("train", 2, runs=None)
            await asyncio.sleep(5)
            assert driver in world.node("box")["spec"]["taints"]
            await asyncio.sleep(200)
            assert driver in world.node("box")["spec"]["taints"]
            assert (world.state("box"), world.where("train")) == ("Joined", None)
            world.change(kinds.NODE_KIND, "box", lambda node: node["spec"]["taints"].remove(driver))
            await asyncio.sleep(5)
            assert (world.state("box"), world.where("train")) == ("Ready", "box")
            assert driver not in world.node("box")["spec"].get("taints", ())


async def test_a_machine_that_never_comes_up_leaves_no_taint_on_its_node():
    async with lab(BOX) as world:
        powered_off_before(world)
        world.power.script_boots("box", Boot(joins=False))
        machines = world.configured(every={"boot_timeout": "1m"})
        async with operator(world, machines=machines):
            world.pod("train", 2, runs=None)
            await asyncio.sleep(30)
            assert startup_taints(world)
            await asyncio.sleep(100)
            assert world.state("box") == "Gone"
            assert not startup_taints(world)


async def test_the_door_is_open_after_a_minute():
    """The pod tolerates everything but wants a volume that nobody has bound."""
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]
    async with lab(BOX) as world:
        powered_off_before(world)
        async with operator(world):
            world.pod("train", 1, volumes=claim)
            await asyncio.sleep(30)
            assert startup_taints(world)
            await asyncio.sleep(60)
            assert not startup_taints(world)
