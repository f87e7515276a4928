"""Harness of the provider contract: a provider, the simulated world it talks to, and faults in between.

A new provider needs one class here and one entry in `HARNESSES`.
"""

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.providers.base import LaunchRequest
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import build_provider
from forebay.providers.simulated.wire import MarketRefusal
from forebay.simulate import market_faults
from forebay.simulate import power_faults as faults
from forebay.simulate.market import Market
from forebay.simulate.market_faults import MarketFault
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import PowerCall, Powered, PowerWorld
from tests.contract.providers.crusoe.harness import CrusoeHarness
from tests.contract.providers.faults import FakeSecrets, LaunchFault
from tests.contract.providers.gcp.harness import GcpHarness
from tests.contract.providers.lambdalabs.harness import LambdaHarness
from tests.contract.providers.paperspace.harness import PaperspaceHarness
from tests.contract.providers.receiver import KEY, TOKEN, Receiver
from tests.contract.providers.runpod.harness import RunpodHarness
from tests.contract.providers.served import Served
from tests.net.faults import LoseAnswer, LoseRequest, Reset, When


class WebhookHarness(Served):
    """Three machines behind one power API that requires a header and a signature."""

    #: Values that must appear in no error.
    secrets = (TOKEN, KEY, "x-hidden-value-41")

    def __init__(self, *, status=True, sockets=False):
        super().__init__(sockets=sockets)
        self.receiver = Receiver()
        self.world = PowerWorld(
            [
                Powered(name="one", gpus=1, boot=0.05, shutdown=0.0),
                Powered(name="four", gpus=4, boot=0.05, shutdown=0.0),
                Powered(name="eight", gpus=8, boot=0.05, shutdown=0.0),
            ],
            guard=self.receiver,
        )
        self.secret_store = FakeSecrets(
            {
                ("forebay", "headers"): {
                    "Authorization": f"Bearer {TOKEN}\n".encode(),
                    "X-Other": b"x-hidden-value-41",
                },
                ("infra", "signing"): {"key": KEY.encode()},
            }
        )
        self._status = status

    def build(self, base, make_transport):
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
            make_transport=make_transport,
            secrets=self.secret_store,
            namespace="forebay",
            cluster="cluster-1",
            redactor=self.redactor,
            clock=self.receiver.clock,
        )
        entry = Entry(name="webhook", machines=self.machines)
        return build_provider(entry, GPUNodeClassSpec(providers=(entry,)), context)

    async def request(self, uid="uid-1", machine="four", attempt=1):
        offer = next(offer for offer in await self.provider.offers() if offer.instance_type == machine)
        return LaunchRequest(
            uid=uid, name=machine, cluster="cluster-1", offer=offer, node_name=machine, attempt=attempt
        )

    def running(self):
        """Ids of the instances that really run."""
        return self.world.on

    def launch_calls(self):
        return [call for call in self.world.calls if call.asked is PowerCall.ON]

    def inject(self, fault):
        """Makes the next launch fail."""

        def posts(request):
            return request.method == "POST"

        match fault:
            case LaunchFault.BAD_CREDENTIALS:
                self.receiver.refuse_all = True
            case LaunchFault.RATE_LIMITED:
                self._script(faults.refuses(429, headers={"Retry-After": "30"}))
            case LaunchFault.REFUSED:
                self._script(faults.refuses(422, body=b"no such bay"))
            case LaunchFault.SERVER_ERROR:
                self._script(faults.refuses(500, body=f"cannot use {TOKEN}".encode()))
            case LaunchFault.FAILS_AFTER_ACTING:
                self._script(faults.fails_after_acting(502))
            case LaunchFault.UNREACHABLE:
                self.plan = When(posts, Reset())
            case LaunchFault.LOST_REQUEST:
                self.plan = When(posts, LoseRequest())
            case LaunchFault.LOST_ANSWER:
                self.plan = When(posts, LoseAnswer())
            case LaunchFault.SILENCE:
                self._script(faults.silent(acts=True))

    def fail_listing(self):
        for name in self.world.machines:
            self.world.script(name, PowerCall.STATUS, faults.refuses(503))

    def recover(self):
        self.receiver.refuse_all = False

    def _script(self, fault):
        self.world.script("four", PowerCall.ON, fault)


class MarketHarness(Served):
    """A market with three kinds of machines that requires an API key."""

    secrets = (TOKEN,)
    tells_ends = True

    def __init__(self, *, sockets=False):
        super().__init__(sockets=sockets)
        self.world = Market(
            "alpha",
            [
                Sku(instance_type=name, gpus=gpus, hourly_price="1.20", region="west", boot=0.05, driver=0, shutdown=0)
                for name, gpus in (("one", 1), ("four", 4), ("eight", 8))
            ],
            key=TOKEN,
        )

    def build(self, base, make_transport):
        context = ProviderContext(
            make_transport=make_transport,
            secrets=FakeSecrets({("forebay", "market"): {"key": TOKEN.encode()}}),
            namespace="forebay",
            cluster="cluster-1",
            redactor=self.redactor,
        )
        entry = Entry(name="simulated", endpoint=base, credentials_ref=SecretKeyRef(name="market", key="key"))
        return build_provider(entry, GPUNodeClassSpec(providers=(entry,)), context)

    async def request(self, uid="uid-1", machine="four", attempt=1):
        offer = next(offer for offer in await self.provider.offers() if offer.instance_type == machine)
        return LaunchRequest(uid=uid, name=uid, cluster="cluster-1", offer=offer, node_name=uid, attempt=attempt)

    def running(self):
        return self.world.running

    def launch_calls(self):
        return self.world.calls_of(MarketCall.LAUNCH)

    def inject(self, fault):
        """Makes the next launch fail."""

        def posts(request):
            return request.method == "POST"

        match fault:
            case LaunchFault.BAD_CREDENTIALS:
                self.world.key = "another"
            case LaunchFault.RATE_LIMITED:
                self._script(market_faults.rate_limited(30))
            case LaunchFault.REFUSED:
                self._script(MarketFault(status=422))
            case LaunchFault.SERVER_ERROR:
                refusal = msgspec.json.encode(MarketRefusal(message=f"cannot use {TOKEN}"))
                self._script(MarketFault(status=500, body=refusal))
            case LaunchFault.FAILS_AFTER_ACTING:
                self._script(market_faults.server_error(502, acts=True))
            case LaunchFault.UNREACHABLE:
                self.plan = When(posts, Reset())
            case LaunchFault.LOST_REQUEST:
                self.plan = When(posts, LoseRequest())
            case LaunchFault.LOST_ANSWER:
                self.plan = When(posts, LoseAnswer())
            case LaunchFault.SILENCE:
                self._script(market_faults.hangs(acts=True))

    def fail_listing(self):
        self.world.script(MarketCall.LIST, market_faults.server_error(503))

    def recover(self):
        self.world.key = TOKEN

    def _script(self, fault):
        self.world.script(MarketCall.LAUNCH, fault)


HARNESSES = {
    "crusoe": CrusoeHarness,
    "gcp": GcpHarness,
    "lambdalabs": LambdaHarness,
    "paperspace": PaperspaceHarness,
    "runpod": RunpodHarness,
    "simulated": MarketHarness,
    "webhook": WebhookHarness,
}
