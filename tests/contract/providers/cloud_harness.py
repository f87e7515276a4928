"""Harness of the provider contract over a conformance server."""

from contextlib import asynccontextmanager
from typing import ClassVar

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.joining import CloudInit
from forebay.api.parts import SecretKeyRef
from forebay.model.secret_text import SecretText
from forebay.providers.base import BootKind, BootPayload, LaunchRequest
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import build_provider
from forebay.simulate import market_faults
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.faults import FakeSecrets, LaunchFault
from tests.contract.providers.served import Served
from tests.net.faults import LoseAnswer, LoseRequest, Reset, When

CLUSTER = "3c3f1a52-0c57-4a5e-9d7e-6b1f0a6f3c11"
KEY = "planted-api-key-9c1d"
JOIN_SECRET = "abcdef.0123456789abcdef"
BOOT = f"#cloud-config\n# join as node-1 with {JOIN_SECRET}\n"


class CloudHarness(Served):
    """A conformance server with three kinds of machines. Subclasses say which one, and how to reach it."""

    #: Name of the provider.
    name = ""
    secrets = (KEY, JOIN_SECRET)
    #: What the machines run.
    boot = BOOT
    #: Path of the API under the server's base URL.
    path = ""
    #: Machine types with 1, 4 and 8 GPUs.
    types: ClassVar = {"one": "one", "four": "four", "eight": "eight"}

    def server(self):
        """A conformance server that accepts KEY."""
        raise NotImplementedError

    def unpaced(self, context, entry):
        """The provider over a real socket: without pauses between requests, and with timeouts of a second."""
        raise NotImplementedError

    def is_launch(self, request):
        """Whether the request launches a machine."""
        raise NotImplementedError

    def __init__(self, *, sockets=False):
        super().__init__(sockets=sockets)
        self.world = self.server()
        self._offers = ()
        self.secret_store = FakeSecrets({("forebay", "cloud"): {"key": KEY.encode()}})

    @asynccontextmanager
    async def open(self):
        async with super().open():
            yield self
        assert self.world.violations == []

    def build(self, base, make_transport):
        context = ProviderContext(
            make_transport=make_transport,
            secrets=self.secret_store,
            namespace="forebay",
            cluster=CLUSTER,
            redactor=self.redactor,
        )
        entry = Entry(name=self.name, endpoint=base + self.path, credentials_ref=SecretKeyRef(name="cloud", key="key"))
        spec = GPUNodeClassSpec(providers=(entry,), cloud_init=CloudInit(template=self.boot))
        return self.unpaced(context, entry) if self.sockets else build_provider(entry, spec, context)

    async def request(self, uid="uid-1", machine="four", attempt=1):
        self._offers = self._offers or await self.provider.offers()
        offer = next(each for each in self._offers if each.instance_type == self.types[machine])
        return LaunchRequest(
            uid=uid,
            name=f"gpu-{uid}",
            cluster=CLUSTER,
            offer=offer,
            node_name=f"gpu-{uid}",
            attempt=attempt,
            boot=BootPayload(kind=BootKind.CLOUD_INIT, text=SecretText(self.boot)),
        )

    def running(self):
        return self.world.running

    def launch_calls(self):
        return self.world.calls_of(MarketCall.LAUNCH)

    def inject(self, fault):
        """Makes the next launch fail."""
        match fault:
            case LaunchFault.BAD_CREDENTIALS:
                self.world.key = "another"
            case LaunchFault.RATE_LIMITED:
                self._script(self.world.rate_limited(30))
            case LaunchFault.REFUSED:
                self._script(self.world.refusal(400, "no such bay"))
            case LaunchFault.SERVER_ERROR:
                self._script(self.world.refusal(500, f"cannot use {KEY}"))
            case LaunchFault.FAILS_AFTER_ACTING:
                self._script(market_faults.server_error(502, acts=True))
            case LaunchFault.UNREACHABLE:
                self.plan = When(self.is_launch, Reset())
            case LaunchFault.LOST_REQUEST:
                self.plan = When(self.is_launch, LoseRequest())
            case LaunchFault.LOST_ANSWER:
                self.plan = When(self.is_launch, LoseAnswer())
            case LaunchFault.SILENCE:
                self._script(market_faults.hangs(acts=True))

    def fail_listing(self):
        # Twice: a provider may ask again at once.
        for _ in range(2):
            self.world.script(MarketCall.LIST, market_faults.server_error(503))

    def recover(self):
        self.world.key = KEY

    def _script(self, fault):
        self.world.script(MarketCall.LAUNCH, fault)
