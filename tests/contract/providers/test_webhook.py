"""The provider `webhook` beyond the common contract: the calls it sends, and how it interprets responses.

Each fault of the predecessor in this area has a test: status codes ignored, no credentials, no timeout, no power state.
"""

import asyncio
import base64
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.machines import Machine, MachineTLS
from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.model.sources import Delivery, InstancePhase
from forebay.net import clock
from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from forebay.net.transport import Response
from forebay.providers.base import (
    BadCredentials,
    LaunchRequest,
    OutcomeUnknown,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
)
from forebay.providers.secrets import Secrets, SecretsUnavailable
from forebay.providers.webhook.provider import WebhookProvider
from forebay.simulate import power_faults as faults
from forebay.simulate.power import PowerCall, Powered, PowerWorld
from tests.contract.providers.harness import FakeSecrets, WebhookHarness
from tests.contract.providers.receiver import TOKEN
from tests.pki import Authority

GPU_1 = Machine(
    name="gpu-1",
    gpu_count=4,
    scale_up_endpoint="http://power-api/gpu-1/start?zone=a&token=in-the-url",
    scale_down_endpoint="http://power-api/gpu-1/stop",
    status_endpoint="http://power-api/gpu-1/status",
)


class Endpoint:
    """Answers every call alike, and keeps it."""

    def __init__(self, status=200, headers=None, body=b""):
        self.status, self.headers, self.body = status, headers or {}, body
        self.requests = []

    async def __call__(self, request):
        self.requests.append(request)
        body = self.body() if callable(self.body) else self.body
        return Response(self.status, self.headers, body)


@asynccontextmanager
async def provider_of(handler, *machines, secrets=None, make_transport=None):
    secret_store = secrets or FakeSecrets({})
    wire = InProcess(handler)
    provider = WebhookProvider(
        machines or (GPU_1,),
        make_transport=make_transport or (lambda _tls: wire),
        secrets=Secrets(secret_store, "forebay", Redactor()),
        clock=clock.now,
    )
    try:
        yield provider
    finally:
        await provider.close()


async def launch(provider, uid="uid-1", machine="gpu-1"):
    offer = next(offer for offer in await provider.offers() if offer.instance_type == machine)
    request = LaunchRequest(uid=uid, name=machine, cluster="c", offer=offer, node_name=machine)
    return await provider.launch(request)


async def refusal(provider, **kw):
    with pytest.raises(ProviderError) as caught:
        await launch(provider, **kw)
    return caught.value


async def test_a_machine_is_powered_on_by_posting_an_empty_object_as_the_predecessor_did():
    endpoint = Endpoint()
    async with provider_of(endpoint) as provider:
        instance = await launch(provider)
        await provider.terminate("gpu-1")
    on, off = endpoint.requests
    assert (on.method, on.url, on.body) == ("POST", GPU_1.scale_up_endpoint, b"{}")
    assert (off.method, off.url, off.body) == ("POST", GPU_1.scale_down_endpoint, b"{}")
    assert on.headers["Content-Type"] == off.headers["Content-Type"] == "application/json"
    assert not [name for name in on.headers if name.lower().startswith("webhook-")]
    assert (instance.id, instance.phase, instance.owner) == ("gpu-1", InstancePhase.STARTING, "uid-1")


async def test_launches_are_idempotent_and_deliver_power():
    async with provider_of(Endpoint()) as provider:
        capabilities = provider.capabilities()
        assert capabilities.deliveries == (Delivery.POWER,)
        assert capabilities.idempotent_launch
        (offer,) = await provider.offers()
        assert capabilities.of(offer).join_deadline == timedelta(minutes=15)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
