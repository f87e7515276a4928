"""The startup taint is written by patches that hold whatever else others write to the node."""

import asyncio

import pytest
from msgspec.structs import replace

from forebay.demand.startup_taint import AddToleration, OpenNode, ReserveNode
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.engine.apply.startup_taints import RefusedTolerations, StartupTaints
from forebay.kube.errors import TooManyRequests
from forebay.model.requirements import Taint
from forebay.net.clock import now
from tests.engine.views_world import watched_cluster
from tests.unit.lifecycle.builders import NOW, S, minutes, record, seconds

OF = record(S.LAUNCHED)
OURS = {"key": "forebay.dev/startup", "value": OF.uid, "effect": "NoSchedule"}
STALE = {**OURS, "value": "an-earlier-one"}
SECOND, THIRD = {**STALE, "effect": "NoExecute"}, {**STALE, "effect": "PreferNoSchedule"}
AGENT = {"key": "example.com/agent", "effect": "NoExecute"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}


class World:
    def __init__(self, watched):
        self.watched, self.refused = watched, RefusedTolerations()
        self.taints = StartupTaints(watched.client, watched.views, self.refused, now)

    async def node(self, taints=(), name="n1"):
        register_node(self.watched.store, name, allocatable={"pods": 10}, labels={}, taints=list(taints))
        if not taints:
            # As a real API server stores it: without an empty list.
            made = self.watched.store.find(NODE_KIND, None, name)
            spec = {key: value for key, value in made["spec"].items() if key != "taints"}
            self.watched.store.update(NODE_KIND, {**made, "spec": spec})
        await asyncio.sleep(1)
        return self.watched.views.nodes.get(("", name))

    def written(self, name="n1"):
        return self.watched.store.find(NODE_KIND, None, name)["spec"].get("taints", [])

    def set_taints(self, *taints):
        there = self.watched.store.find(NODE_KIND, None, "n1")
        self.watched.store.update(NODE_KIND, {**there, "spec": {**there["spec"], "taints": list(taints)}})

    async def reserve(self, node, *others):
        made = tuple(Taint(each["key"], each.get("value", ""), each["effect"]) for each in others)
        await self.taints.reserve(ReserveNode(record=OF, node=node, others=made))

    async def open(self, node):
        await self.taints.open(OpenNode(node=node))

    async def pod(self, **spec):
        self.watched.pod("train", **spec)
        await asyncio.sleep(1)
        return self.watched.views.pods.get(("default", "train"))

    async def tolerate(self, pod):
        await self.taints.add_toleration(AddToleration(record=OF, pod=pod))

    def tolerations(self):
        found = self.watched.store.find(POD_KIND, "default", "train")
        return [each for each in found["spec"].get("tolerations", ()) if each["key"] == "forebay.dev/startup"]


async def test_a_node_is_reserved_for_one_record_beside_what_is_on_it():
    other_effect = {**AGENT, "effect": "NoSchedule"}
    async with watched_cluster() as watched:
        it = World(watched)
        for count, (before, others, after) in enumerate(
            [
                ([], (), [OURS]),
                ([], (AGENT,), [OURS, AGENT]),
                ([TEAM], (), [TEAM, OURS]),
                ([TEAM], (AGENT,), [TEAM, OURS, AGENT]),
                ([STALE, TEAM], (), [OURS, TEAM]),
                ([STALE, TEAM, SECOND, THIRD], (AGENT,), [OURS, TEAM, AGENT]),
                ([AGENT, OURS], (AGENT,), [AGENT, OURS]),
                ([other_effect], (AGENT,), [other_effect, OURS, AGENT]),
            ]
        ):
            name = f"n{count}"
            await it.reserve(await it.node(before, name), *others)
            assert it.written(name) == after
            seen = watched.views.nodes.get(("", name))
            assert [each.key for each in seen.taints] == [each["key"] for each in after], "seen at once"


