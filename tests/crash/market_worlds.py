"""Worlds with rented machines: markets, pods that come over time, what goes wrong, when the operator dies."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace

import msgspec
from msgspec.structs import replace

from forebay.embedded.api.kinds import NODE_KIND, POD_KIND, SECRET_KIND
from forebay.engine.ledger.ledger_reader import read_ledgers
from forebay.kube.client import Client
from forebay.kube.decoders import DELETED
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.tailnets.server import TailscaleServer
from tests.crash.market_listings import too_short_lived, unseen_seconds
from tests.crash.mortal import Ledger, Life
from tests.crash.rest import WorldOutcome, run_world
from tests.crash.worlds import Work
from tests.engine.container_world import VIRTUAL_NODE, BoundContainers, VirtualNode
from tests.engine.group_world import KIND as NODE_PROVISIONER
from tests.engine.market_world import WEB_NODE, clouds, market, run_daemonset
from tests.engine.power_world import SERVER
from tests.engine.tailnet_world import TailnetMachines, tailnet_of

_LOOK = 5.0
#: Longer than the least that is billed.
_AFTERWARDS = 130.0
_RESTART = 2.0
_FIRST_ERROR = 400

#: Every machine gets a bootstrap token of its own.
JOINS = {"cloudInit": {"template": "#cloud-config\n# join as {{.NodeName}} with {{.BootstrapToken}}\n"}}


class MarketScenario(msgspec.Struct, frozen=True, kw_only=True):
    skus: dict[str, tuple[Sku, ...]] = {}
    #: Clouds instead of markets of these goods: each gets the kubelets.
    clouds: tuple[Callable, ...] = ()
    #: How machines join.
    joins: dict = msgspec.field(default_factory=lambda: JOINS)
    #: Machines enter a tailnet first; scripts what goes wrong there, and gets its server.
    tailnet: Callable | None = None
    work: tuple[Work, ...] = ()
    #: The cpu that each pod of `work` requests. Where it is set, a DaemonSet takes 12 of the 32 of each machine.
    pod_cpu: str | None = None
    #: Machines at the same time, of those that Forebay ordered. Default: for each work two, of which one is leaving.
    most: int | None = None
    #: Work of pods that run in containers of the first market.
    remote: tuple[Work, ...] = ()
    #: Options of every market.
    options: dict = {}
    #: Scripts what goes wrong; gets the cloud.
    script: Callable | None = None
    #: Scripts what goes wrong later: seconds, and what gets the cloud.
    later: tuple[tuple[float, Callable], ...] = ()
    #: The market makes mistakes that cost: two machines for one order.
    rents_twice: bool = False
    #: Configures what serves the pods, in place of pools; gets the cloud.
    configure: Callable | None = None
    #: Seconds by which the end of any machine may be noticed late, with rounding: its cloud does not tell when it was.
    seen_late: int = 0
    seed: int = 7


class MarketOutcome(WorldOutcome):
    """What has come of it, and the laws that only the end can show."""

    def __init__(self, scenario, cloud, ledger, virtual_node=None, tailnet=None):
        super().__init__(scenario, cloud.world, ledger, None)
        self.cloud = cloud
        self.virtual_node = virtual_node
        self.tailnet = tailnet
        self.done = set()
        self.stored = None
        self.errors = []
        #: When pods ran, by their node.
        self.ran = defaultdict(list)
        # A pod is collected with the node on which it ended.
        cloud.store.subscribe(POD_KIND, self._pod_changed)

    def _pod_changed(self, change):
        self._note_running(change.new, deleted=change.type == DELETED)
        name = (change.new["metadata"].get("labels") or {}).get("work")
        if name is not None and (change.new.get("status") or {}).get("phase") == "Succeeded":
            self.done.add(name)

    def _note_running(self, pod, *, deleted):
        """Remembers since when, and until when, each pod runs on its node."""
        node, phase = pod["spec"].get("nodeName"), (pod.get("status") or {}).get("phase")
        uid, now = pod["metadata"]["uid"], clock.now()
        spans = self.ran[node]
        known = next((each for each in spans if each[0] == uid), None)
        if node is not None and phase == "Running" and known is None and not deleted:
            spans.append([uid, now, None])
        elif known is not None and (deleted or phase in {"Succeeded", "Failed"}):
            known[2] = known[2] or now

    @property
    def rented(self):
        return [each for market in self.cloud.markets.values() for each in market.instances.values()]

    def tokens(self):
        secrets = self.cloud.store.list(SECRET_KIND, "kube-system")
        names = (each["metadata"]["name"] for each in secrets)
        return [name for name in names if name.startswith("bootstrap-token-")]

    def left_behind(self):
        """What clouds and tailnets have beside machines: keys, scripts, devices."""
        others = [getattr(market, "others", {}) for market in self.cloud.markets.values()]
        if self.tailnet is not None:
            others.append({"tailnet keys": self.tailnet.keys, "tailnet devices": self.tailnet.devices})
        return [f"{kind}: {sorted(items)}" for each in others for kind, items in each.items() if items]

    def nodes(self):
        names = (each["metadata"]["name"] for each in self.cloud.store.list(NODE_KIND))
        return [name for name in names if name not in {VIRTUAL_NODE, WEB_NODE}]

    def waiting(self):
        ended = set() if self.virtual_node is None else self.virtual_node.ended.keys()
        remote = {work.name for work in self.scenario.remote}
        return ({work.name for work in self.scenario.work} - self.done) | (remote - ended)

    def at_rest(self):
        return (
            not self.waiting()
            and not self.cloud.running
            and not self.tokens()
            and not self.nodes()
            and not self.left_behind()
            and all(state == "Gone" for state in self.world.states().values())
        )

    def breaches(self):
        yield from self.errors
        if self.quiet_at is None:
            rented, states = sorted(self.cloud.running), self.world.states()
            yield f"no rest: {sorted(self.waiting())} not served, {rented} rented, {states}"
        if nodes := self.nodes():
            yield f"nodes left behind: {nodes}"
        if self.tokens():
            yield f"left behind: {self.tokens()}"
        yield from (f"left behind: {each}" for each in self.left_behind())
        for each in self.cloud.markets.values():
            yield from getattr(each, "violations", ())
        yield from self._bought_twice()
        yield from self._too_many_bought()
        yield from self._used_nodes_deleted()
        yield from self._run_twice()
        if self.quiet_at is not None:
            yield from self._miscounted("records", self.cloud.ledger())
            yield from self._miscounted("stored ledgers", self.stored)
        yield from self._too_many_calls()

    def _too_many_calls(self):
        """Requests to Kubernetes, and calls to markets.

        A start lists 15 kinds, and reports on each market's class and pool: what is listed, offered and checked comes
        one after the other. A record is created, walks through its
        states, gets and loses its join credential, and each transition is told to the record, its pool and its pods.
        A market is listed every two seconds at the most, while a launch or an end waits for what the listing says.
        A call that fails is told and repeated, as is one that the network loses; a launch begins with a listing.
        """
        markets, records = len(self.cloud.markets), len(self.cloud.records)
        starts, changes = 1 + len(self.ledger.died), len(self.scenario.later)
        faults = 8 * (self.ledger.faults + self._failed_calls())
        kube = 30 * starts + 22 * markets + 75 * records + 60 * changes * markets + faults
        if self.cloud.store.list(self.cloud.store.kinds.named(*NODE_PROVISIONER)):
            # A NodeProvisioner reports each change of its sizes, and its nodes are labelled, tainted and untainted.
            kube += 15 * records + 20 * starts
        if self.tailnet is not None:
            # The Secret of the OAuth client, and what is noted of keys and devices. After a failed join the Secret is
            # read every ten seconds: it may have been corrected.
            kube += 15 * records + 60
        yield from self.too_many_requests(kube, lambda sent: sent.url.startswith(SERVER) and not sent.is_lease)
        calls = (310 + 20 + 20) * markets + 10 * records + 8 * starts + faults
        if self.tailnet is not None:
            # A token, a key with its listing, and looks for the device, for each launch and each end.
            calls += 60 * records + 20 * starts
        yield from self.too_many_requests(calls, lambda sent: not sent.url.startswith(SERVER))

    def _failed_calls(self):
        acts = (MarketCall.LAUNCH, MarketCall.TERMINATE, MarketCall.LIST)
        calls = (call for each in self.cloud.markets.values() for act in acts for call in each.calls_of(act))
        return sum(call.status is None or call.status >= _FIRST_ERROR for call in calls)

    def _used_nodes_deleted(self):
        for group in (group for each in self.cloud.markets.values() for group in each.groups.values()):
            for at, name in group.shrunk:
                if any(since <= at and (until is None or at < until) for _, since, until in self.ran[name]):
                    yield f"{name} of {group.name} was deleted under a pod"

    def _bought_twice(self):
        if self.scenario.rents_twice:
            return
        by_owner = {}
        for each in sorted(self.rented, key=lambda each: each.line.created):
            # A member of a group is known by its name.
            owner = each.order.owner or each.order.name
            before = by_owner.get(owner)
            if before is not None and (before.line.ended is None or before.line.ended > each.line.created):
                yield f"bought twice: {before.id} and {each.id} for {each.order.name}"
            by_owner[owner] = each

    def _too_many_bought(self):
        """Whatever goes wrong, nothing is bought for pods that have a machine already, or one on its way."""
        most = self.scenario.most
        allowed = 2 * len(self.scenario.work) + 2 * len(self.scenario.remote) if most is None else most
        ordered = [each.line for each in self.rented if each.order.owner in self.cloud.records]
        for line in ordered if not self.scenario.rents_twice else ():
            others = (each for each in ordered if each.created <= line.created)
            there = sum(each.ended is None or each.ended > line.created for each in others)
            if there > allowed:
                yield f"{there} machines at {line.created:%H:%M:%S}, where {allowed} should do"
                return

    def _run_twice(self):
        """Containers of one pod at the same time, whatever records they are of."""
        by_pod = defaultdict(list)
        for each in sorted(self.rented, key=lambda each: each.line.created):
            record = self.cloud.records.get(each.order.owner)
            if each.order.container is not None and record is not None:
                by_pod[record["spec"]["pods"][0]["name"]].append(each)
        for pod, containers in by_pod.items():
            for before, after in pairwise(containers):
                if self.scenario.rents_twice and before.order.owner == after.order.owner:
                    continue
                if before.line.ended is None or before.line.ended > after.line.created:
                    yield f"run twice: {before.id} and {after.id} for pod {pod}"

    def _miscounted(self, what, ours):
        """To the cent; but of instances whose end the market does not tell, only listings can show it.

        One that the market told of in no answer gets a record when listings have shown it for a minute: what vanished
        sooner is in no ledger.
        """
        theirs = self.cloud.bill()
        # The id of a member of a group is GROUP/NAME.
        ids = ((each.get("status") or {}).get("instanceID") or "" for each in self.cloud.records.values())
        told = {part for each in ids for part in (each, each.rpartition("/")[2])}
        unseen = Fraction(0)
        start = clock.now() - timedelta(seconds=asyncio.get_running_loop().time())
        deaths = sorted(start + timedelta(seconds=sent.at) for sent, _ in self.ledger.died)
        for place in self.cloud.markets.values():
            for each in (each for each in place.instances.values() if each.traceless):
                late = unseen_seconds(place, each) * (1 + len(self.ledger.died))
                linear = Fraction(each.line.tariff.hourly_price) * Fraction(late) / 3600
                # By the increments of its tariff, a second too long may cost a minute.
                ended = (each.line.ended or clock.now()) + timedelta(seconds=late)
                unseen += max(
                    linear, replace(each.line, ended=ended).dollars(clock.now()) - each.line.dollars(clock.now())
                )
                if not {each.id, each.node_name} & told and too_short_lived(place, each, deaths):
                    theirs -= each.line.dollars(clock.now())
        hourly = sum((Fraction(each.line.tariff.hourly_price) for each in self.rented), Fraction(0))
        unseen += hourly / 3600 * self.scenario.seen_late * (1 + len(self.ledger.died))
        if not theirs <= ours <= theirs + unseen:
            yield f"{what} come to {float(ours):.6f} $, the markets' bill to {float(theirs):.6f} $"


def rents(scenario, deaths=()):
    """Runs the world to its rest. The outcome, whose `found` breaches should be none."""
    return run_world(_rents(scenario, deaths))


async def _rents(scenario, deaths):
    makers = scenario.clouds or [market(name, *skus, **scenario.options) for name, skus in scenario.skus.items()]
    tailnet = None
    if scenario.tailnet is not None:
        tailnet = TailscaleServer()
        makers = [lambda nodes, make=make: make(TailnetMachines(nodes, tailnet)) for make in makers]
    async with clouds(*makers, seed=scenario.seed, events=False) as cloud:
        if tailnet is not None:
            tailnet_of(cloud, tailnet)
            scenario.tailnet(tailnet)
        if scenario.pod_cpu is not None:
            run_daemonset(cloud, "12")
        if scenario.configure is not None:
            scenario.configure(cloud)
        for name in cloud.markets if scenario.configure is None else ():
            cloud.pool(name, **scenario.joins, instanceRequirements={"spotAllowed": True})
        if scenario.script is not None:
            scenario.script(cloud)
        ledger = Ledger(deaths)
        virtual_node = None
        if scenario.remote:
            name, skus = next(iter(scenario.skus.items()))
            virtual_node = VirtualNode(cloud, *(each for each in skus if not each.delivers.has_node), market=name)
        outcome = MarketOutcome(scenario, cloud, ledger, virtual_node, tailnet)
        submitting = _submit(scenario, cloud, virtual_node)
        tasks = [asyncio.create_task(each) for each in (submitting, _weather(scenario, cloud))]
        keeper = asyncio.create_task(_keep_alive(scenario, cloud, ledger))
        try:
            loop = asyncio.get_running_loop()
            while not (outcome.over or (tasks[0].done() and tasks[1].done() and outcome.at_rest())):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK)
            if outcome.at_rest():
                rented = len(outcome.rented)
                await asyncio.sleep(_AFTERWARDS)
                if outcome.at_rest() and len(outcome.rented) == rented:
                    outcome.quiet_at = loop.time() - _AFTERWARDS
            outcome.stored = await _stored_costs(cloud)
        finally:
            for task in (keeper, *tasks):
                task.cancel()
            ended = await asyncio.gather(keeper, *tasks, return_exceptions=True)
        outcome.errors += [f"ended by itself: {each!r}" for each in ended if isinstance(each, Exception)]
        outcome.found = tuple(outcome.breaches())
        return outcome


async def _stored_costs(cloud):
    """Dollars in the ledgers that the operator has stored."""
    client = Client(InProcess(cloud.world.cluster.handler), SERVER)
    reading = await read_ledgers(client, "kube-system", (), clock.now())
    await client.close()
    return sum((each.amount.dollars for each in reading.bill.costs(clock.now()).values()), Fraction(0))


async def _submit(scenario, cloud, virtual_node):
    loop = asyncio.get_running_loop()
    for work in sorted((*scenario.work, *scenario.remote), key=lambda each: each.at):
        await asyncio.sleep(max(0.0, work.at - loop.time()))
        if work in scenario.remote:
            virtual_node.pod(work.name, runs=f"{work.runs:g}s")
        else:
            runs, labels = f"{work.runs:g}s", {"work": work.name}
            cloud.world.job(work.name, work.gpus, runs=runs, labels=labels, cpu=scenario.pod_cpu)


async def _weather(scenario, cloud):
    loop = asyncio.get_running_loop()
    for at, happens in scenario.later:
        await asyncio.sleep(max(0.0, at - loop.time()))
        happens(cloud)


async def _keep_alive(scenario, cloud, ledger):
    world = SimpleNamespace(cluster=cloud.world.cluster, power=SimpleNamespace(answer=cloud.answer))
    options = {"container_specs": BoundContainers} if scenario.remote else {}
    for incarnation in range(1_000):
        life = Life(world, f"replica-{incarnation}", ledger, machines=(), seed=scenario.seed + incarnation, **options)
        life.start()
        try:
            await life.over()
        finally:
            life.die()
        await asyncio.sleep(_RESTART)