async def test_any_2xx_is_acceptance(status):
    async with provider_of(Endpoint(status)) as provider:
        assert (await launch(provider)).id == "gpu-1"


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (301, Rejected),
        (302, OutcomeUnknown),
        (303, OutcomeUnknown),
        (304, Rejected),
        (307, Rejected),
        (308, Rejected),
        (400, Rejected),
        (401, BadCredentials),
        (403, BadCredentials),
        (404, Rejected),
        (405, Rejected),
        (408, Unavailable),
        (409, OutcomeUnknown),
        (410, Rejected),
        (429, RateLimited),
        (500, OutcomeUnknown),
        (501, OutcomeUnknown),
        (503, OutcomeUnknown),
        (504, OutcomeUnknown),
        (599, OutcomeUnknown),
    ],
)
@pytest.mark.parametrize("call", ["launch", "terminate"])
async def test_every_other_status_code_is_an_error(status, meaning, call):
    """The predecessor took every answer for success."""
    async with provider_of(Endpoint(status, body=b"because")) as provider:
        with pytest.raises(meaning) as caught:
            await (launch(provider) if call == "launch" else provider.terminate("gpu-1"))
        assert f'answered {status} ("because")' in str(caught.value)
        assert "in-the-url" not in str(caught.value)


async def test_a_404_is_no_proof_that_a_machine_is_off():
    """404 means a wrong URL. Only the status endpoint or the node shows that a machine is off."""
    async with provider_of(Endpoint(404)) as provider:
        with pytest.raises(Rejected, match="Correct scaleDownEndpoint of the machine"):
            await provider.terminate("gpu-1")
        assert (await provider.instances()).unknown == {"gpu-1"}


@pytest.mark.real_time
async def test_a_redirect_is_not_followed():
    elsewhere = Endpoint()
    async with serving(elsewhere) as other:
        here = Endpoint(308, {"Location": f"{other}/start?token=abcdef-123"})
        async with serving(here) as base:
            machine = replace(GPU_1, scale_up_endpoint=f"{base}/start")
            async with provider_of(None, machine, make_transport=lambda tls: AiohttpTransport(tls=tls)) as provider:
                error = await refusal(provider)
    assert elsewhere.requests == []
    assert "a redirect to http://127.0.0.1" in str(error)
    assert "Write the final URL into scaleUpEndpoint" in str(error)
    assert "abcdef" not in str(error)


@pytest.mark.parametrize(
    "location",
    [
        "https://me:planted-secret@power.lan/x",
        "https://me:planted/secret@power.lan/x",
        "https://me:planted?secret@power.lan/x",
        "https://power.lan/hooks/planted-secret",
        "https://power.lan?planted-secret",
        "https://power.lan#planted-secret",
        "/hooks/planted-secret",
        "planted-secret",
        "javascript:planted-secret",
    ],
)
async def test_of_the_target_of_a_redirect_only_scheme_and_host_are_shown(location):
    async with provider_of(Endpoint(308, {"Location": location})) as provider:
        error = str(await refusal(provider))
    assert "a redirect to " in error
    assert "planted" not in error
    assert "secret" not in error


async def test_secrets_in_the_url_of_an_endpoint_are_not_shown_even_if_the_server_repeats_them():
    echo = b"no hook 9f8e7d6c5b4a39281706 for hunter2-hunter2 with abc-planted-def"
    machine = replace(
        GPU_1,
        scale_up_endpoint="http://me:hunter2-hunter2@power.lan/hooks/9f8e7d6c5b4a39281706/on?k=abc-planted-def",
    )
    async with provider_of(Endpoint(404, body=echo), machine) as provider:
        error = str(await refusal(provider))
    assert "answered 404" in error
    for secret in ("9f8e7d6c5b4a39281706", "hunter2", "planted"):
        assert secret not in error


@pytest.mark.parametrize(
    ("url", "echo"),
    [
        ("http://me:p%40ss-planted@power.lan/on", "no user with p@ss-planted"),
        ("http://me:p%40ss-planted@power.lan/on", f"no user {base64.b64encode(b'me:p@ss-planted').decode()}"),
        ("http://me:wrong/planted-word@power.lan/on", "no such planted-word"),
        ("http://power.lan/on?planted-word", "what is planted-word"),
        ("http://power.lan/on?k=planted%2Fword", "what is planted/word"),
        ("http://power.lan/hooks/plantedPlantedPlanted/on", "no hook plantedPlantedPlanted"),
        ("http://power.lan/hooks/PLANTEDPLANTEDPLANTED", "no hook PLANTEDPLANTEDPLANTED"),
        ("http://power.lan/hooks/planted", "Cannot POST /hooks/planted"),
        ("http://power.lan/hooks/pl%61nted?a=b", "Cannot POST /hooks/planted"),
    ],
)
async def test_no_form_of_a_secret_in_a_url_is_shown(url, echo):
    async with provider_of(Endpoint(404, body=echo.encode()), replace(GPU_1, scale_up_endpoint=url)) as provider:
        error = str(await refusal(provider))
    assert "answered 404" in error
    assert "planted" not in error.lower()
    assert base64.b64encode(b"me:p@ss-planted").decode() not in error


