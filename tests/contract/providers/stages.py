"""What the promises of `providers/base.py` are tried on: a provider, the world it talks to, and faults in between.

A stage for a new provider is one class and one entry in `STAGES`.
"""

from contextlib import asynccontextmanager
from enum import StrEnum

from msgspec.structs import replace

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.api.providers import ProviderName
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.faults import Faulty, LoseAnswer, LoseRequest, Reset, When
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from forebay.providers.base import LaunchRequest
from forebay.providers.registry import ProviderContext, build_provider
from forebay.providers.secrets import UnusableSecret
from forebay.simulate import power_faults as faults
from forebay.simulate.power import PowerCall, Powered, PowerWorld
from tests.contract.providers.receiver import KEY, TOKEN, Receiver


class Trouble(StrEnum):
    """What goes wrong with the next launch."""

    BAD_CREDENTIALS = "the credentials are refused"
    RATE_LIMITED = "it asks for fewer requests"
    REFUSED = "it refuses the request"
    SERVER_ERROR = "it fails"
    FAILS_AFTER_ACTING = "it acts and then fails"
    UNREACHABLE = "nothing can be sent"
    LOST_REQUEST = "the request is lost on its way"
    LOST_ANSWER = "the answer is lost on its way"
    SILENCE = "no answer comes in time"


class Vault:
    """The Secrets of a cluster."""

    def __init__(self, held):
        self.held = held
        self.reads = 0

    async def get(self, namespace, name):
        self.reads += 1
        if (namespace, name) not in self.held:
            raise UnusableSecret(f"there is no Secret {namespace}/{name}: create it")
        return dict(self.held[namespace, name])


class WebhookStage:
    """Three machines behind one power API that wants a header and a signature."""

    #: Whatever must not be seen anywhere.
    secrets = (TOKEN, KEY, "x-hidden-value-41")

    def __init__(self, *, status=True, sockets=False):
        self.receiver = Receiver()
        self.world = PowerWorld(
            [
                Powered(name="one", gpus=1, boot=0.05, shutdown=0.0),
                Powered(name="four", gpus=4, boot=0.05, shutdown=0.0),
                Powered(name="eight", gpus=8, boot=0.05, shutdown=0.0),
            ],
            guard=self.receiver,
        )
        self.vault = Vault(
            {
                ("forebay", "headers"): {
                    "Authorization": f"Bearer {TOKEN}\n".encode(),
                    "X-Other": b"x-hidden-value-41",
                },
                ("infra", "signing"): {"key": KEY.encode()},
            }
        )
        self.redactor = Redactor()
        self.plan = When(lambda _: False, Reset())
        self.sockets = sockets
        self._status = status

    @asynccontextmanager
    async def open(self):
        if self.sockets:
            async with serving(self.world.answer) as base, self._provider(base, AiohttpTransport()):
                yield self
        else:
            async with self._provider("http://power-api", InProcess(self.world.answer)):
                yield self
        self.world.stop()

    @asynccontextmanager
    async def _provider(self, base, wire):
        self.machines = tuple(
            replace(
                machine,
                headers_secret_ref=SecretRef(name="headers"),
                hmac_secret_ref=SecretKeyRef(name="signing", key="key", namespace="infra"),
                timeout="1s" if self.sockets else "5s",
            )
            for machine in self.world.configured(base, status=self._status)
        )
        context = ProviderContext(
            make_transport=lambda _tls: Faulty(wire, self._faults),
            secrets=self.vault,
            namespace="forebay",
            cluster="cluster-1",
            redactor=self.redactor,
            clock=self.receiver.clock,
        )
        self.provider = build_provider(Entry(name=ProviderName.WEBHOOK, machines=self.machines), context)
        try:
            yield
        finally:
            await self.provider.close()

    async def request(self, uid="uid-1", machine="four", attempt=1):
        offer = next(offer for offer in await self.provider.offers() if offer.instance_type == machine)
        return LaunchRequest(
            uid=uid, name=machine, cluster="cluster-1", offer=offer, node_name=machine, attempt=attempt
        )

    def _faults(self, request):
        return self.plan(request)

    def truth(self):
        """Ids of what really runs."""
        return self.world.on

    def launch_calls(self):
        return [call for call in self.world.calls if call.asked is PowerCall.ON]

    def trouble(self, trouble):
        """With the next launch."""

        def posts(request):
            return request.method == "POST"

        match trouble:
            case Trouble.BAD_CREDENTIALS:
                self.receiver.refuse_all = True
            case Trouble.RATE_LIMITED:
                self._script(faults.refuses(429, headers={"Retry-After": "30"}))
            case Trouble.REFUSED:
                self._script(faults.refuses(422, body=b"no such bay"))
            case Trouble.SERVER_ERROR:
                self._script(faults.refuses(500, body=f"cannot use {TOKEN}".encode()))
            case Trouble.FAILS_AFTER_ACTING:
                self._script(faults.fails_after_acting(502))
            case Trouble.UNREACHABLE:
                self.plan = When(posts, Reset())
            case Trouble.LOST_REQUEST:
                self.plan = When(posts, LoseRequest())
            case Trouble.LOST_ANSWER:
                self.plan = When(posts, LoseAnswer())
            case Trouble.SILENCE:
                self._script(faults.silent(acts=True))

    def trouble_with_listing(self):
        for name in self.world.machines:
            self.world.script(name, PowerCall.STATUS, faults.refuses(503))

    def recover(self):
        self.receiver.refuse_all = False

    def _script(self, fault):
        self.world.script("four", PowerCall.ON, fault)


STAGES = {"webhook": WebhookStage}
