"""Harness of the provider contract over the server of Compute Engine."""

from contextlib import asynccontextmanager
from typing import ClassVar

from forebay.providers.gcp.auth import GoogleIdentity
from forebay.providers.gcp.calls import GoogleCalls
from forebay.providers.gcp.provider import GcpProvider
from forebay.providers.secrets import Secrets
from tests.contract.providers.cloud_harness import JOIN_SECRET, KEY, CloudHarness
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.gcp.tokens import key_file, private_key


class GcpHarness(CloudHarness):
    name = "gcp"
    secrets = (KEY, JOIN_SECRET, "ya29.planted-token")
    types: ClassVar = {"one": "g2-standard-8", "four": "g2-standard-48", "eight": "g2-standard-96"}
    tells_ends = True
    has_disks = True
    end_operation = "list_operations"

    def server(self):
        seconds = 0.0 if self.sockets else 2.0
        return ComputeEngine(goods(boot=0.05, driver=0, shutdown=0), operation_seconds=seconds, key=KEY, page_size=2)

    @asynccontextmanager
    async def _provider(self, base, wire):
        private_key()
        self.secret_store.held["forebay", "cloud"] = {"key": key_file(KEY, base)}
        async with super()._provider(base, wire):
            yield

    def unpaced(self, context, entry):
        transport = context.make_transport(None)
        secrets = Secrets(context.secrets, context.namespace, context.redactor)
        identity = GoogleIdentity(transport, secrets, entry.credentials_ref, context.clock)
        calls = GoogleCalls(transport, identity, context.redactor, context.clock, entry.endpoint, call_seconds=1.0)
        return GcpProvider(calls, context.cluster, context.clock, entry.regions)

    def is_launch(self, request):
        return request.method == "POST" and "/instances" in request.url