@pytest.mark.parametrize(
    ("header", "echo"),
    [
        ("session=planted-word; theme=dark", "unknown session planted-word"),
        ('Token token="planted-word"', "unknown planted-word"),
        ("Digest a=1,response=planted-word", "unknown planted-word"),
    ],
)
async def test_no_part_of_a_secret_header_is_shown(header, echo):
    store = FakeSecrets({("forebay", "headers"): {"X-Key": header.encode()}})
    machine = replace(GPU_1, headers_secret_ref=SecretRef(name="headers"))
    async with provider_of(Endpoint(404, body=echo.encode()), machine, secrets=store) as provider:
        assert "planted" not in str(await refusal(provider))


async def test_ordinary_words_of_an_endpoint_are_shown_when_its_server_answers_them():
    machine = replace(GPU_1, scale_up_endpoint="http://power.lan:8443/machines/gpu-1/power?to=me@power.lan")
    async with provider_of(Endpoint(404, body=b"no machines in this power group"), machine) as provider:
        assert "no machines in this power group" in str(await refusal(provider))


async def test_a_call_takes_no_longer_than_the_machines_timeout():
    """The predecessor waited 5 s whatever was configured; the default is the same."""
    world = PowerWorld([Powered(name="gpu-1", gpus=4)])
    world.script("gpu-1", PowerCall.ON, faults.silent(acts=False), faults.silent(acts=False), faults.silent(acts=False))
    loop = asyncio.get_running_loop()
    for timeout, seconds in (("5s", 5.0), ("1m", 60.0), ("0", 5.0)):
        async with provider_of(world.answer, replace(GPU_1, timeout=timeout)) as provider:
            began = loop.time()
            error = await refusal(provider)
            assert loop.time() - began == pytest.approx(seconds)
        assert isinstance(error, OutcomeUnknown)
        assert "raise the machine's timeout" in str(error)


async def test_the_body_of_a_2xx_response_is_not_awaited():
    async def for_ever():
        yield b"booting"
        await asyncio.sleep(3600)
        yield b"."

    async with provider_of(Endpoint(200, body=for_ever)) as provider:
        began = asyncio.get_running_loop().time()
        await launch(provider)
        assert asyncio.get_running_loop().time() == began


async def test_every_attempt_of_a_record_has_the_same_idempotency_key():
    endpoint = Endpoint()
    async with provider_of(endpoint) as provider:
        await launch(provider, "uid-1")
        await launch(provider, "uid-1")
        await launch(provider, "uid-2")
    keys = [request.headers["Idempotency-Key"] for request in endpoint.requests]
    assert keys == ["uid-1", "uid-1", "uid-2"]


async def test_an_endpoint_that_remembers_keys_powers_off_each_time():
    world = PowerWorld([Powered(name="gpu-1", gpus=4, shutdown=0)], remembers_keys=True)
    async with provider_of(world.answer) as provider:
        for uid in ("uid-1", "uid-2"):
            await launch(provider, uid)
            assert world.on == {"gpu-1"}
            await provider.terminate("gpu-1")
            await asyncio.sleep(1)
            assert world.on == frozenset()


async def test_a_rate_limit_has_the_time_of_the_retry():
    async with provider_of(Endpoint(429, {"Retry-After": "90"})) as provider:
        assert (await refusal(provider)).retry_after == timedelta(seconds=90)
    async with provider_of(Endpoint(429, {"Retry-After": "Thu, 31 Dec 2099 23:59:59 GMT"})) as provider:
        assert (await refusal(provider)).retry_after == timedelta(days=1)


