"""Harness of the provider contract over the conformance server of Paperspace."""

from typing import ClassVar

from msgspec.structs import replace

from forebay.providers.paperspace.errors import DIALECT
from forebay.providers.paperspace.provider import PaperspaceProvider
from forebay.providers.secrets import Secrets
from forebay.simulate.market_goods import Sku
from tests.contract.providers.cloud_harness import JOIN_SECRET, KEY, CloudHarness
from tests.contract.providers.paperspace.server import Paperspace


def skus(**fields):
    return [
        Sku(
            instance_type=name,
            gpus=count,
            hourly_price=price,
            gpu_type=model,
            region=region,
            **{"boot": 0.05, "driver": 0, "shutdown": 0, "minimum": 0, **fields},
        )
        for name, model, count, price in (
            ("A4000", "A4000", 1, "0.76"),
            ("A4000x4", "A4000", 4, "3.04"),
            ("A100-80Gx8", "A100-80GB", 8, "25.44"),
        )
        for region in ("East Coast (NY2)", "Europe (AMS1)")
    ]


class PaperspaceHarness(CloudHarness):
    name = "paperspace"
    path = "/v1"
    boot = f"#!/bin/sh\n# join as node-1 with {JOIN_SECRET}\n"
    types: ClassVar = {"one": "A4000", "four": "A4000x4", "eight": "A100-80Gx8"}
    tells_ends = True

    def server(self):
        return Paperspace(skus(), key=KEY, shows_deleted=True)

    def unpaced(self, context, entry):
        return PaperspaceProvider(
            context.cluster,
            context.make_transport(None),
            Secrets(context.secrets, context.namespace, context.redactor),
            context.clock,
            entry.credentials_ref,
            entry.endpoint,
            dialect=replace(DIALECT, timeout=1.0),
        )

    def is_launch(self, request):
        return request.method == "POST" and request.url.endswith("/machines")
