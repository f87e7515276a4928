"""Harness of the provider contract over the conformance server of RunPod."""

from typing import ClassVar

from msgspec.structs import replace

from forebay.model.containers import ContainerSpec
from forebay.model.secret_text import SecretText
from forebay.providers.runpod.errors import DIALECT
from forebay.providers.runpod.provider import RunpodProvider
from forebay.providers.secrets import Secrets
from tests.contract.providers.cloud_harness import JOIN_SECRET, KEY, CloudHarness
from tests.contract.providers.runpod.server import RunpodCloud, gpu

A40 = "NVIDIA A40"
RTX = "NVIDIA GeForce RTX 4090"
AMD = "AMD Instinct MI300X OAM"
CONTAINER = ContainerSpec(image="example.test/train:1", secret_env={"TOKEN": SecretText(JOIN_SECRET)})


def skus(**fields):
    return [
        *gpu(RTX, price="0.44", memory=24, places=("US-TX-3", "EU-RO-1"), **fields),
        *gpu(A40, price="0.39", memory=48, counts=(1, 2), **fields),
        *gpu(AMD, price="2.49", memory=192, counts=(1,), **fields),
    ]


class RunpodHarness(CloudHarness):
    name = "runpod"
    types: ClassVar = {"one": RTX, "four": f"4x {RTX}", "eight": f"8x {RTX}"}

    def __init__(self, *, sockets=False, **options):
        self.options = options
        super().__init__(sockets=sockets)

    def server(self):
        return RunpodCloud(skus(), key=KEY, **self.options)

    def unpaced(self, context, entry):
        return RunpodProvider(
            context.cluster,
            context.make_transport(None),
            Secrets(context.secrets, context.namespace, context.redactor),
            context.clock,
            entry.credentials_ref,
            entry.endpoint,
            entry.regions,
            dialect=replace(DIALECT, timeout=1.0),
        )

    def is_launch(self, request):
        return request.method == "POST"

    async def request(self, uid="uid-1", machine="four", attempt=1, container=CONTAINER):
        made = await super().request(uid, machine, attempt)
        return replace(made, boot=None, node_name="", container=container)