class TestCredentials:
    """The predecessor had none: anyone who could reach an endpoint could power machines on and off."""

    async def test_headers_and_a_signature_are_sent_with_every_call(self):
        harness = WebhookHarness()
        async with harness.open():
            await launch(harness.provider, machine="one")
            await harness.provider.instances()
            await harness.provider.terminate("one")
        assert {call.status for call in harness.world.calls} == {200}
        assert {request.headers["X-Other"] for request in harness.receiver.seen} == {"x-hidden-value-41"}

    async def test_a_changed_secret_is_read_again_when_the_old_one_is_refused(self):
        harness = WebhookHarness()
        async with harness.open():
            await launch(harness.provider, machine="one")
            reads = harness.secret_store.reads
            harness.receiver.token = "the-next-token"
            harness.secret_store.held["forebay", "headers"] = {"Authorization": b"Bearer the-next-token"}
            await launch(harness.provider, "uid-2", machine="eight")
            await launch(harness.provider, "uid-3", machine="four")
            assert harness.secret_store.reads == reads + 2
        assert [call.status for call in harness.launch_calls()] == [200, 401, 200, 200]

    async def test_a_refused_secret_that_has_not_changed_is_not_tried_twice(self):
        harness = WebhookHarness()
        harness.receiver.token = "another-token"
        async with harness.open():
            error = await refusal(harness.provider, machine="one")
        assert isinstance(error, BadCredentials)
        assert "Secret forebay/headers and Secret infra/signing" in str(error)
        assert TOKEN not in str(error)
        assert len(harness.launch_calls()) == 1

    async def test_a_refusal_without_configured_credentials_names_the_fields_to_set(self):
        async with provider_of(Endpoint(401)) as provider:
            assert "Name a Secret in headersSecretRef or hmacSecretRef" in str(await refusal(provider))

    @pytest.mark.parametrize(
        ("header", "echo"),
        [
            (b"Bearer tok-123456", b"bad token tok-123456"),
            (b"Basic dXNlcjpwYXNzd29yZDk=", b"no user user with password9"),
            (b"short", b"not short"),
            (b"Bearer abc", b"abc?"),
        ],
    )
    async def test_a_secret_that_an_endpoint_repeats_is_not_in_the_error(self, header, echo):
        machine = replace(GPU_1, headers_secret_ref=SecretRef(name="h"))
        secret_store = FakeSecrets({("forebay", "h"): {"Authorization": header}})
        async with provider_of(Endpoint(500, body=echo), machine, secrets=secret_store) as provider:
            shown = str(await refusal(provider))
        assert not [word for word in ("tok-123456", "password9", "short", "abc") if word in shown]

    @pytest.mark.parametrize(
        ("held", "message"),
        [
            ({}, "there is no Secret forebay/h: create it"),
            ({"h": {"X-Key": b"two\nlines"}}, "key X-Key of Secret forebay/h cannot be a header"),
            ({"h": {"X-Key": "schlüssel".encode()}}, "key X-Key of Secret forebay/h cannot be a header"),
            ({"h": {"Content-Length": b"7"}}, "a header that Forebay sets itself: remove it"),
            ({"h": {"webhook-id": b"7"}}, "a header that Forebay sets itself: remove it"),
        ],
    )
    async def test_an_unusable_secret_is_named_and_no_call_is_sent(self, held, message):
        endpoint = Endpoint()
        machine = replace(GPU_1, headers_secret_ref=SecretRef(name="h"))
        secret_store = FakeSecrets({("forebay", name): value for name, value in held.items()})
        async with provider_of(endpoint, machine, secrets=secret_store) as provider:
            error = await refusal(provider)
        assert isinstance(error, BadCredentials)
        assert message in str(error)
        assert endpoint.requests == []

    @pytest.mark.parametrize(
        ("held", "message"),
        [
            ({"other": b"x"}, "Secret infra/s has no key k: add it"),
            ({"k": b"whsec_***"}, "what follows whsec_ is not base64"),
            ({"k": b""}, "it is empty"),
        ],
    )
    async def test_a_malformed_signing_key_is_named(self, held, message):
        machine = replace(GPU_1, hmac_secret_ref=SecretKeyRef(name="s", namespace="infra", key="k"))
        async with provider_of(Endpoint(), machine, secrets=FakeSecrets({("infra", "s"): held})) as provider:
            error = await refusal(provider)
        assert isinstance(error, BadCredentials)
        assert message in str(error)

    async def test_while_secrets_cannot_be_read_no_call_is_sent(self):
        class NoAnswer:
            async def get(self, _namespace, _name):
                raise SecretsUnavailable("the API server does not answer")

        endpoint = Endpoint()
        machine = replace(GPU_1, headers_secret_ref=SecretRef(name="h"))
        async with provider_of(endpoint, machine, secrets=NoAnswer()) as provider:
            error = await refusal(provider)
            assert (await provider.instances()).unknown == {"gpu-1"}
        assert isinstance(error, Unavailable)
        assert endpoint.requests == []


