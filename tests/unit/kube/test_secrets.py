"""Secrets as the client reads them."""

import base64

import pytest

from forebay.kube.secrets import read_secret
from tests.unit.kube.test_client import Script


@pytest.mark.parametrize("data", [None, {}, {"key": "value"}])
async def test_a_secret_is_read_with_its_version_even_if_it_is_empty(data):
    body = {"metadata": {"name": "s", "namespace": "ns", "resourceVersion": "7"}}
    if data is not None:
        body["data"] = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    server = Script(body)

    found = await read_secret(server.client, "ns", "s")

    assert found == {key: value.encode() for key, value in (data or {}).items()}
    assert found.version == "7"
    assert server.path == "/api/v1/namespaces/ns/secrets/s"
