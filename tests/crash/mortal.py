"""Processes of the operator that can be killed at any request, as by kill -9.

A life is one process. All its tasks die in the turn of its death: they run no request any more, neither those under way
nor those of their cleanup. What the other side had already got, it goes on with.
"""

import asyncio
import contextvars
import random
from enum import StrEnum

import msgspec

from forebay.engine.operator import Operator
from forebay.kube.client import Client
from forebay.kube.lease import Terms
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Headers
from forebay.reconcile.snapshot import OperatorRules
from tests.engine.power_world import POWER, SERVER, environment
from tests.net.faults import Faulty

#: Longer terms make fewer requests, each of which is a place to die at; they are in proportion.
TERMS = Terms(duration=15.0, renew_deadline=10.0, retry=5.0)
#: A dead task that still runs after so many cancellations would run for ever.
_MOST_CANCELS = 1000
_STORM = 300

#: On a request that arrives when its sender no longer waits for it, for whoever looks at it there.
LATE = "X-Late"

_LIFE = contextvars.ContextVar("life", default=None)


class Moment(StrEnum):
    """Of a request: when nothing of it has been sent; when it was acted upon and its answer has not come back."""

    BEFORE = "before"
    AFTER = "after"


class Late(msgspec.Struct, frozen=True):
    """The request is under way for so long that its sender has given up when it arrives, and is heeded."""

    seconds: float


class Sent(msgspec.Struct, frozen=True):
    number: int
    at: float
    life: str
    method: str
    url: str

    @property
    def path(self):
        return self.url.partition("?")[0].removeprefix(SERVER)

    @property
    def is_power(self):
        return self.url.startswith(POWER)

    @property
    def is_lease(self):
        return self.path.endswith("/leases/forebay-operator") or self.path.endswith("/leases")

    @property
    def is_watch(self):
        return "watch=true" in self.url

    def __str__(self):
        return f"#{self.number} {self.method} {self.path} of {self.life} at {self.at:.3f} s"


class Ledger:
    """Every request of every life, in one count; and at which of them whoever sends it dies."""

    def __init__(self, deaths=()):
        self.requests = []
        self.died = []
        self.stormed = False
        #: Of the network.
        self.faults = 0
        self._deaths = dict(deaths)

    def storms(self):
        """So many requests in one second are a loop, which on a virtual clock would last for ever."""
        now = asyncio.get_running_loop().time()
        self.stormed = self.stormed or (len(self.requests) > _STORM and self.requests[-_STORM].at > now - 1)
        return self.stormed

    def sent(self, life, request):
        now = asyncio.get_running_loop().time()
        self.requests.append(Sent(len(self.requests) + 1, now, life.name, request.method, request.url))
        return self.requests[-1]

    def dies(self, sent, moment):
        if self._deaths.get(sent.number) is not moment:
            return False
        self.died.append((sent, moment))
        return True


