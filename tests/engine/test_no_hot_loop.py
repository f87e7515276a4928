"""Decisions that have no effect: they are not made again without a pause."""

import asyncio

from forebay.embedded.api import kinds
from forebay.simulate.power import Powered
from tests.engine.power_world import lab, operator

ONLY = Powered(name="only", gpus=1, boot=10)


def instance_kind(world):
    return world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")


async def test_a_record_that_somebody_else_holds_is_let_go_once():
    async with lab(ONLY) as world, operator(world) as replica:
        world.pod("train", 1, runs="30s")
        await asyncio.sleep(30)
        hold = lambda record: record["metadata"]["finalizers"].append("example.com/audit")  # noqa: E731
        world.change(instance_kind(world), "only", hold)
        world.give_back("only")
        await asyncio.sleep(120)
        assert world.state("only") == "Gone"
        assert world.record("only")["metadata"]["finalizers"] == ["example.com/audit"]
        before = replica.counts.ticks
        await asyncio.sleep(300)
        assert replica.counts.ticks - before < 50


async def test_a_definition_of_an_older_release_that_drops_what_is_written_is_told_in_the_log(capsys):
    async with lab(ONLY) as world:
        world.change(kinds.CRD_KIND, "gpuinstances.forebay.dev", without_conditions)
        async with operator(world) as replica:
            world.pod("train", 1, runs="300s")
            await asyncio.sleep(60)
            assert world.state("only") == "Ready"
            before = replica.counts.ticks
            await asyncio.sleep(120)
            assert replica.counts.ticks - before < 150
    assert "Apply the CRDs of this release" in capsys.readouterr().out


def without_conditions(definition):
    for version in definition["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["conditions"]
