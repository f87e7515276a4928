"""What must hold while the operator is at work, whatever happens to it. Every breach is kept with its time."""

import asyncio
from collections import Counter

from forebay.api.names import CORDONED_ANNOTATION
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND
from forebay.kube.decoders import ADDED, DELETED
from forebay.lifecycle.call_outcomes import MAX_ATTEMPTS
from forebay.simulate.power import Power, PowerCall
from tests.crash.mortal import LATE

#: Records whose machine is there or will be: it counts on both sides of "is more needed?".
_SERVES = frozenset({None, "Requested", "Launching", "Launched", "Joined", "Ready"})
_COMING = frozenset({None, "Requested", "Launching", "Launched"})
#: Of a machine that a person powered on for something else: it is past its deadline, and stays on.
_NOT_COMING = frozenset({"JoinTimeout", "GPUsMissing"})
_ON = frozenset({Power.ON, Power.STARTING})
_ENDED = frozenset({"Succeeded", "Failed"})
#: Between a look at the cluster and what is done about it: what changed meanwhile was not known.
_REACTION = 3.0


class Witness:
    """Stands beside the machines' power switches and the records, and sees every call and every write."""

    def __init__(self, world, people, *, honest):
        """`honest`: no power switch claims to have done what it has not."""
        self.people = people
        self.breaches = []
        self.starts = Counter()
        self.stops = Counter()
        self._world = world
        self._honest = honest
        self._answer = world.power.answer
        self._changed = {}
        self._kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        world.power.answer = self._call
        world.store.subscribe(self._kind, self._record_changed)
        world.store.subscribe(POD_KIND, self._pod_changed)
        world.store.subscribe(NODE_KIND, self._node_changed)

    def breach(self, words):
        self.breaches.append(f"at {_now():.3f} s: {words}")

    async def _call(self, request):
        _, _, _, name, word = request.url.split("/")
        asked = PowerCall(word)
        record = self._world.store.find(self._kind, None, name)
        late = LATE in request.headers
        if asked is PowerCall.ON:
            self._switched_on(name, record, request.headers["Idempotency-Key"], late=late)
        elif asked is PowerCall.OFF:
            self._switched_off(name, record, late=late)
        return await self._answer(request)

    def _switched_on(self, name, record, key, *, late):
        self.starts[key] += 1
        if late:
            # The record has gone on without it.
            pass
        elif record is None or record["metadata"]["uid"] != key:
            self.breach(f"{name} is switched on under key {key}, which is that of no record")
        # Launched: a call that came while the machine shut down is lost, so it is repeated while no node comes.
        elif _state(record) not in {"Launching", "Launched"}:
            self.breach(f"{name} is switched on while its record is {_state(record)}")
        if self.starts[key] > MAX_ATTEMPTS:
            self.breach(f"{name} is switched on {self.starts[key]} times for one record")

    def _switched_off(self, name, record, *, late):
        self.stops[name] += 1
        if not late and (record is None or _state(record) != "Terminating"):
            self.breach(f"{name} is switched off while its record is {record and _state(record)}")
        if not late and self.people.untouchable(name):
            self.breach(f"{name} is switched off although somebody holds it")
        power = self._world.power
        pods = self._pods_on(name)
        if pods and power.power(name) in _ON:
            self.breach(f"{name} is switched off while {pods} run on it")

    def _record_changed(self, change):
        record = change.new
        name = record["metadata"]["name"]
        if change.type == ADDED:
            self._bought(name, record)
        over = _state(record) == "Gone" and (change.old is None or _state(change.old) != "Gone")
        by_hand = name in self.people.powered_on_by_hand
        if over and self._honest and not by_hand and self._world.power.power(name) in _ON:
            self.breach(f"{name} counts as gone while it is on")
        if change.type == DELETED and self._honest and _state(record) != "Gone":
            self.breach(f"the record of {name} is deleted while it is {_state(record)}")

    def _pod_changed(self, change):
        meta = change.new["metadata"]
        before = None if change.old is None else _use(change.old)
        if change.type != DELETED and before == _use(change.new):
            return
        self._changed[meta["namespace"], meta["name"]] = _now()

    def _node_changed(self, change):
        before = change.old is not None and _cordoned_by_people(change.old)
        if before is not _cordoned_by_people(change.new):
            self._changed[None, change.new["metadata"]["name"]] = _now()

    def _bought(self, name, record):
        """For pods that nothing else takes, and that nothing else is on its way for.

        A machine whose node somebody has cordoned takes no pods for as long as that person wants, also while it boots;
        nor does one that a person powered on and that is no node at its deadline: it does something else.
        """
        wanted = record["spec"].get("pods") or ()
        if not wanted:
            return
        waiting = {pod["metadata"]["uid"]: pod for pod in self._world.store.list(POD_KIND) if _waits(pod)}
        records = self._world.store.list(self._kind)
        others = [each for each in records if each["metadata"]["name"] != name and not self._does_other_work(each)]
        for other in others:
            if _state(other) in _COMING and "deletionTimestamp" not in other["metadata"]:
                both = {pod["uid"] for pod in wanted} & {pod["uid"] for pod in other["spec"].get("pods") or ()}
                if both & waiting.keys():
                    self.breach(f"{name} is asked for on account of a pod that {other['metadata']['name']} comes for")
        if any(_now() - at < _REACTION for at in self._changed.values()):
            return
        names = [each["metadata"]["name"] for each in others if _state(each) in _SERVES]
        rooms = [self._free(each) for each in names if not self._is_closed(each)]
        if waiting and packs([_gpus(pod) for pod in waiting.values()], rooms):
            self.breach(f"{name} is asked for although {sorted(map(_name, waiting.values()))} fit elsewhere: {rooms}")

    def _free(self, machine):
        taken = sum(_gpus(pod) for pod in self._world.store.list(POD_KIND) if _runs_on(pod, machine))
        there = self._world.power.machines[machine]
        return there.gpus - there.failed_gpus - taken

    def _does_other_work(self, record):
        late = (record.get("status") or {}).get("reason") in _NOT_COMING
        return late and record["metadata"]["name"] in self.people.powered_on_by_hand

    def _is_closed(self, machine):
        node = self._world.store.find(NODE_KIND, None, machine)
        return node is not None and _cordoned_by_people(node)

    def _pods_on(self, machine):
        return [_name(pod) for pod in self._world.store.list(POD_KIND) if _runs_on(pod, machine)]


def packs(amounts, rooms):
    """Whether all fit, each in one room."""
    if not amounts:
        return True
    first, *rest = sorted(amounts, reverse=True)
    return any(
        packs(rest, [*rooms[:at], room - first, *rooms[at + 1 :]]) for at, room in enumerate(rooms) if room >= first
    )


def _state(record):
    return (record.get("status") or {}).get("state")


def _cordoned_by_people(node):
    ours = CORDONED_ANNOTATION in (node["metadata"].get("annotations") or {})
    return bool(node["spec"].get("unschedulable")) and not ours


def _name(pod):
    return pod["metadata"]["name"]


def _gpus(pod):
    limits = (container["resources"].get("limits", {}) for container in pod["spec"]["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def _use(pod):
    status = pod.get("status") or {}
    return (
        pod["spec"].get("nodeName"),
        status.get("phase") in _ENDED,
        "deletionTimestamp" in pod["metadata"],
        bool(status.get("conditions")),
    )


def _waits(pod):
    return "deletionTimestamp" not in pod["metadata"] and _use(pod)[:2] == (None, False)


def _runs_on(pod, machine):
    return _use(pod)[:2] == (machine, False)


def _now():
    return asyncio.get_running_loop().time()
