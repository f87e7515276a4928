"""Machines with power switches on a real control plane: a machine that comes up is a node of KWOK's."""

import asyncio
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from forebay.net.serve import serving
from forebay.simulate.power import Powered, PowerWorld
from tests.rig import Rig, RigFailed

_ENDED = ("Succeeded", "Failed")


class Administrator:
    """Plain requests over one connection that stays open. They block: for setting a scene, and for asking what is so
    at this very moment.
    """

    def __init__(self, rig: Rig) -> None:
        context = ssl.create_default_context(cafile=str(rig.ca_file))
        context.load_cert_chain(*rig.client_certificate)
        host, _, port = rig.url.removeprefix("https://").rpartition(":")
        self._connection = http.client.HTTPSConnection(host, int(port), timeout=30, context=context)

    def call(self, method: str, path: str, body: object = None, *, accept: Iterable[int] = ()) -> Any:
        """`accept` are answers of no success that are fine as well."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        text = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, text, {"Content-Type": kind})
            answer = self._connection.getresponse()
        except (http.client.HTTPException, ConnectionError):
            # The server has closed what was idle.
            self._connection.close()
            self._connection.request(method, path, text, {"Content-Type": kind})
            answer = self._connection.getresponse()
        read = answer.read().decode()
        if answer.status >= 300 and answer.status not in accept:
            raise RigFailed(f"{method} {path}: {answer.status} {read}")
        return json.loads(read)

    def close(self) -> None:
        self._connection.close()


class KwokNodes:
    """The `Nodes` of a `PowerWorld`: a machine that leaves takes its Node along, and KWOK's pods on it are orphans."""

    def __init__(self, administrator: Administrator) -> None:
        self._administrator = administrator

    def joined(self, machine: Powered) -> None:
        self._administrator.call("POST", "/api/v1/nodes", node(machine))

    def driven(self, machine: Powered) -> None:
        amounts = _amounts(machine, machine.gpus)
        changed = {"status": {"capacity": amounts, "allocatable": amounts}}
        self._administrator.call("PATCH", f"/api/v1/nodes/{machine.name}/status", changed)

    def left(self, machine: Powered) -> None:
        self._administrator.call("DELETE", f"/api/v1/nodes/{machine.name}", accept=[404])

    def pods(self, machine: Powered) -> tuple[str, ...]:
        """Asked of the server, so that what was bound a moment ago is there."""
        path = f"/api/v1/pods?fieldSelector=spec.nodeName={machine.name}"
        return tuple(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            for pod in self._administrator.call("GET", path)["items"]
            if pod["status"].get("phase") not in _ENDED
            and not any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ()))
        )


def node(machine: Powered) -> dict[str, Any]:
    """As a kubelet registers it; KWOK makes it ready."""
    amounts = _amounts(machine, 0 if machine.driver else machine.gpus)
    return {
        "metadata": {
            "name": machine.name,
            "labels": {"kubernetes.io/hostname": machine.name, **machine.labels},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": list(machine.taints)},
        "status": {"capacity": amounts, "allocatable": amounts},
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
async def power_api(rig: Rig, machines: Iterable[Powered], **options: Any) -> AsyncIterator[tuple[PowerWorld, str]]:
    """The machines, and where their switches are."""
    administrator = Administrator(rig)
    world = PowerWorld(machines, KwokNodes(administrator), **options)
    try:
        async with serving(world.answer) as base:
            yield world, base
    finally:
        world.stop()
        administrator.close()


async def quiet(world: PowerWorld) -> None:
    """Returns when no machine draws power."""
    while world.on:  # noqa: ASYNC110 (the world has no event for it)
        await asyncio.sleep(0.05)
