"""Harness of the provider contract over the conformance server of Lambda Cloud."""

from typing import ClassVar

from msgspec.structs import replace

from forebay.providers.lambdalabs.errors import DIALECT
from forebay.providers.lambdalabs.provider import LambdaProvider
from forebay.providers.secrets import Secrets
from forebay.simulate.market_goods import Sku
from tests.contract.providers.cloud_harness import KEY, CloudHarness
from tests.contract.providers.lambdalabs.server import LambdaCloud


def skus(**fields):
    return [
        Sku(
            instance_type=f"gpu_{count}x_h100",
            gpus=count,
            hourly_price=f"{2.49 * count:.2f}",
            gpu_type="H100",
            gpu_memory_gib=80,
            region=region,
            **{"boot": 0.05, "driver": 0, "shutdown": 0, **fields},
        )
        for count in (1, 4, 8)
        for region in ("us-east-1", "us-west-1")
    ]


class LambdaHarness(CloudHarness):
    name = "lambdalabs"
    path = "/api/v1"
    types: ClassVar = {"one": "gpu_1x_h100", "four": "gpu_4x_h100", "eight": "gpu_8x_h100"}

    def server(self):
        return LambdaCloud(skus(), key=KEY)

    def unpaced(self, context, entry):
        return LambdaProvider(
            context.cluster,
            context.make_transport(None),
            Secrets(context.secrets, context.namespace, context.redactor),
            context.clock,
            entry.credentials_ref,
            entry.endpoint,
            dialect=replace(DIALECT, timeout=1.0),
        )

    def is_launch(self, request):
        return request.url.endswith("/launch")