class TestStatus:
    async def test_machines_that_are_on_are_listed_and_those_without_a_clear_answer_are_unknown(self):
        answers = {"on": b'{"on": true}', "off": b'{"state": "off"}', "odd": b"hello", "ends": b"stopping"}

        async def status(request):
            name = request.url.rpartition("/")[2]
            return Response(200, body=answers[name]) if name in answers else Response(500)

        machines = [
            replace(GPU_1, name=name, status_endpoint=f"http://power-api/{name}") for name in (*answers, "broken")
        ]
        mute = replace(GPU_1, name="mute", status_endpoint=None)
        async with provider_of(status, *machines, mute) as provider:
            found = await provider.instances()
        assert {instance.id: instance.phase for instance in found.instances} == {
            "on": InstancePhase.RUNNING,
            "ends": InstancePhase.ENDING,
        }
        assert found.unknown == {"odd", "broken", "mute"}

    async def test_a_silent_endpoint_delays_the_listing_by_its_timeout_and_hides_no_other_machine(self):
        world = PowerWorld([Powered(name=f"gpu-{n}", gpus=1, boot=1) for n in range(40)])
        world.power_on_by_hand("gpu-7")
        world.script("gpu-3", PowerCall.STATUS, faults.silent(acts=False))
        async with provider_of(world.answer, *world.configured("http://power-api")) as provider:
            began = asyncio.get_running_loop().time()
            found = await provider.instances()
            assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
        assert [instance.id for instance in found.instances] == ["gpu-7"]
        assert found.unknown == {"gpu-3"}

    async def test_a_body_that_is_too_large_is_unknown(self):
        async with provider_of(Endpoint(body=b'{"on": false}' + b" " * 100_000)) as provider:
            assert (await provider.instances()).unknown == {"gpu-1"}

    async def test_a_check_names_each_machine_that_fails(self):
        def machine(name, **more):
            return replace(GPU_1, name=name, status_endpoint=f"http://power-api/{name}", **more)

        async def status(request):
            return Response(200, body=b"on") if request.url.endswith("good") else Response(404)

        bad = replace(machine("unread", headers_secret_ref=SecretRef(name="h")), status_endpoint=None)
        async with provider_of(status, machine("good"), machine("wrong"), bad) as provider:
            check = await provider.check()
        assert not check.ok
        assert "wrong: GET http://power-api answered 404" in check.sentence
        assert "Correct statusEndpoint of the machine" in check.sentence
        assert "unread: there is no Secret forebay/h" in check.sentence
        assert "good" not in check.sentence

    async def test_a_check_counts_the_machines_it_could_not_check(self):
        mute = replace(GPU_1, name="mute", status_endpoint=None)
        async with provider_of(Endpoint(body=b"off"), GPU_1, mute) as provider:
            check = await provider.check()
        assert check.ok
        assert check.sentence == (
            "1 of 2 machines report their power state. "
            "1 without statusEndpoint could not be checked without powering them on or off."
        )


async def test_a_machine_that_is_no_longer_configured_cannot_be_powered_off():
    async with provider_of(Endpoint()) as provider:
        with pytest.raises(
            Rejected, match="removed cannot be powered off, because this provider no longer has a machine of that name"
        ):
            await provider.terminate("removed")


