"""What people do in a crash world with its machines, beside what Forebay does with them."""

import asyncio
from enum import StrEnum

import msgspec

from forebay.embedded.api.kinds import NODE_KIND
from forebay.simulate.power import Power
from forebay.simulate.power_faults import Boot
from tests.engine.test_lost_nodes import hear, silence

#: From the mark on a machine until Forebay must have seen it, also through a network that loses and delays.
_NOTICED = 40.0
_MAINTENANCE = "forebay.dev/maintenance"
_MARK = {_MAINTENANCE: "new fans"}
_KUBELET = "embedded.forebay.dev/kubelet"


class Deed(StrEnum):
    """Each is undone after a while, so that the world can come to rest."""

    CORDON = "cordon"
    MAINTENANCE = "maintenance annotation"
    #: The machine runs something else than a node.
    OTHER_WORK = "powered on by hand"
    REBOOT = "reboot"
    #: A pod without GPUs, which nothing but an eviction ends.
    SQUATTER = "pod without a GPU"
    REPLACED_POOL = "pool replaced"


class Event(msgspec.Struct, frozen=True):
    deed: Deed
    machine: str
    at: float
    lasts: float = 120.0


class People:
    """Does what the events say. `untouchable` is what Forebay must not power off now."""

    def __init__(self, world, events):
        self._world = world
        self._events = events
        self._held = {}

    @property
    def powered_on_by_hand(self):
        return {event.machine for event in self._events if event.deed is Deed.OTHER_WORK}

    def untouchable(self, machine):
        since = self._held.get(machine)
        return since is not None and asyncio.get_running_loop().time() >= since + _NOTICED

    async def act(self):
        await asyncio.gather(*(self._act(event, number) for number, event in enumerate(self._events)))

    async def _act(self, event, number):
        await asyncio.sleep(event.at)
        name = event.machine
        match event.deed:
            case Deed.CORDON if self._ready(name) and not self._world.is_cordoned(name):
                self._change(name, lambda node: node["spec"].update(unschedulable=True))
                await self._hold(name, event.lasts)
                self._change(name, lambda node: node["spec"].update(unschedulable=False))
            case Deed.MAINTENANCE if self._ready(name):
                self._change(name, lambda node: node["metadata"].setdefault("annotations", {}).update(_MARK))
                await self._hold(name, event.lasts)
                self._change(name, lambda node: node["metadata"].get("annotations", {}).pop(_MAINTENANCE, None))
            case Deed.OTHER_WORK if self._world.power.power(name) is Power.OFF:
                self._world.power.power_on_by_hand(name, Boot(joins=False, runs_other_work=True))
                await asyncio.sleep(event.lasts)
                if not self._ready(name):
                    self._world.power.lose_power(name)
            case Deed.REBOOT if self._ready(name):
                silence(self._world, name)
                await asyncio.sleep(min(event.lasts, 30.0))
                if self._world.power.power(name) is Power.ON:
                    self._change(name, lambda node: node["metadata"].get("annotations", {}).pop(_KUBELET, None))
                    hear(self._world, name, "True")
            case Deed.SQUATTER if self._ready(name) and not self._world.is_cordoned(name):
                self._world.pod(f"squatter-{number}", 0, runs=None, nodeName=name)
            case Deed.REPLACED_POOL:
                self._delete_pool()

    async def _hold(self, name, lasts):
        self._held[name] = asyncio.get_running_loop().time()
        await asyncio.sleep(lasts)
        self._held.pop(name, None)

    def _ready(self, name):
        node = self._world.store.find(NODE_KIND, None, name)
        conditions = (node or {}).get("status", {}).get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def _change(self, name, change):
        self._world.change(NODE_KIND, name, change)

    def _delete_pool(self):
        kind = self._world.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        if self._world.store.find(kind, "kube-system", "environment") is not None:
            self._world.store.delete(kind, "kube-system", "environment")
