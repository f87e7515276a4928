"""Conformance server of RunPod: containers that run, exit, write logs and are billed.

A container obeys SIMULATED_RUN_TIME and SIMULATED_EXIT_CODE of its environment. One whose command runs under Forebay's
shell goes on after its report, as that shell does; any other becomes EXITED.
"""

import asyncio
import itertools
import shlex
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import parse_qsl, urlsplit

import msgspec

from forebay.api.values import duration
from forebay.model.sources import Delivery, InstancePhase
from forebay.net.clock import now
from forebay.net.transport import AnswerCut, Headers, Response
from forebay.providers.simulated.wire import MarketLogLine
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME, Sku
from tests.contract.providers.conformance import ConformanceServer, Refused
from tests.contract.providers.runpod.contract import ERROR, OPERATIONS

REGISTRIES = "registries"
_STATUS = {
    InstancePhase.STARTING: "PROVISIONING",
    InstancePhase.RUNNING: "RUNNING",
    InstancePhase.FINISHED: "EXITED",
    InstancePhase.FAILED: "ERROR",
    InstancePhase.STOPPED: "EXITED",
    # A pod that is being deleted looks as before until it is gone.
    InstancePhase.ENDING: "RUNNING",
}
_TITLES = {400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found"}
_NO_STOCK = "There are no longer any instances available with the requested specifications."


def gpu(gpu_id, *, price, memory, counts=range(1, 9), places=("US-TX-3",), community=None, **fields):
    """Skus of one GPU type: one for each number of GPUs in each data center, and in the `community` cloud at its price.

    The zone of a sku is the number of GPUs, with a `c` in the community cloud.
    """
    found = [(count, place, str(count), price) for count in counts for place in places]
    found += [(count, "EU-HOME", f"{count}c", community) for count in counts if community is not None]
    return [
        Sku(
            instance_type=gpu_id,
            gpus=count,
            hourly_price=f"{float(each) * count:.2f}",
            gpu_memory_gib=memory,
            region=place,
            zone=zone,
            delivers=Delivery.CONTAINER,
            **{"boot": 0.05, "shutdown": 0, "minimum": 0, **fields},
        )
        for count, place, zone, each in found
    ]


def _zone(count, cloud):
    return f"{count}c" if cloud == "COMMUNITY" else str(count)


class RunpodCloud(ConformanceServer):
    """One account. `fresh_unknown`: seconds for which DELETE does not find a new pod."""

    operations = OPERATIONS
    error = ERROR
    spec = ("runpod/rest-v2.openapi.json", "")
    limits = ((None, 60, 60),)

    def __init__(self, skus, nodes=None, *, name="runpod", fresh_unknown=0.0, **options):
        super().__init__(skus, nodes, name=name, **options)
        self.orders = {}
        self.fresh_unknown = fresh_unknown
        #: How many of the next log streams break off after what was written so far.
        self.cut_logs = 0
        #: How many of the next ones end there, as if there were no more to come.
        self.closed_logs = 0
        #: Whether ids of log lines are their times in whole seconds, as the specification says of them.
        self.coarse_ids = False
        #: Whether the stream of a pod that was stopped ends.
        self.stopped_logs_end = True
        #: What each stream begins with that no specification allows.
        self.log_garbage = ()
        #: How many were opened.
        self.log_streams = 0
        #: Containers whose GPUs do nothing, because their command has ended and the shell around it waits.
        self.idle = set()
        #: When containers were started again, by id.
        self.restarted = {}
        #: Pods that listings leave out although they exist.
        self.unlisted = set()
        #: How often all open streams were closed, and how often they went dead.
        self._closings = self._deaths = 0
        self._registry_numbers = itertools.count(1)
        self._written = asyncio.Event()

    def refusal(self, status, message="", code=None):  # noqa: ARG002 (of all clouds)
        body = {"title": _TITLES.get(status, "Error"), "status": status, "detail": message}
        return MarketFault(
            status=status, body=msgspec.json.encode(body), headers={"Content-Type": "application/problem+json"}
        )

    def no_capacity(self):
        return self.refusal(400, _NO_STOCK)

    def quota_reached(self):
        return self.refusal(402, "Insufficient balance.")

    def rate_limited(self, seconds):
        headers = {
            "Retry-After": str(int(seconds)),
            "RateLimit": f'"minute";r=0;t={int(seconds)}',
            "RateLimit-Policy": '"minute";q=60;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400',
        }
        return msgspec.structs.replace(self.refusal(429, "rate limit exceeded"), headers=headers)

    def create(self, **order):
        """A pod that somebody made by hand."""
        body = {"image": "example.test/other:1", "gpu": {"id": next(iter(self._skus))[0]}, "env": {}, **order}
        return self._create(body, 1).id

    def leave_behind(self, instance_type, cluster, owner="nobody"):
        env = {"FOREBAY_CLUSTER": cluster, "FOREBAY_INSTANCE": owner}
        return self.create(name="leftover", gpu={"id": instance_type}, env=env)

    def write(self, pod, text):
        """Adds a line to the container's log."""
        self.instances[pod].log.append(MarketLogLine(at=now(), text=text))
        self._wake()

    def exits(self, pod, code):
        """The command of the container ends."""
        self._exits(self.instances[pod], code)

    def stop_pod(self, pod):
        """Somebody stops the pod at RunPod, or RunPod does, where the balance is used up: nothing in it goes on."""
        rented = self.instances[pod]
        rented.enters(InstancePhase.STOPPED)
        rented.stop_billing()
        self._wake()

    def close_logs(self):
        """Closes all streams that are open."""
        self._closings += 1
        self._wake()

    def lose_logs(self):
        """All streams that are open go dead: nothing more comes of them, and nobody is told."""
        self._deaths += 1

    def fail(self, pod):
        self._fail(self.instances[pod])
        self._wake()

    def _end(self, rented):
        # Its log streams end with it.
        super()._end(rented)
        self._wake()

    def _wake(self):
        self._written.set()
        self._written = asyncio.Event()

    # Operations.

    def on_create_pod(self, call):
        return self._shown(self._create(call.body, call.copies))

    def _create(self, order, copies):
        zone = _zone(order["gpu"].get("count", 1), order.get("cloud"))
        wanted = order.get("dataCenterIds") or [sku.region for sku in self._skus.values()]
        keys = [
            key
            for place in dict.fromkeys(wanted)
            if (key := self.key_of(order["gpu"]["id"], place, zone=zone)) is not None
        ]
        if not keys:
            raise Refused(self.refusal(400, f"gpu.id {order['gpu']['id']} is not offered like that"))
        if order.get("registry") and order["registry"] not in self.others[REGISTRIES]:
            raise Refused(self.refusal(404, "registry not found"))
        key = next((each for each in keys if self._stock[each] != 0), keys[0])
        made = self.rent(key, name=order["name"], owner=order["env"].get("FOREBAY_INSTANCE", ""), copies=copies)
        for each in made:
            self.orders[each.id] = order
            self._plan(each, order["env"])
        return made[0]

    def _plan(self, rented, env):
        if RUN_TIME in env:
            after = rented.sku.boot + duration(env[RUN_TIME]).total_seconds()
            rented.later(after, partial(self._exits, rented, int(env.get(EXIT_CODE, "0"))))

    def _exits(self, rented, code):
        words = shlex.split(self.orders[rented.id].get("args", ""))
        if words[:2] == ["/bin/sh", "-c"] and words[3:4] == ["forebay"]:
            self.write(rented.id, f"forebay-exit {words[4]} {code}")
            self.idle.add(rented.id)
            return
        rented.enters(InstancePhase.FINISHED)
        rented.stop_billing()
        self._wake()

    def on_list_pods(self, _call):
        return {"pods": [self._shown(each) for each in self.listed() if each.id not in self.unlisted]}

    def on_get_pod(self, call):
        return self._shown(self._found(call.parameters["id"]))

    def on_delete_pod(self, call):
        rented = self._found(call.parameters["id"])
        if now() < rented.line.created + timedelta(seconds=self.fresh_unknown):
            raise Refused(self.refusal(404, "pod not found"))
        self.end(rented.id)
        self._wake()

    def _found(self, pod):
        rented = self.instances.get(pod)
        if rented is None or rented.gone_at is not None:
            raise Refused(self.refusal(404, "pod not found"))
        return rented

    def on_list_gpus(self, call):
        zone = _zone(call.query.get("count", 1), call.query.get("cloud"))
        found = {}
        for key, sku in self._skus.items():
            found.setdefault(sku.instance_type, []).append((key, sku))
        return {"gpus": [self._gpu_type(name, skus, zone) for name, skus in found.items()]}

    def _gpu_type(self, name, skus, zone):
        places = [
            {"id": sku.region, "name": sku.region, "availability": "NONE" if self._stock[key] == 0 else "HIGH"}
            for key, sku in skus
            if sku.zone == zone
        ]
        secure = [sku for _, sku in skus if not sku.zone.endswith("c")]
        community = [sku for _, sku in skus if sku.zone.endswith("c")]
        prices = [round(float(some[0].hourly_price) / some[0].gpus, 4) if some else 0.0 for some in (secure, community)]
        most = [max((sku.gpus for sku in some), default=0) for some in (secure, community)]
        available = any(each["availability"] != "NONE" for each in places)
        return {
            "id": name,
            "name": name.removeprefix("NVIDIA ").removeprefix("GeForce "),
            "pool": None,
            "manufacturer": "AMD" if name.startswith("AMD") else "NVIDIA",
            "memory": skus[0][1].gpu_memory_gib,
            "secure": bool(secure),
            "community": bool(community),
            "price": {"secure": prices[0], "community": prices[1]},
            "maxCount": {"secure": most[0], "community": most[1]},
            "availability": "HIGH" if available else "NONE",
            **({"dataCenters": places} if available else {}),
        }

    def on_list_data_centers(self, _call):
        names = dict.fromkeys(sku.region for sku in self._skus.values())
        fields = {"region": "NORTH_AMERICA", "networkVolumeTypes": [], "compliance": [], "globalNetwork": False}
        return {"dataCenters": [{"id": name, "name": name, **fields} for name in names]}

    def on_list_registries(self, _call):
        return {"registries": [{"id": key, "name": each["name"]} for key, each in self.others[REGISTRIES].items()]}

    def on_create_registry(self, call):
        made = f"reg{next(self._registry_numbers)}"
        self.others[REGISTRIES][made] = call.body
        return {"id": made, "name": call.body["name"]}

    def on_delete_registry(self, call):
        uses = (self.orders[each.id] for each in self.instances.values() if each.gone_at is None)
        if any(order.get("registry") == call.parameters["id"] for order in uses):
            raise Refused(self.refusal(400, "registry credential is in use by a pod"))
        if self.others[REGISTRIES].pop(call.parameters["id"], None) is None:
            raise Refused(self.refusal(404, "registry not found"))

    # Log streams.

    async def answer(self, request):
        operation, parameters = self._matched(request)
        if operation is None or operation.name != "logs":
            return await super().answer(request)
        refused = self._refused(operation, request)
        rented = None
        try:
            rented = self._found(parameters["id"])
        except Refused as error:
            refused = refused or error.fault
        if refused is not None:
            return Response(refused.status, Headers(refused.headers), refused.body)
        self.log_streams += 1
        return Response(200, Headers({"Content-Type": "text/event-stream"}), self._events(rented, request))

    async def _events(self, rented, request):
        query = dict(parse_qsl(urlsplit(request.url).query))
        last = request.headers.get("Last-Event-ID")
        if last is not None and self.coarse_ids:
            first = sum(each.at < datetime.fromisoformat(last) for each in rented.log)
        elif last is not None:
            first = int(last.rpartition("/")[2]) + 1
        elif "since" in query:
            since = datetime.fromisoformat(query["since"])
            first = sum(each.at < since for each in rented.log)
        else:
            first = max(len(rented.log) - int(query.get("tail", 100)), 0)
        cut, self.cut_logs = self.cut_logs > 0, max(self.cut_logs - 1, 0)
        closed, self.closed_logs = self.closed_logs > 0, max(self.closed_logs - 1, 0)
        closings, deaths = self._closings, self._deaths
        for chunk in self.log_garbage:
            yield chunk
        while True:
            if deaths != self._deaths:
                await asyncio.Event().wait()
            if closings != self._closings:
                return
            written = self._written
            for number in range(first, len(rented.log)):
                line = rented.log[number]
                at = line.at.isoformat().replace("+00:00", "Z")
                data = msgspec.json.encode({"source": "container", "line": line.text, "ts": at})
                exact, coarse = f"{at}/{number:012}", f"{line.at:%Y-%m-%dT%H:%M:%SZ}"
                yield b"id: %s\ndata: %s\n\n" % ((coarse if self.coarse_ids else exact).encode(), data)
            first = len(rented.log)
            if cut:
                raise AnswerCut("the connection was closed", request)
            stopped = rented.phase is InstancePhase.STOPPED and self.stopped_logs_end
            if closed or stopped or rented.gone_at is not None or rented.phase is InstancePhase.FINISHED:
                return
            await written.wait()

    def restart_pod(self, pod):
        """RunPod starts the container again: what ran in it had exited, or somebody wanted it."""
        self.restarted[pod] = now()

    def _uptime(self, rented):
        began = self.restarted.get(rented.id, rented.line.created + timedelta(seconds=rented.sku.boot))
        return max(int((now() - began).total_seconds()), 0)

    def _shown(self, rented):
        order, running = self.orders[rented.id], rented.phase is InstancePhase.RUNNING
        billed = rented.line.ended is None
        return {
            "id": rented.id,
            "name": order["name"],
            "status": _STATUS[rented.phase],
            "actions": ["terminate"],
            "image": order["image"],
            "args": order.get("args", ""),
            "disk": order.get("disk", 20),
            "mounts": {},
            "ports": order.get("ports", []),
            "env": order["env"],
            "registry": order.get("registry"),
            "gpu": {"id": order["gpu"]["id"], "count": order["gpu"].get("count", 1)},
            "cloud": order.get("cloud", "SECURE"),
            "dataCenterId": rented.sku.region,
            "cudaVersion": None,
            "ssh": {"proxy": None, "direct": None},
            "template": None,
            "cost": float(rented.sku.hourly_price) if billed else 0.0,
            "locked": False,
            "runtime": {"uptime": self._uptime(rented), "gpus": [{"util": 0 if rented.id in self.idle else 90}]}
            if running
            else None,
            "createdAt": rented.line.created.isoformat(),
            "startedAt": None,
            "globalNetworking": {"enabled": False},
        }


def trial():
    """The cloud that is started by hand."""
    fields = {"boot": 10, "places": ("US-TX-3", "EU-RO-1")}
    return RunpodCloud(
        [
            *gpu("NVIDIA GeForce RTX 4090", price="0.44", memory=24, community="0.31", **fields),
            *gpu("NVIDIA A40", price="0.39", memory=48, **fields),
            *gpu("NVIDIA H100 80GB HBM3", price="2.69", memory=80, **fields),
        ],
        key="trial-key",
    )
