"""A look at a cluster from outside: what would be bought, and nothing is touched."""

import asyncio

import pytest

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.meta import ObjectMeta
from forebay.engine.sources.secrets import ClusterSecrets
from forebay.engine.sources.sources import CALL_TIMEOUT, SourceConfig
from forebay.engine.survey import fetch_offers, survey
from forebay.kube.client import Client
from forebay.kube.errors import NotListed
from forebay.kube.own_kinds import GPU_NODE_CLASSES
from forebay.model.sources import Capabilities, Delivery, SourceKey
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.transport import Response
from forebay.providers.base import BadCredentials
from forebay.providers.plugin import ProviderContext
from forebay.reconcile.snapshot import OperatorRules
from forebay.reporting.what_if import dry_run
from forebay.simulate.power import Powered
from tests.engine.power_world import SERVER, lab, operator

SMALL = Powered(name="small", gpus=1, boot=60)
LARGE = Powered(name="large", gpus=4, boot=60)


async def seen(world, handler=None):
    client = Client(InProcess(handler or world.cluster.handler), SERVER)
    context = ProviderContext(
        make_transport=lambda _: InProcess(world.power.answer),
        secrets=ClusterSecrets(client),
        namespace="kube-system",
        cluster="c",
        redactor=Redactor(),
        clock=clock.now,
    )
    try:
        return await survey(client, SERVER, context, OperatorRules())
    finally:
        await client.close()


def bought(view):
    return {each.candidate.offer.node_name: sorted(pod.name for pod in each.pods) for each in view.plan.purchases}


async def test_what_the_operator_would_do_is_seen_and_nothing_is_done():
    async with lab(SMALL, LARGE) as world:
        async with operator(world):
            await asyncio.sleep(5)
        world.pod("one", 1)
        world.pod("four", 4)
        world.pod("nine", 9)
        await asyncio.sleep(1)

        view = dry_run(await seen(world))

        assert bought(view) == {"small": ["one"], "large": ["four"]}
        assert [(left.pod.name, str(left.reason)) for left in view.plan.left_out] == [("nine", "NoOfferFits")]
        await asyncio.sleep(60)
        assert world.power.calls == []
        assert world.records() == {}

        async with operator(world):
            await asyncio.sleep(5)
            assert sorted(world.asked("start")) == ["large", "small"], "and then the operator does just that"


async def test_what_is_on_its_way_is_not_bought_again():
    async with lab(SMALL, LARGE) as world, operator(world):
        world.pod("one", 1)
        await asyncio.sleep(5)

        view = dry_run(await seen(world))

        assert world.asked("start") == ["small"]
        assert view.plan.purchases == ()
        assert [str(each.reason) for each in view.reservations.placed.values()] == ["CapacityLaunching"]


@pytest.mark.parametrize("kind", ["nodes", "poddisruptionbudgets", "gpuinstances"])
async def test_nothing_is_planned_from_a_cluster_of_which_a_part_may_not_be_listed(kind):
    async with lab(SMALL) as world:
        world.pod("one", 1)

        async def forbidding(request):
            if request.url.partition("?")[0].endswith(f"/{kind}"):
                return Response(403, body=b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "No."}')
            return await world.cluster.handler(request)

        with pytest.raises(NotListed, match=kind):
            await seen(world, forbidding)


async def test_signing_requests_need_not_be_listed_because_no_plan_depends_on_them():
    async with lab(SMALL) as world:
        world.pod("one", 1)

        async def forbidding(request):
            if request.url.partition("?")[0].endswith("/certificatesigningrequests"):
                return Response(403, body=b'{"kind": "Status", "code": 403, "reason": "Forbidden", "message": "No."}')
            return await world.cluster.handler(request)

        assert [each.name for each in (await seen(world, forbidding)).pending] == ["one"]


async def test_a_provider_that_this_release_lacks_is_said_to_be_unusable():
    async with lab() as world:
        spec = GPUNodeClassSpec(providers=(ProviderEntry(name="simulated"),))
        await world.user.create(GPU_NODE_CLASSES, GPUNodeClass(metadata=ObjectMeta(name="cloud"), spec=spec))

        snapshot = await seen(world)

        assert snapshot.sources == {}
        assert list(snapshot.unusable) == [SourceKey("cloud", "simulated")]


class Reluctant:
    """A provider that has no answer but `offers()`."""

    def __init__(self, answer):
        self._answer = answer
        self.closed = False

    def capabilities(self):
        return Capabilities(deliveries=(Delivery.NODE,))

    async def offers(self):
        return await self._answer()

    async def close(self):
        self.closed = True


async def test_providers_that_fail_or_never_answer_are_unknown_and_not_empty():
    async def refuses():
        raise BadCredentials("The key is wrong: correct Secret a/b.")

    async def never():
        await asyncio.sleep(10 * CALL_TIMEOUT)

    providers = {name: Reluctant(answer) for name, answer in (("strict", refuses), ("stuck", never))}
    wanted = [
        SourceConfig(key=SourceKey("cloud", name), digest="", priority=2, enabled=True, build=lambda each=each: each)
        for name, each in providers.items()
    ]

    sources, unusable = await fetch_offers(wanted)

    assert unusable == {}
    assert {key.provider: (each.offers, each.error) for key, each in sources.items()} == {
        "strict": (None, "The key is wrong: correct Secret a/b."),
        "stuck": (None, "stuck did not answer within 60 s"),
    }
    assert all(each.closed for each in providers.values())