class Life:
    """One process of the operator on a lab, from its start to its death."""

    def __init__(self, world, name, ledger, *, machines, plan=None, rules=None, seed=0, terms=TERMS, **options):
        self.name = name
        self.dead = asyncio.Event()
        self.tasks = set()
        self.operator = None
        self._world = world
        self._ledger = ledger
        self._machines = machines
        self._plan = plan
        self._rules = rules or OperatorRules()
        self._terms = terms
        #: Of the operator.
        self._options = options
        self._rng = random.Random(seed)
        self._wires = []
        self._main = None

    def start(self):
        asyncio.get_running_loop().set_task_factory(_task_of_a_life)
        context = contextvars.copy_context()
        context.run(_LIFE.set, self)
        self._main = asyncio.get_running_loop().create_task(self._run(), name=self.name, context=context)

    async def _run(self):
        client, election = (Client(self._wire(self._world.cluster.handler), SERVER, rng=self._rng) for _ in range(2))
        self.operator = Operator(
            client,
            election,
            SERVER,
            namespace="kube-system",
            identity=self.name,
            clock=clock.now,
            make_transport=lambda _: self._wire(self._world.power.answer),
            environment=environment(self._machines),
            rules=self._rules,
            terms=self._terms,
            rng=self._rng,
            **self._options,
        )
        async with self.operator:
            await self.operator.run()

    def _wire(self, handler):
        wire = InProcess(handler)
        self._wires.append(wire)
        return _Mortal(wire, self, self._ledger, self._plan)

    def die(self):
        if not self.dead.is_set():
            self.dead.set()
            asyncio.get_running_loop().create_task(self._bury(), context=contextvars.Context())

    async def _bury(self):
        for _ in range(_MOST_CANCELS):
            living = [task for task in self.tasks if not task.done()]
            if not living:
                break
            for task in living:
                task.cancel()
            await asyncio.sleep(0)
        else:
            raise AssertionError(f"{self.name} does not die: {living}")
        if not self._main.cancelled() and (error := self._main.exception()) is not None:
            raise error
        # As a server sees the connections of a dead process break.
        for wire in self._wires:
            await wire.close()

    async def over(self):
        """Until it is dead. Raises what ended it, where it ended by itself, which no operator does."""
        dead = asyncio.ensure_future(self.dead.wait())
        try:
            await asyncio.wait({dead, self._main}, return_when=asyncio.FIRST_COMPLETED)
            if not self.dead.is_set():
                self._main.result()
        finally:
            dead.cancel()


def _task_of_a_life(loop, coroutine, **options):
    task = asyncio.Task(coroutine, loop=loop, **options)
    # An empty context, which says "of no life", is false.
    context = options.get("context")
    life = (contextvars.copy_context() if context is None else context).get(_LIFE)
    if life is not None:
        # Held here: nobody else holds a task that waits for an answer that never comes.
        life.tasks.add(task)
        task.add_done_callback(life.tasks.discard)
    return task


class _Mortal:
    def __init__(self, inner, life, ledger, plan):
        self._inner = inner
        self._life = life
        self._ledger = ledger
        self._plan = plan

    async def request(self, request):
        if self._life.dead.is_set():
            await _never()
        if self._ledger.storms():
            await _never()
        sent = self._ledger.sent(self._life, request)
        if self._ledger.dies(sent, Moment.BEFORE):
            self._life.die()
            await _never()
        # The other side is another process: what it does is not of this life, and does not end with it.
        served = asyncio.get_running_loop().create_task(self._serve(request), context=contextvars.Context())
        try:
            answer = await asyncio.shield(served)
        except asyncio.CancelledError:
            served.add_done_callback(_hang_up)
            raise
        finally:
            if self._ledger.dies(sent, Moment.AFTER):
                self._life.die()
            if self._life.dead.is_set():
                served.add_done_callback(_hang_up)
                await _never()
        return answer

    async def _serve(self, request):
        planned = tuple(self._plan(request)) if self._plan is not None else ()
        late = next((fault for fault in planned if isinstance(fault, Late)), None)
        if late is None:
            return await Faulty(self._inner, lambda _: planned).request(request)
        asyncio.get_running_loop().call_later(late.seconds, self._arrives, request, context=contextvars.Context())
        await asyncio.sleep(request.timeouts.total if request.timeouts is not None else late.seconds)
        raise AnswerLost(f"{request}: sent, but no answer in time (injected)", request)

    def _arrives(self, request):
        request = msgspec.structs.replace(request, headers=Headers({**request.headers, LATE: "true"}))
        served = asyncio.get_running_loop().create_task(self._inner.request(request))
        served.add_done_callback(_hang_up)

    async def close(self):
        await self._inner.close()


def _hang_up(served):
    if not served.cancelled() and served.exception() is None:
        asyncio.get_running_loop().create_task(served.result().close(), context=contextvars.Context())


async def _never():
    await asyncio.get_running_loop().create_future()
