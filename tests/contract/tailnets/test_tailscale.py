"""Keys and devices at Tailscale: one key per machine, found again by its name, and nothing left behind."""

from datetime import timedelta

import pytest

from forebay.bootstrap.tailscale import AUTH_KEY
from forebay.join.base import JoinError, JoinRejected
from forebay.join.tailnets.base import TailnetClient
from forebay.join.tailnets.tailscale import TailscaleTailnet
from forebay.join.tailscale_credentials import TailscaleDevices, TailscaleKeys
from forebay.model.secret_text import SecretText
from forebay.net import clock
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from tests.contract.tailnets.server import CLIENT, TailscaleServer
from tests.joining import TAILSCALE, joining_record, spec_of

RECORD = joining_record()
KEYS = "/tailnet/-/keys"


class Tailnet:
    """Forebay's side of a tailnet."""

    def __init__(self, server, *, transport=None, api="https://api.tailscale.com/api/v2", client=CLIENT, **fields):
        self.server, self.redactor = server, Redactor()
        config = spec_of(tailscaleConfig={**TAILSCALE, "tags": ["tag:k8s", "tag:gpu"], **fields}).tailscale_config
        tailnet = TailscaleTailnet(transport or InProcess(server.answer), self.redactor, clock.now, api=api)

        async def read():
            return TailnetClient(id=client[0], secret=SecretText(client[1]))

        self.keys, self.devices = (each(tailnet, config, read) for each in (TailscaleKeys, TailscaleDevices))

    async def key(self, attempt=1):
        return await self.keys.make(RECORD, self.keys.planned(RECORD, attempt))


async def test_a_key_works_once_needs_no_approval_expires_soon_and_has_the_tags():
    server = TailscaleServer()
    made = await Tailnet(server).key()
    (key,) = server.keys.values()
    create = key["create"]
    assert (create.reusable, create.ephemeral, create.preauthorized) == (False, True, True)
    assert create.tags == ["tag:gpu", "tag:k8s"]
    assert key["expires"] - clock.now() <= timedelta(hours=1)
    assert made.resource.id == key["id"]
    assert made.values == {AUTH_KEY: key["key"]}
    assert key["key"] not in repr(made)
    assert server.joins(made.values[AUTH_KEY], "gpu-1").startswith("n")
    assert server.joins(made.values[AUTH_KEY], "gpu-1") == "authkey already used"


async def test_a_class_can_have_devices_that_stay():
    server = TailscaleServer()
    await Tailnet(server, ephemeral=False).key()
    assert not next(iter(server.keys.values()))["create"].ephemeral


async def test_each_launch_call_has_a_key_of_its_own_and_the_same_call_always_the_same_name():
    tailnet = Tailnet(TailscaleServer())
    first, again, second = (tailnet.keys.planned(RECORD, attempt) for attempt in (1, 1, 2))
    assert first == again
    assert first.name != second.name


@pytest.mark.parametrize("descriptions_listed", [True, False])
async def test_after_a_lost_answer_the_key_is_found_by_its_name_and_revoked(descriptions_listed):
    server = TailscaleServer(descriptions_listed=descriptions_listed)
    tailnet = Tailnet(server)
    server.fail("POST", KEYS, "lost")
    with pytest.raises(JoinError):
        await tailnet.key()
    assert len(server.keys) == 1
    await tailnet.key(attempt=2)
    await tailnet.keys.revoke(tailnet.keys.planned(RECORD, 1))
    (left,) = server.keys.values()
    assert left["description"] == tailnet.keys.planned(RECORD, 2).name


async def test_revoking_a_key_twice_or_one_that_was_never_made_does_no_harm():
    server = TailscaleServer()
    tailnet = Tailnet(server)
    made = await tailnet.key()
    for _ in range(2):
        await tailnet.keys.revoke(made.resource)
    await tailnet.keys.revoke(tailnet.keys.planned(RECORD, 7))
    assert server.keys == {}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_list_that_fails_is_never_an_empty_one(status):
    server = TailscaleServer()
    tailnet = Tailnet(server)
    await tailnet.key()
    server.fail("GET", KEYS, status)
    with pytest.raises(JoinError):
        await tailnet.keys.revoke(tailnet.keys.planned(RECORD, 1))
    server.fail("GET", "/tailnet/-/devices", status)
    with pytest.raises(JoinError):
        await tailnet.devices.revoke(tailnet.devices.planned(RECORD, 1))
    assert len(server.keys) == 1


async def test_a_token_is_kept_for_its_hour_and_replaced_when_it_is_refused():
    server = TailscaleServer()
    tailnet = Tailnet(server)
    await tailnet.key()
    await tailnet.key(attempt=2)
    assert server.calls.count(("POST", "/oauth/token")) == 1
    server.fail("POST", KEYS, "expired")
    await tailnet.key(attempt=3)
    assert server.calls.count(("POST", "/oauth/token")) == 2


async def test_a_wrong_client_is_a_mistake_of_the_secret_and_no_secret_is_said():
    with pytest.raises(JoinRejected) as caught:
        await Tailnet(TailscaleServer(), client=("k-client", "tskey-client-wrong")).key()
    assert "the OAuth client must exist, have the scopes auth_keys and devices:core" in str(caught.value)
    assert "tskey" not in str(caught.value)


async def test_tags_that_the_client_does_not_own_are_refused_with_tailscale_s_own_words():
    with pytest.raises(JoinRejected, match="requested tags are invalid or not permitted"):
        await Tailnet(TailscaleServer(owned_tags=("tag:other",))).key()


async def test_a_device_is_tied_to_its_record_and_deleted_with_its_machine():
    server = TailscaleServer()
    tailnet = Tailnet(server)
    made = await tailnet.key()
    planned = tailnet.devices.planned(RECORD, 1)
    assert await tailnet.devices.found(planned) == planned, "the machine has not booted"
    node = server.joins(made.values[AUTH_KEY], "gpu-1")
    tied = await tailnet.devices.found(planned)
    assert tied.id == node
    for _ in range(2):
        await tailnet.devices.revoke(tied)
    assert server.devices == {}


async def test_devices_of_others_are_left_alone():
    server = TailscaleServer()
    tailnet = Tailnet(server)
    server.device("gpu-1", ["tag:somebody"])
    server.device("gpu-1")
    server.device("gpu-2", ["tag:k8s"])
    await tailnet.devices.revoke(tailnet.devices.planned(RECORD, 1))
    assert len(server.devices) == 3


async def test_a_device_that_was_never_tied_is_found_by_its_name_and_tag():
    server = TailscaleServer()
    tailnet = Tailnet(server, hostname="GPU-{{.NodeName}}")
    server.device("gpu-gpu-1", ["tag:k8s"])
    await tailnet.devices.revoke(tailnet.devices.planned(RECORD, 1))
    assert server.devices == {}


async def test_the_same_over_a_real_socket():
    server = TailscaleServer()
    async with serving(server.answer) as url:
        transport = AiohttpTransport()
        try:
            tailnet = Tailnet(server, transport=transport, api=f"{url}/api/v2")
            made = await tailnet.key()
            server.joins(made.values[AUTH_KEY], "gpu-1")
            await tailnet.keys.revoke(made.resource)
            await tailnet.devices.revoke(tailnet.devices.planned(RECORD, 1))
        finally:
            await transport.close()
    assert (server.keys, server.devices) == ({}, {})
