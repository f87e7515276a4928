"""Harness of the provider contract over the server of Crusoe."""

from contextlib import asynccontextmanager
from typing import ClassVar

from forebay.providers.crusoe.provider import CrusoeProvider
from forebay.providers.secrets import Secrets
from tests.contract.providers.cloud_harness import JOIN_SECRET, KEY, CloudHarness
from tests.contract.providers.crusoe.server import CrusoeCloud, account_file, goods


class CrusoeHarness(CloudHarness):
    name = "crusoe"
    path = "/v1"
    boot = f"#!/bin/sh\n# join as node-1 with {JOIN_SECRET}\n"
    types: ClassVar = {"one": "l40s-48gb.1x", "four": "a100-80gb.4x", "eight": "h100-80gb-sxm-ib.8x"}
    tells_ends = True
    has_disks = True
    end_operation = "get_operation"

    def server(self):
        seconds = 0.0 if self.sockets else 4.0
        return CrusoeCloud(goods(boot=0.05, driver=0, shutdown=0), operation_seconds=seconds, key=KEY, page_size=2)

    @asynccontextmanager
    async def _provider(self, base, wire):
        self.secret_store.held["forebay", "cloud"] = {"key": account_file(KEY).encode()}
        async with super()._provider(base, wire):
            yield

    def unpaced(self, context, entry):
        return CrusoeProvider(
            entry.endpoint,
            context.cluster,
            context.make_transport(None),
            Secrets(context.secrets, context.namespace, context.redactor),
            entry.credentials_ref,
            context.clock,
            call_seconds=1.0,
        )

    def is_launch(self, request):
        return request.method == "POST"
