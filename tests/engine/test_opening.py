"""A node is opened for the pods it was obtained for, whatever happens to it and to them in its first seconds."""

import asyncio

from forebay.api.names import STARTUP_TAINT
from forebay.embedded import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

STARTUP = {"key": STARTUP_TAINT, "effect": "NoSchedule"}
CHECKED = {"key": "example.com/checked", "effect": "PreferNoSchedule"}
BOX = Powered(name="box", gpus=2, boot=10, taints=(STARTUP,))


class Between:
    """A transport that lets something happen right after the first nomination, and notes who was asked what."""

    def __init__(self, inner, notes, then):
        self._inner = inner
        self._notes = notes
        self._then = then

    async def request(self, request):
        answer = await self._inner.request(request)
        path = request.url.partition("?")[0]
        if request.method == "PATCH" and path.endswith(("/pods/train/status", "/nodes/box")):
            first = not any(what == "nominate" for what, _ in self._notes)
            self._notes.append(("nominate" if path.endswith("status") else "node", answer.status))
            if first and path.endswith("status"):
                self._then()
        return answer

    async def close(self):
        await self._inner.close()


async def opening(then):
    """The requests from the first nomination to the opening of the node, while `then(world)` comes between."""
    notes = []
    async with (
        lab(BOX) as world,
        operator(world, wrap=lambda inner: Between(inner, notes, lambda: then(world))),
    ):
        world.pod("train", 2, runs=None)
        await asyncio.sleep(40)
        assert world.where("train") == "box"
        taints = world.store.get(kinds.NODES, None, "box")["spec"].get("taints", ())
        assert STARTUP_TAINT not in {taint["key"] for taint in taints}
        assert [taint for taint in taints if taint["key"] == CHECKED["key"]] == ([CHECKED] if then is checked else [])
    return notes[[what for what, _ in notes].index("nominate") :]


def heartbeat(world):
    node = world.store.get(kinds.NODES, None, "box")
    world.store.update(kinds.NODES, {**node, "status": {**node["status"], "phase": "Running"}}, subresource="status")


def checked(world):
    node = world.store.get(kinds.NODES, None, "box")
    world.store.update(kinds.NODES, {**node, "spec": {**node["spec"], "taints": [CHECKED, *node["spec"]["taints"]]}})


def attempt_in_vain(world):
    pod = world.store.get(kinds.PODS, "default", "train")
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    world.store.update(kinds.PODS, {**pod, "status": status}, subresource="status")


async def test_what_others_write_to_the_node_does_not_delay_it():
    assert await opening(heartbeat) == [("nominate", 200), ("node", 200)]


async def test_a_taint_that_somebody_else_puts_on_it_meanwhile_stays():
    assert (await opening(checked))[-1] == ("node", 200)


async def test_a_pod_that_lost_its_nomination_is_nominated_again_before_others_may_come():
    assert await opening(attempt_in_vain) == [("nominate", 200), ("nominate", 200), ("node", 200)]
