"""Clouds whose machines join a real control plane: conformance servers on sockets, and nodes of KWOK's."""

import asyncio
import base64
import contextlib
import random
import re
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from forebay.api.codec import decode
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.budgets.bill_shares import billed
from forebay.install.roles import rbac_manifests
from forebay.kube import writes
from forebay.kube.errors import NotFound
from forebay.kube.nodes import NODES
from forebay.net.serve import serving
from forebay.net.transport import AnswerLost, Response
from tests.cluster.powered import rig_client
from tests.cluster.worlds import FOREBAY, create
from tests.rig.parts import PLAY

#: What a machine is told at boot, by a class that lets it join in its own way.
TEMPLATE = (
    "#!/bin/sh\n# join as {{.NodeName}} labels={{.NodeLabels}} taints={{.NodeTaints}} provider-id={{.ProviderID}}\n"
)
_SECRET = "cloud-keys"
_PROVIDER_ID = re.compile(r"provider-id=(\S+)")


class RigKubelets:
    """Kubelets of rented machines, played by KWOK. The Node of a machine that is gone stays, and is not Ready, until
    it is deleted.
    """

    def __init__(self, client):
        self._client = client
        self._acts = {}

    def boot(self, rented, *, gpus_appear):
        amounts = {**rented.sku.allocatable, "pods": "110", rented.sku.gpu_resource: str(rented.sku.gpus)}
        assert gpus_appear
        planned = rented.order.node
        node = {
            "metadata": {
                "name": planned.name,
                "labels": {"kubernetes.io/hostname": planned.name, **planned.labels},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {
                "providerID": self._provider_id(rented.order.boot),
                "taints": [{"key": each.key, "value": each.value, "effect": each.effect} for each in planned.taints],
            },
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        self._next(planned.name, self._register(rented.order.boot, node))

    def _provider_id(self, boot):
        return _PROVIDER_ID.search(boot)[1]

    async def _register(self, _boot, node):
        await self._client.create(NODES, node)

    def stop(self, rented):
        if rented.node_name in self._acts:
            self._next(rented.node_name, self._power_off(rented.node_name))

    async def _power_off(self, name):
        off = writes.merge_patch({"metadata": {"annotations": {PLAY["MACHINE_OFF"]: "true"}}})
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "It is off."}
        unknown = writes.merge_patch({"status": {"conditions": [condition]}})
        with contextlib.suppress(NotFound):
            await self._client.patch(NODES, name, off)
            await self._client.patch(NODES, name, unknown, subresource="status")

    def _next(self, name, act):
        """Does it after what is under way for that node."""
        before = self._acts.get(name)

        async def in_order():
            if before is not None:
                await asyncio.wait({before})
            await act

        self._acts[name] = asyncio.create_task(in_order())

    async def close(self):
        await asyncio.gather(*self._acts.values())


class RentedClouds:
    """Conformance servers by name, where each is served, and what becomes of a class that names them."""

    def __init__(self, rig, home, servers, bases):
        self._rig = rig
        self._home = home
        self.servers = servers
        self._bases = bases
        #: UIDs of GPUInstances of stories told before on this control plane: their machines are on no bill of these
        #: clouds, whose IDs begin anew.
        self._earlier = {each["metadata"]["uid"] for each in self._instances()}

    def _instances(self):
        return self._rig.call("GET", f"{FOREBAY}/gpuinstances")["items"]

    def grant(self):
        """The keys of the clouds in the namespace of the operator, which may read that Secret."""
        for manifest in rbac_manifests(self._home, [_SECRET]):
            if "subjects" not in manifest:
                create(self._rig, manifest)
        keys = {name: server.credentials(self._bases[name]) for name, server in self.servers.items()}
        data = {name: base64.b64encode(key.encode()).decode() for name, key in keys.items()}
        self._rig.call(
            "POST", f"/api/v1/namespaces/{self._home}/secrets", {"metadata": {"name": _SECRET}, "data": data}
        )

    def class_spec(self, **fields):
        entries = [
            {
                "name": server.provider,
                "endpoint": f"{self._bases[name]}{server.prefix}",
                "credentialsRef": {"name": _SECRET, "key": name},
            }
            for name, server in self.servers.items()
        ]
        return {"providers": entries, "cloudInit": {"template": TEMPLATE}, "allowedNamespaces": {}, **fields}

    @property
    def rented(self):
        return [each for server in self.servers.values() for each in server.instances.values()]

    @property
    def running(self):
        return frozenset().union(*(each.running for each in self.servers.values()))

    @property
    def left_behind(self):
        return [kind for server in self.servers.values() for kind, items in server.others.items() if items]

    def bill(self):
        return sum((each.bill() for each in self.servers.values()), Fraction(0))

    def ledger(self):
        """What the records come to, in dollars."""
        return sum((paid for _, paid in self._paid()), Fraction(0))

    def _paid(self):
        """Records that cost something, and their dollars."""
        for each in self._instances():
            if each["metadata"]["uid"] in self._earlier:
                continue
            record = decode(GPU_INSTANCE, msgspec.json.encode(each))
            span = billed(record)
            if span is not None:
                assert span.end is not None, record.metadata.name
                yield record, Fraction(span.rate, 10**24) * (span.end - span.start) / 3600

    def differences(self, late=0):
        """Lines of machines that cost less or more in the ledger than on the bill, with the times that decided it.
        Less is always told; more, where it is more than the end of the machine noticed `late` seconds late.
        """
        theirs = {each.line.instance: each.line for each in self.rented}
        now = datetime.now(UTC)
        for record, paid in self._paid():
            status = record.status
            line = theirs.pop(status.instance_id, None)
            bill = line.dollars(now) if line is not None else Fraction(0)
            noticed = line.ended + timedelta(seconds=late) if line is not None and line.ended else None
            most = replace(line, ended=noticed).dollars(now) if noticed is not None else bill
            if not bill <= paid <= most:
                span = f"{line.created:%T} to {line.ended:%T}" if line is not None and line.ended else "unknown"
                yield (
                    f"{record.metadata.name} ({status.instance_id}):"
                    f" ledger {float(paid):.4f} $, bill {float(bill):.4f} $,"
                    f" billed {status.billed_from:%T} to {status.billed_until or status.since:%T}, in truth {span};"
                    f" listed {status.listed_at}, termination accepted {status.termination_accepted_at}, absent"
                    f" {status.absent_since}: {status.reason}"
                )
        for line in theirs.values():
            yield f"{line.instance} of {line.owner}: no record, bill {float(line.dollars(now)):.4f} $"


class Flaky:
    """A server of which a share of the calls fails: reads with 503, others after they have acted, or for want of
    capacity, as the cloud says that.
    """

    def __init__(self, server, share, seed):
        self._server = server
        self._share = share
        self._rng = random.Random(seed)
        self.failed = 0

    async def answer(self, request):
        if self._rng.random() >= self._share:
            return await self._server.answer(request)
        self.failed += 1
        if request.method == "GET":
            return Response(503, body=b"{}")
        await self._server.answer(request)
        raise AnswerLost(f"{request}: sent, but the connection broke", request)


@asynccontextmanager
async def rented_clouds(rig, home, makers: dict[str, Callable], wrap=lambda server: server):
    """The clouds, each made with the kubelets. `wrap` may put faults before them."""
    async with AsyncExitStack() as stack:
        client = rig_client(rig)
        stack.push_async_callback(client.close)
        kubelets = RigKubelets(client)
        stack.push_async_callback(kubelets.close)
        servers = {name: make(kubelets) for name, make in makers.items()}
        bases = {}
        for name, server in servers.items():
            stack.callback(server.stop)
            bases[name] = await stack.enter_async_context(serving(wrap(server).answer))
        made = await asyncio.to_thread(RentedClouds, rig, home, servers, bases)
        await asyncio.to_thread(made.grant)
        yield made
