"""What Forebay asks of Tailscale is what Tailscale publishes."""

import pytest
import yaml

from forebay.bootstrap.tailscale import AUTH_KEY
from tests.contract.tailnets import server as conformance
from tests.contract.tailnets.server import TailscaleServer
from tests.contract.tailnets.test_tailscale import RECORD, Tailnet
from tests.needs import SPECS

pytestmark = pytest.mark.specs


async def test_every_request_is_one_of_the_published_operations():
    published = yaml.safe_load((SPECS / "tailscale/tailscale-v2-subset.openapi.yaml").read_text())
    server = TailscaleServer(descriptions_listed=False)
    tailnet = Tailnet(server)
    made = await tailnet.key()
    server.joins(made.values[AUTH_KEY], "gpu-1")
    await tailnet.keys.revoke(tailnet.keys.planned(RECORD, 1))
    await tailnet.devices.revoke(tailnet.devices.planned(RECORD, 1))

    operations = {
        (method.upper(), tuple(path.strip("/").split("/")))
        for path, methods in published["paths"].items()
        for method in methods
    }
    for method, path in server.calls:
        parts = path.strip("/").split("/")
        assert any(
            method == known
            and len(parts) == len(shape)
            and all(a == b or b[0] == "{" for a, b in zip(parts, shape, strict=True))
            for known, shape in operations
        ), (method, path)


def test_the_conformance_server_takes_no_field_that_is_not_published():
    published = yaml.safe_load((SPECS / "tailscale/tailscale-v2-subset.openapi.yaml").read_text())["components"]
    schemas = published["schemas"]
    assert set(conformance._CreateKey.__struct_encode_fields__) <= set(schemas["CreateKeyRequest"]["properties"])
    create = schemas["KeyCapabilities"]["properties"]["devices"]["properties"]["create"]["properties"]
    assert set(conformance._Create.__struct_encode_fields__) <= set(create)
    assert schemas["CreateKeyRequest"]["properties"]["description"]["maxLength"] == 50
    shown = {"id", "nodeId", "hostname", "tags", "name", "isEphemeral"}
    assert shown <= set(schemas["Device"]["properties"])