@pytest.mark.real_time
class TestTls:
    @asynccontextmanager
    async def https(self, context, secrets, tls, endpoint):
        # The server complains about failed handshakes.
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        async with serving(endpoint, context=context) as base:
            machine = replace(GPU_1, scale_up_endpoint=f"{base}/start", tls=tls)
            transports = lambda options: AiohttpTransport(tls=options)  # noqa: E731
            async with provider_of(None, machine, secrets=FakeSecrets(secrets), make_transport=transports) as provider:
                yield provider

    async def test_an_authority_from_a_secret_is_trusted_and_a_changed_one_is_read_again(self, tmp_path):
        authority, stranger = Authority(), Authority("stranger")
        held = {("forebay", "power"): {"ca.crt": stranger.certificate}}
        tls = MachineTLS(ca_secret_ref=SecretKeyRef(name="power", key="ca.crt"))
        endpoint = Endpoint()
        async with self.https(authority.server_context(tmp_path), held, tls, endpoint) as provider:
            error = await refusal(provider)
            assert isinstance(error, Unavailable)
            assert "is signed by an unknown authority" in str(error)
            assert endpoint.requests == []
            held["forebay", "power"] = {"ca.crt": authority.certificate}
            assert (await launch(provider)).id == "gpu-1"

    async def test_a_client_certificate_from_a_secret_is_shown_and_a_renewed_one_is_used(self, tmp_path):
        authority, clients, stranger = Authority(), Authority("clients"), Authority("stranger")
        tls = MachineTLS(
            ca_secret_ref=SecretKeyRef(name="power", key="ca.crt"),
            client_certificate_secret_ref=SecretRef(name="client"),
        )

        def of(issuer):
            pair = issuer.client("forebay")
            return {"tls.crt": pair.certificate, "tls.key": pair.key}

        held = {("forebay", "power"): {"ca.crt": authority.certificate}, ("forebay", "client"): of(stranger)}
        context = authority.server_context(tmp_path, clients_of=clients)
        async with self.https(context, held, tls, Endpoint()) as provider:
            # With TLS 1.3 the refusal may arrive so late that it looks like a broken connection.
            assert isinstance(await refusal(provider), Unavailable | OutcomeUnknown)
            held["forebay", "client"] = of(clients)
            assert (await launch(provider)).id == "gpu-1"

    async def test_without_verification_any_certificate_is_accepted(self, tmp_path):
        tls = MachineTLS(insecure_skip_verify=True)
        async with self.https(Authority().server_context(tmp_path), {}, tls, Endpoint()) as provider:
            assert (await launch(provider)).id == "gpu-1"

    async def test_a_secret_without_a_certificate_is_named(self, tmp_path):
        held = {("forebay", "power"): {"ca.crt": b"not PEM"}}
        tls = MachineTLS(ca_secret_ref=SecretKeyRef(name="power", key="ca.crt"))
        async with self.https(Authority().server_context(tmp_path), held, tls, Endpoint()) as provider:
            error = await refusal(provider)
            check = await provider.check()
        assert isinstance(error, BadCredentials)
        assert "the CA data holds no PEM certificate: correct the Secrets that its tls names" in str(error)
        assert not check.ok


async def test_a_call_may_take_as_long_as_the_longest_timeout_of_a_machine():
    quick, slow = replace(GPU_1, timeout="5s"), replace(GPU_1, name="gpu-2", timeout="3m")
    async with provider_of(Endpoint(), quick) as provider:
        assert provider.capabilities().call_timeout == timedelta(seconds=60)
    async with provider_of(Endpoint(), quick, slow) as provider:
        assert provider.capabilities().call_timeout > timedelta(minutes=3)


async def test_status_endpoints_that_hang_hide_no_other_machine_for_longer_than_one_listing():
    names = [f"gpu-{number:02}" for number in range(20)]
    world = PowerWorld([Powered(name=name, gpus=1, boot=1) for name in names])
    for name in names[:17]:
        world.script(name, PowerCall.STATUS, *[faults.silent(acts=False)] * 3)
    world.power_on_by_hand("gpu-19")
    machines = [replace(each, timeout="60s") for each in world.configured("http://power-api")]
    async with provider_of(world.answer, *machines) as provider:
        for _ in range(2):
            async with asyncio.timeout(50):
                found = await provider.instances()
        assert {each.id for each in found.instances} == {"gpu-19"}
        assert found.unknown == set(names[:17])
