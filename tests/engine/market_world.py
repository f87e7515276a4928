"""A cluster, machines with power switches, rented ones of simulated markets, and the operator between them."""

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from fractions import Fraction

import msgspec

from forebay.api.codec import decode
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.budgets.bill_shares import billed
from forebay.embedded.api.kinds import NODE_KIND, SECRET_KIND
from forebay.engine.operator import Operator
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.reconcile.snapshot import OperatorRules
from forebay.simulate.market import Market, by_host
from forebay.simulate.market_nodes import EmbeddedKubelets
from tests.contract.providers.conformance import ConformanceServer
from tests.engine.power_world import POWER, SERVER, environment, lab

#: A node without GPUs.
WEB_NODE = "web"


def secret(cloud, name, **data):
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    cloud.store.create(SECRET_KIND, {"metadata": {"name": name, "namespace": "kube-system"}, "data": encoded})


class Cloud:
    """A lab with markets, each of which has a class and a pool of its name."""

    def __init__(self, world, markets):
        self.world = world
        self.store = world.store
        self.markets = {market.name: market for market in markets}
        self.answer = by_host({"power": world.power.answer, **{each.name: each.answer for each in markets}})
        #: The last state of every record, by UID: a record is deleted some time after its end.
        self.records = {}
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        self.store.subscribe(kind, lambda change: self.records.update({change.new["metadata"]["uid"]: change.new}))

    def pool(self, market, *, disruption=None, **spec):
        self.node_class(market, **spec)
        pool = {"nodeClassRef": {"name": market}, "disruption": disruption or {"consolidateAfter": "30s"}}
        self._create("GPUNodePool", {"name": market, "namespace": "kube-system"}, pool)

    def node_class(self, market, **spec):
        entry = {"name": "simulated", "endpoint": f"http://{market}"}
        server = self.markets[market]
        if isinstance(server, ConformanceServer):
            secret(self, market, **{"api-key": server.credentials(f"http://{market}")})
            entry = {
                "name": server.provider,
                "endpoint": f"http://{market}{server.prefix}",
                "credentialsRef": {"name": market, "key": "api-key"},
            }
        self._create("GPUNodeClass", {"name": market}, {"providers": [entry], **spec})

    def _create(self, kind, metadata, spec):
        found = self.store.kinds.named("forebay.dev/v1alpha1", kind)
        return self.store.create(found, {"metadata": metadata, "spec": spec})

    @property
    def running(self):
        return frozenset().union(*(each.running for each in self.markets.values()))

    def bill(self):
        """What the markets charge, in dollars."""
        return sum((each.bill() for each in self.markets.values()), Fraction(0))

    def ledger(self):
        """What Forebay's records come to, for rented machines, in dollars."""
        paid = Fraction(0)
        for each in self.records.values():
            record = decode(GPU_INSTANCE, msgspec.json.encode(each))
            span = billed(record)
            if record.spec.provider != "webhook" and span is not None:
                assert span.end is not None, record.metadata.name
                paid += Fraction(span.rate, 10**24) * (span.end - span.start) / 3600
        return paid


def needs(cpu, gpus=0):
    resources = {"requests": {"cpu": cpu}, "limits": {"nvidia.com/gpu": gpus} if gpus else {}}
    return [{"name": "main", "image": "work:1", "resources": resources}]


def run_daemonset(cloud, cpu):
    """A DaemonSet with a pod on a node without GPUs."""
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    cloud.store.create(NODE_KIND, {"metadata": {"name": WEB_NODE}, "status": status})
    everywhere = {"containers": needs(cpu), "tolerations": [{"operator": "Exists"}]}
    labels = {"app": "exporter"}
    spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": everywhere}}
    kind = cloud.store.kinds.named("apps/v1", "DaemonSet")
    made = cloud.store.create(kind, {"metadata": {"name": "exporter", "namespace": "default"}, "spec": spec})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "controller": True}
    meta = {"ownerReferences": [{**owner, "uid": made["metadata"]["uid"]}]}
    cloud.world.pod("exporter", 0, runs=None, nodeName=WEB_NODE, metadata=meta, **everywhere)


@asynccontextmanager
async def clouds(*markets, machines=(), **options):
    async with lab(*machines, **options) as world:
        made = [make(EmbeddedKubelets(world.store)) for make in markets]
        yield Cloud(world, made)
        for each in made:
            each.stop()
        world.power.stop()


def market(name, *skus, **options):
    return lambda nodes: Market(name, skus, nodes, **options)


@asynccontextmanager
async def cloud_operator(
    cloud,
    name="a",
    *,
    wrap=lambda transport: transport,
    container_specs=None,
    configured=None,
    port_server=None,
    terms=None,
    **rules,
):
    """A replica at work until the block ends. `configured`: what its environment variables configure."""
    async with AsyncExitStack() as stack:
        client, election = (Client(wrap(InProcess(cloud.world.cluster.handler)), SERVER) for _ in range(2))
        stack.push_async_callback(client.close)
        stack.push_async_callback(election.close)
        made = Operator(
            client,
            election,
            SERVER,
            namespace="kube-system",
            identity=name,
            clock=clock.now,
            make_transport=lambda _: wrap(InProcess(cloud.answer)),
            environment=configured or environment(cloud.world.power.configured(POWER)),
            rules=OperatorRules(**rules),
            container_specs=container_specs,
            port_server=port_server,
            **({} if terms is None else {"terms": terms}),
        )
        await stack.enter_async_context(made)
        work = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            work.cancel()
            await asyncio.wait({work})