async def test_a_node_that_is_opened_keeps_what_is_not_ours():
    async with watched_cluster() as watched:
        it = World(watched)
        for count, before in enumerate([[OURS], [OURS, TEAM], [TEAM, OURS], [OURS, TEAM, SECOND]]):
            await it.open(await it.node(before, f"n{count}"))
            assert it.written(f"n{count}") == [each for each in before if each["key"] == "team"]


async def test_a_taint_that_somebody_adds_meanwhile_is_kept():
    async with watched_cluster() as watched:
        it = World(watched)
        seen = await it.node([OURS])
        it.set_taints(TEAM, OURS)
        await it.open(seen)
        assert it.written() == [TEAM]
        it.set_taints()
        await asyncio.sleep(1)
        bare = watched.views.nodes.get(("", "n1"))
        it.set_taints(TEAM)
        await it.reserve(bare)
        assert it.written() == [TEAM, OURS]


async def test_a_reservation_that_the_api_server_does_not_take_is_logged_and_the_launch_goes_on(capsys):
    async with watched_cluster() as watched:
        it = World(watched)
        there = await it.node()
        watched.refuse(lambda request: request.method == "PATCH", 503)
        await it.reserve(there)
        assert "node not reserved" in capsys.readouterr().out


@pytest.mark.parametrize("own", [[], [{"key": "mine", "operator": "Exists"}]])
async def test_a_pod_gets_the_toleration_of_its_node_beside_its_own(own):
    async with watched_cluster() as watched:
        it = World(watched)
        await it.tolerate(await it.pod(**({"tolerations": own} if own else {})))
        assert it.tolerations() == [{"key": "forebay.dev/startup", "operator": "Equal", "value": OF.uid}]
        assert it.refused.current(now()) == frozenset()
        shape = watched.views.pods.get(("default", "train")).shape
        assert any(each.key == "forebay.dev/startup" for each in shape.tolerations), "seen at once"


async def test_a_refused_toleration_is_remembered_and_an_overload_is_not_taken_for_one(capsys):
    async with watched_cluster() as watched:
        it = World(watched)
        pod = await it.pod()
        watched.refuse(lambda request: request.method == "PATCH", 429)
        with pytest.raises(TooManyRequests):
            await it.tolerate(pod)
        assert it.refused.current(now()) == frozenset()
        watched.refuse(lambda request: request.method == "PATCH", 403)
        await it.tolerate(pod)
        assert it.refused.current(now()) == {pod.uid}
        assert "toleration not added" in capsys.readouterr().out


async def test_a_pod_that_is_gone_needs_no_toleration():
    async with watched_cluster() as watched:
        it = World(watched)
        pod = await it.pod()
        watched.store.delete(POD_KIND, "default", "train", grace=0)
        await it.tolerate(pod)
        assert it.refused.current(now()) == frozenset()


def test_a_refusal_counts_for_five_minutes():
    refused = RefusedTolerations()
    refused.add("a", NOW)
    refused.add("b", NOW + minutes(1))
    assert refused.current(NOW + minutes(5) - seconds(1)) == {"a", "b"}
    assert refused.current(NOW + minutes(5)) == {"b"}
    assert refused.current(NOW + minutes(6)) == frozenset()


async def test_a_pod_that_got_its_first_tolerations_meanwhile_keeps_them_and_is_tried_again():
    async with watched_cluster() as watched:
        it = World(watched)
        now_ = await it.pod()
        before = watched.store.find(POD_KIND, "default", "train")["spec"]["tolerations"]
        await it.tolerate(replace(now_, shape=replace(now_.shape, tolerations=())))
        assert watched.store.find(POD_KIND, "default", "train")["spec"]["tolerations"] == before
        await it.tolerate(now_)
        assert watched.store.find(POD_KIND, "default", "train")["spec"]["tolerations"][:-1] == before
        assert len(it.tolerations()) == 1
