"""Machines with power switches on a real control plane: a machine that comes up is a node of KWOK's."""

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from forebay.kube import config, writes
from forebay.kube.client import Client
from forebay.kube.connection import Rate, connect
from forebay.kube.nodes import NODES
from forebay.net.serve import serving
from forebay.simulate.power import Powered, PowerWorld
from tests.rig import Rig, RigFailed
from tests.rig.parts import PLAY

_ENDED = ("Succeeded", "Failed")
_RUN_BY_KWOK = {"kwok.x-k8s.io/node": "fake"}


class Administrator:
    """Plain requests over one connection that stays open. They block: for setting a scene, and for asking what is so
    at this very moment.
    """

    def __init__(self, rig: Rig) -> None:
        context = ssl.create_default_context(cafile=str(rig.ca_file))
        context.load_cert_chain(*rig.client_certificate)
        host, _, port = rig.url.removeprefix("https://").rpartition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context)

    def call(self, method: str, path: str, body: object = None) -> Any:
        text = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):
            # The server has closed what was idle.
            self._connection.close()
            self._connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = self._connection.getresponse()
        read = answer.read().decode()
        if answer.status >= 300:
            raise RigFailed(f"{method} {path}: {answer.status} {read}")
        return json.loads(read)

    def close(self) -> None:
        self._connection.close()


class KwokNodes:
    """The `Nodes` of a `PowerWorld`: a machine that leaves takes its Node along, and KWOK's pods on it are orphans.

    With `kept`, the Node objects were there before, as those of machines that somebody owns are. KWOK makes a node
    Ready when its machine is powered on.

    What machines do is done beside whoever calls their switches, for each in order. Without an `administrator` nobody
    looks for the pods on them.
    """

    def __init__(self, client: Client, administrator: Administrator | None, *, kept: bool = False) -> None:
        self._client = client
        self._kept = kept
        self._administrator = administrator
        self._acts: dict[str, asyncio.Task[None]] = {}

    def node_ready(self, machine: Powered) -> None:
        if self._kept:
            patch = writes.merge_patch({"metadata": {"annotations": {PLAY["MACHINE_OFF"]: None}}})
            self._next(machine, self._client.patch(NODES, machine.name, patch))
        else:
            self._next(machine, self._client.create(NODES, node(machine)))

    def gpus_allocatable(self, machine: Powered) -> None:
        amounts = _amounts(machine, machine.gpus)
        patch = writes.merge_patch({"status": {"capacity": amounts, "allocatable": amounts}})
        self._next(machine, self._client.patch(NODES, machine.name, patch, subresource="status"))

    def node_stopped(self, machine: Powered) -> None:
        self._next(machine, self._client.delete(NODES, machine.name))

    def pods(self, machine: Powered) -> tuple[str, ...]:
        """Asked of the server while everything waits, so that what was bound a moment ago is there."""
        if self._administrator is None:
            return ()
        path = f"/api/v1/pods?fieldSelector=spec.nodeName={machine.name}"
        return tuple(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self._administrator.call("GET", path)["items"]
            if pod["status"].get("phase") not in _ENDED
            and not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
        )

    def _next(self, machine: Powered, act: Coroutine[Any, Any, object]) -> None:
        before = self._acts.get(machine.name)

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait({before})
            await act

        self._acts[machine.name] = asyncio.create_task(in_order())

    async def close(self) -> None:
        await asyncio.gather(*self._acts.values())


def node(machine: Powered) -> dict[str, Any]:
    """As a kubelet registers it; KWOK makes it ready."""
    amounts = _amounts(machine, 0 if machine.driver else machine.gpus)
    return {
        "metadata": {
            "name": machine.name,
            "labels": {"kubernetes.io/hostname": machine.name, **machine.labels},
            "annotations": _RUN_BY_KWOK,
        },
        "spec": {"taints": list(machine.taints)},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def node_of_machine_off(machine: Powered) -> dict[str, Any]:
    """As the node lifecycle controller leaves it: Ready is Unknown.

    Without the condition that controller removes the taint not-ready, and kube-scheduler binds pods to the node.
    """
    made = node(machine)
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "The machine is off."}
    return {
        **made,
        "metadata": {**made["metadata"], "annotations": {**_RUN_BY_KWOK, PLAY["MACHINE_OFF"]: "true"}},
        "status": {**made["status"], "conditions": [condition]},
    }


def _amounts(machine: Powered, gpus: int) -> Mapping[str, str]:
    return {**machine.allocatable, "pods": "110", machine.gpu_resource: str(gpus)}


def gpu_pod(name: str, gpus: int, **annotations: str) -> dict[str, Any]:
    """Annotations as of `tests.rig.parts.PLAY`."""
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }


@asynccontextmanager
async def power_api(
    rig: Rig, machines: Iterable[Powered], *, look_for_pods: bool = True, kept: bool = False, **options: Any
) -> AsyncIterator[tuple[PowerWorld, str]]:
    """The machines, and where their switches are. `kept`: their Node objects are there while they are off."""
    async with AsyncExitStack() as stack:
        client = rig_client(rig)
        stack.push_async_callback(client.close)
        administrator = Administrator(rig) if look_for_pods else None
        if administrator is not None:
            stack.callback(administrator.close)
        nodes = KwokNodes(client, administrator, kept=kept)
        machines = tuple(machines)
        for machine in machines if kept else ():
            await client.create(NODES, node_of_machine_off(machine))
        stack.push_async_callback(nodes.close)
        world = PowerWorld(machines, nodes, **options)
        stack.callback(world.stop)
        yield world, await stack.enter_async_context(serving(world.answer))


def rig_client(rig: Rig) -> Client:
    """The administrator's, as fast as the server is."""
    fast = Rate(qps=10_000, burst=10_000)
    return Client(connect(config.load_config(env={}, path=rig.admin_kubeconfig), rate=fast), rig.url)
