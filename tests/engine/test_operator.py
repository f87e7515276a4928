"""The whole operator on an embedded cluster, in virtual time."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from forebay.embedded.api import kinds
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.operator import Operator
from forebay.install.crds import custom_resource_definitions
from forebay.kube.client import Client
from forebay.kube.own_kinds import GPU_NODE_CLASSES, GPU_NODE_POOLS
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.transport import NeverSent
from tests.net.faults import Answer, Faulty, When

SERVER = "http://embedded"
CLASS = {
    "metadata": {"name": "owned"},
    "spec": {
        "providers": [
            {
                "name": "webhook",
                "machines": [
                    {
                        "name": "m1",
                        "gpuCount": 1,
                        "scaleUpEndpoint": "http://127.0.0.1:1/on",
                        "scaleDownEndpoint": "http://127.0.0.1:1/off",
                    }
                ],
            }
        ],
        "allowedNamespaces": {},
    },
}
POOL = {"metadata": {"name": "team", "namespace": "default"}, "spec": {"nodeClassRef": {"name": "owned"}}}


async def nowhere(request):
    raise NeverSent(f"{request}: there is no power API in these stories", request)


@asynccontextmanager
async def world():
    """A cluster with our kinds, and a user's client."""
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        for definition in custom_resource_definitions():
            cluster.store.create(kinds.CRD_KIND, definition)
        yield cluster, Client(InProcess(cluster.handler), SERVER)


@asynccontextmanager
async def operator(cluster, name, wrap=lambda transport: transport):
    """A replica at work until the block ends, as a process is until it gets a SIGTERM."""
    async with AsyncExitStack() as stack:
        client, election = (Client(wrap(InProcess(cluster.handler)), SERVER) for _ in range(2))
        stack.push_async_callback(client.close)
        stack.push_async_callback(election.close)
        made = Operator(
            client,
            election,
            SERVER,
            namespace="kube-system",
            identity=name,
            clock=clock.now,
            make_transport=lambda _: InProcess(nowhere),
        )
        await stack.enter_async_context(made)
        work = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})


async def reason(user):
    pool = await user.get(GPU_NODE_POOLS, "team", "default")
    found = {each.type: each for each in (pool.status.conditions if pool.status else ())}
    return found["NodeClassReady"].reason if found else None


async def test_a_pool_learns_what_is_wrong_and_when_it_is_mended():
    async with world() as (cluster, user), operator(cluster, "a"):
        await user.create(GPU_NODE_POOLS, POOL)
        await asyncio.sleep(2)
        assert await reason(user) == "NodeClassNotFound"

        await user.create(GPU_NODE_CLASSES, CLASS)
        await asyncio.sleep(2)
        assert await reason(user) == "NodeClassFound"

        events = [
            (event["reason"], event["type"])
            for event in cluster.store.list(kinds.EVENT_KIND, "default")
            if event["involvedObject"]["kind"] == "GPUNodePool"
        ]
        assert events == [("NodeClassNotFound", "Warning"), ("NodeClassFound", "Normal")]


async def test_of_two_replicas_one_acts_and_the_other_takes_over_at_once_when_it_leaves():
    async with world() as (cluster, user), operator(cluster, "b") as standby:
        async with operator(cluster, "a") as first:
            await asyncio.sleep(5)
            leaders = [each for each in (first, standby) if each.elector.still_leader()]
            assert len(leaders) == 1
        await asyncio.sleep(5)
        assert standby.elector.still_leader()

        await user.create(GPU_NODE_POOLS, POOL)
        await asyncio.sleep(2)
        assert await reason(user) == "NodeClassNotFound"


async def test_a_refused_status_write_is_tried_again():
    def is_status_write(request):
        return request.method == "PATCH" and request.url.partition("?")[0].endswith("/status")

    fault = When(is_status_write, Answer(503), times=2)
    async with world() as (cluster, user), operator(cluster, "a", lambda inner: Faulty(inner, fault)):
        await user.create(GPU_NODE_POOLS, POOL)
        await asyncio.sleep(30)
        assert await reason(user) == "NodeClassNotFound"


async def test_without_its_kinds_the_operator_says_what_is_missing_and_goes_on_once_they_are_there():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        user = Client(InProcess(cluster.handler), SERVER)
        async with operator(cluster, "a") as made:
            await asyncio.sleep(10)
            assert "gpunode" in made.error()
            for definition in custom_resource_definitions():
                cluster.store.create(kinds.CRD_KIND, definition)
            await user.create(GPU_NODE_POOLS, POOL)
            await asyncio.sleep(120)
            assert made.error() is None
            assert await reason(user) == "NodeClassNotFound"


async def test_a_watch_that_has_ended_by_a_fault_of_ours_is_a_reason_to_be_restarted():
    said = []

    async def life():
        async with world() as (cluster, _), operator(cluster, "a") as made:
            await asyncio.sleep(5)
            said.append(made.fatal_error())
            made.views.namespaces.subscribe(lambda _: 1 / 0)
            cluster.store.create(kinds.NAMESPACE_KIND, {"metadata": {"name": "new"}})
            await asyncio.sleep(5)
            said.append(made.fatal_error())

    with pytest.raises(ZeroDivisionError):
        await life()
    assert said == [None, "the watch of namespaces was ended by a bug of Forebay: see its log"]
