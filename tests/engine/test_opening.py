"""A node is opened for the pods it was obtained for, whatever happens to it and to them in its first seconds."""

import asyncio

from forebay.api.names import STARTUP_TAINT
from forebay.embedded.api import kinds
from forebay.net.transport import Response
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

STARTUP = {"key": STARTUP_TAINT, "effect": "NoSchedule"}
CHECKED = {"key": "example.com/checked", "effect": "PreferNoSchedule"}
BOX = Powered(name="box", gpus=2, boot=10, taints=(STARTUP,))


class Between:
    """A transport that lets something happen right after the first nomination, and notes who was asked what."""

    def __init__(self, inner, notes, then, *, forbid=False):
        self._inner = inner
        self._notes = notes
        self._then = then
        self._forbid = forbid

    async def request(self, request):
        path = request.url.partition("?")[0]
        asked = request.method == "PATCH" and _ASKED.get(path.rpartition("/api/v1/")[2])
        if asked == "let through" and self._forbid:
            self._notes.append((asked, 403))
            return Response(403, body=b'{"kind":"Status","status":"Failure","reason":"Forbidden","code":403}')
        answer = await self._inner.request(request)
        if asked:
            first = asked == "nominate" and (asked, 200) not in self._notes
            self._notes.append((asked, answer.status))
            if first:
                self._then()
        return answer

    async def close(self):
        await self._inner.close()


_ASKED = {
    "nodes/box": "node",
    "namespaces/default/pods/train": "let through",
    "namespaces/default/pods/train/status": "nominate",
}


async def opening(then, **options):
    """What is asked until the node is open to all, while `then(world)` comes after the first nomination."""
    notes = []
    async with (
        lab(BOX) as world,
        operator(world, wrap=lambda inner: Between(inner, notes, lambda: then(world), **options)),
    ):
        world.pod("train", 2, runs=None)
        await asyncio.sleep(40)
        assert world.where("train") == "box"
        taints = world.store.get(kinds.NODE_KIND, None, "box")["spec"].get("taints", ())
        assert STARTUP_TAINT not in {taint["key"] for taint in taints}
        assert [taint for taint in taints if taint["key"] == CHECKED["key"]] == ([CHECKED] if then is checked else [])
    return notes[[what for what, _ in notes].index("nominate") - 1 :]


def heartbeat(world):
    node = world.store.get(kinds.NODE_KIND, None, "box")
    world.store.update(
        kinds.NODE_KIND, {**node, "status": {**node["status"], "phase": "Running"}}, subresource="status"
    )


def checked(world):
    node = world.store.get(kinds.NODE_KIND, None, "box")
    world.store.update(
        kinds.NODE_KIND, {**node, "spec": {**node["spec"], "taints": [CHECKED, *node["spec"]["taints"]]}}
    )


def attempt_in_vain(world):
    pod = world.store.get(kinds.POD_KIND, "default", "train")
    status = {key: value for key, value in pod["status"].items() if key != "nominatedNodeName"}
    world.store.update(kinds.POD_KIND, {**pod, "status": status}, subresource="status")


ALL = [("node", 200), ("nominate", 200), ("let through", 200), ("node", 200)]


async def test_a_node_is_first_kept_for_its_pod_and_then_open_to_all():
    assert await opening(lambda _: None) == ALL


async def test_what_others_write_to_the_node_does_not_delay_it():
    assert await opening(heartbeat) == ALL


async def test_a_taint_that_somebody_else_puts_on_it_meanwhile_stays():
    assert (await opening(checked))[-1] == ("node", 200)


async def test_a_pod_that_lost_its_nomination_comes_all_the_same():
    assert await opening(attempt_in_vain) == ALL


async def test_where_nobody_may_change_pods_the_node_is_opened_at_once():
    assert await opening(lambda _: None, forbid=True) == [*ALL[:2], ("let through", 403), ("node", 200)]


async def test_other_pods_do_not_come_before_those_it_was_obtained_for():
    """The small ones wait as well, and come first in the scheduler's queue."""
    async with lab(BOX, Powered(name="other", gpus=2, boot=25, taints=(STARTUP,))) as world, operator(world):
        world.pod("train", 2, runs=None)
        await asyncio.sleep(1)
        for name in ("a", "b"):
            world.pod(name, 1, runs=None)
        await asyncio.sleep(60)
        assert [world.where(name) for name in ("train", "a", "b")] == ["box", "other", "other"]
