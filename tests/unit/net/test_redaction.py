"""Redaction: secrets are planted in every input, and all output is searched for them."""

import base64
import io
import json
import logging
import time
from urllib.parse import quote, quote_plus

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from forebay.net.aiohttp_transport import AiohttpTransport
from forebay.net.in_process import InProcess
from forebay.net.redaction import HIDDEN, Redacting, Redactor
from forebay.net.transport import AnswerCut, AnswerLost, Headers, NeverSent, Request, Response
from tests.net.recording import Recording
from tests.pki import Authority
from tests.unit.net.misbehaving import scripted

SECRET = "tskey-auth/k+Ab?c&d=e f\"g'h\\i"


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        quote(secret),
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        repr(secret)[1:-1],
        raw.hex(),
        base64.b64encode(raw).decode().rstrip("="),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
    ]


def test_a_registered_secret_is_redacted_in_every_encoding():
    redactor = Redactor([SECRET])
    for form in forms(SECRET):
        text = f"before {form} after"
        assert form not in redactor.text(text)
        assert redactor.text(text).startswith("before ")
        assert redactor.text(text).endswith(" after")


def test_nothing_is_left_of_a_secret_with_letters_of_other_alphabets_and_quotes():
    secret = 'schl\u00fcssel-"\u00e4"-9'
    redactor = Redactor([secret])
    for form in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]):
        assert redactor.text(f"before {form} after") == f"before {HIDDEN} after"


@pytest.mark.law
@given(secret=st.text(min_size=12, max_size=40), before=st.binary(max_size=7), after=st.binary(max_size=7))
def test_law_a_secret_inside_base64_text_is_redacted(secret, before, after):
    redactor = Redactor()
    if not redactor.register(secret):
        return
    raw = secret.encode().strip()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = redactor.text(encode(before + raw + after).decode())
        assert HIDDEN in shown
        # At most the letters at the two seams are left, which hold a few bits of it.
        assert len(shown.replace(HIDDEN, "")) <= len(encode(before + after)) + 8


def test_a_private_key_is_redacted_whole_line_by_line_and_unregistered():
    _, key = Authority().client("forebay")
    lines = key.decode().splitlines()
    for shown in (
        Redactor([key]).text(key.decode()),
        Redactor([key]).text(f"{lines[1]} alone"),
        Redactor([key]).text(json.dumps({"k": key.decode()})),
        Redactor().text(f"unregistered: {key.decode()} tail"),
        Redactor().text(f"cut short: {key.decode()[:150]}"),
    ):
        assert not any(line in shown for line in lines[1:-1])


def test_short_lines_of_a_script_are_ordinary_text_and_long_ones_are_not():
    redactor = Redactor(["set -e\ncurl-with-a-long-password\nexit 0\n-----BEGIN SOMETHING-----\n"])
    assert redactor.text("exit 0, then set -e") == "exit 0, then set -e"
    assert redactor.text("-----BEGIN SOMETHING-----").startswith("-----BEGIN")
    assert redactor.text("ran curl-with-a-long-password") == f"ran {HIDDEN}"


def test_nothing_is_nothing_in_redacted_data():
    plain = {"a": None, "b": 1.5, "c": True, "token": False, "password": None}
    assert Redactor().data(plain) == plain


def test_short_values_are_not_registered_and_register_returns_false():
    redactor = Redactor()
    assert not redactor.register("abc")
    assert not redactor.register("  \n")
    assert redactor.register("abcdef")
    assert redactor.text("abc abcdef") == f"abc {HIDDEN}"


@pytest.mark.parametrize(
    "line",
    [
        "Authorization: Bearer PLANTED",
        "authorization: Basic PLANTED",
        "X-API-Key: PLANTED",
        "{'Authorization': 'Bearer PLANTED'}",
        '{"api_key": "PLANTED", "other": 1}',
        '{"apiKey":"PLANTED"}',
        '{"clientSecret": "PLANTED with \\" quote PLANTED"}',
        r"{\"user_data\":\"PLANTED\"}",
        r"{\"user_data\":\"PLANTED \\\" PLANTED\"}",
        '{"userData": "I2Nsb3VkLWNvbmZpZwPLANTED"}',
        "GET https://api.example/v1?api_key=PLANTED&x=1",
        "https://api.example/graphql?x=1&token=PLANTED",
        "https://user:PLANTED@proxy.example:3128/",
        "https://PLANTED@proxy.example:3128/",
        "refused Bearer PLANTEDPLANTED here",
        "password=PLANTED",
        "client_secret=PLANTED&grant_type=x",
        "Set-Cookie: PLANTED",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJQTEFOVEVEIn0.PLANTED_signature",
    ],
)
def test_the_value_of_a_secret_name_is_redacted_without_registration(line):
    shown = Redactor().text(line)
    assert "PLANTED" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("refused Bearer PLANTEDPLANTED here", "refused Bearer HIDDEN here"),
        ("Authorization: Bearer PLANTED", "Authorization: HIDDEN"),
        ("X-API-Key: PLANTED, X-Other: 1", "X-API-Key: HIDDEN, X-Other: 1"),
        ("proxy_token: Token PLANTED", "proxy_token: Token HIDDEN"),
        ('{"api_key": "PLANTED", "other": 1}', '{"api_key": "HIDDEN", "other": 1}'),
        ("{'password': 'PLANTED'}", "{'password': 'HIDDEN'}"),
        (r"{\"user_data\":\"PLANTED\",\"size\":\"1\"}", r"{\"user_data\":\"HIDDEN\",\"size\":\"1\"}"),
        ('{"token": 123456, "x": 1}', '{"token": "HIDDEN", "x": 1}'),
        ("password = PLANTED; x", "password = HIDDEN; x"),
        ("GET https://h/v1?api_key=PLANTED&x=1", "GET https://h/v1?api_key=HIDDEN&x=1"),
        ("https://user:PLANTED@proxy.example:3128/", "https://HIDDEN@proxy.example:3128/"),
        ("join --token PLANTED --name x", "join --token HIDDEN --name x"),
    ],
)
def test_what_is_around_a_secret_stays_readable(line, shown):
    assert Redactor().text(line) == shown.replace("HIDDEN", HIDDEN)


@pytest.mark.parametrize(
    "line",
    [
        "token expired: log in again",
        "the secret my-secret in namespace default was not found",
        "cannot read the client key /etc/tls.key: No such file",
        "GET https://127.0.0.1:6443/api/v1/pods?continue=abc&limit=500",
        '{"kind":"Pod","metadata":{"name":"tokenizer"}}',
        "tokens=5",
        "Basic income",
        "GET http://metadata.internal/service-accounts/default/token: no address is known for the host",
        "POST https://power.lan:8443/v1/api-key: connection refused",
        "connection refused by 127.0.0.1:6443: is the address right?",
    ],
)
def test_ordinary_text_is_not_redacted(line):
    assert Redactor().text(line) == line


def test_nested_data_is_redacted_by_name_and_by_value():
    redactor = Redactor([SECRET])
    shown = redactor.data(
        {
            "api-key": "PLANTED",
            "list": [{"Password": "PLANTED"}, ("x", SECRET)],
            "token": {"expires": 5},
            "secret": "",
            "count": 3,
            "raw": SECRET.encode(),
            "error": ValueError(f"bad {SECRET}"),
            SECRET: True,
            7: "a key that is no text",
            None: SECRET,
        }
    )
    assert (shown[7], shown[None]) == ("a key that is no text", HIDDEN)
    text = repr(shown)
    assert "PLANTED" not in text
    assert not any(form in text for form in forms(SECRET))
    assert (shown["token"], shown["secret"], shown["count"], shown["list"][1][0]) == ({"expires": 5}, "", 3, "x")


def test_the_structlog_processor_redacts_events_and_tracebacks():
    out = io.StringIO()
    redactor = Redactor([SECRET])
    log = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[structlog.processors.format_exc_info, redactor, structlog.processors.JSONRenderer()],
    )

    def lose():
        raise AnswerLost(f"lost {SECRET}", Request(method="GET", url=f"http://x/?k={quote(SECRET)}"))

    try:
        lose()
    except AnswerLost:
        log.exception("failed", url=f"http://x/?api_key=PLANTED&q={quote_plus(SECRET)}", authorization="PLANTED")
    assert "failed" in out.getvalue()
    assert "AnswerLost" in out.getvalue()
    assert "PLANTED" not in out.getvalue()
    assert not any(form in out.getvalue() for form in forms(SECRET))


def everything_said_by(error: BaseException) -> str:
    import traceback

    chain = "".join(traceback.format_exception(error))
    request = error.request
    fields = [request.url, str(dict(request.headers)), str(request.body), repr(request), str(request)]
    return "\n".join([chain, str(error), repr(error), *fields])


SPEAKS_SECRETS = Request(
    method="POST",
    url=f"http://here/x?api_key=PLANTED&q={quote(SECRET, safe='')}",
    headers=Headers({"Authorization": f"Bearer {SECRET}", "X-Other": SECRET}),
    body=json.dumps({"userData": "PLANTED", "env": {"K": SECRET}}).encode(),
)


@pytest.mark.parametrize("kind", [NeverSent, AnswerLost, AnswerCut])
async def test_transport_errors_are_redacted(kind):
    async def handler(request):
        raise kind(f"failed with {SECRET} at {request.url}", request)

    wire = Redacting(InProcess(handler), Redactor([SECRET]))
    with pytest.raises(kind) as caught:
        await wire.request(SPEAKS_SECRETS)
    said = everything_said_by(caught.value)
    assert "PLANTED" not in said
    assert not any(form in said for form in forms(SECRET))
    assert "http://here/x" in said


async def test_a_lasting_error_stays_lasting_and_errors_of_bodies_are_redacted():
    async def cut(request):
        yield b"half"
        raise AnswerCut(f"cut {SECRET}", request)

    async def handler(request):
        if request.method == "GET":
            return Response(200, {}, cut(request))
        raise NeverSent(SECRET, request, lasting=True)

    wire = Redacting(InProcess(handler), Redactor([SECRET]))
    with pytest.raises(NeverSent) as caught:
        await wire.request(SPEAKS_SECRETS)
    assert caught.value.lasting
    with pytest.raises(AnswerCut) as cut_off:
        await (await wire.request(Request(method="GET", url="http://here/"))).read()
    assert SECRET not in everything_said_by(cut_off.value)


@pytest.mark.real_time
async def test_planted_secrets_are_in_no_output_of_the_whole_stack(caplog, capsys):
    """Real sockets, real failures, aiohttp's own logs, the recording, the errors: all of it is searched."""
    caplog.set_level(logging.DEBUG)
    redactor = Redactor([SECRET])
    recorded = io.BytesIO()

    async def script(talk):
        request = await talk.hear()
        if b"/answers" in request:
            await talk.say(b"HTTP/1.1 401 Unauthorized\r\nSet-Cookie: PLANTED\r\nContent-Length: 32\r\n\r\n")
            await talk.say(b'{"token":"PLANTED","a":"bcdefg"}')
        elif b"/cut" in request:
            await talk.say(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + SECRET.encode())

    said: list[str] = []
    async with scripted(script) as server:
        wire = Redacting(Recording(AiohttpTransport(), recorded, redactor), redactor)
        for host, path in (
            (f"127.0.0.1:{server.port}", "answers"),
            (f"127.0.0.1:{server.port}", "lost"),
            (f"127.0.0.1:{server.port}", "cut"),
            ("127.0.0.1:1", "refused"),
            ("no such host", "nonsense"),
        ):
            request = Request(
                method="POST",
                url=f"http://{host}/{path}?api_key=PLANTED&q={quote(SECRET, safe='')}",
                headers=SPEAKS_SECRETS.headers,
                body=SPEAKS_SECRETS.body,
            )
            try:
                await (await wire.request(request)).read()
            except (NeverSent, AnswerLost, AnswerCut) as error:
                said.append(everything_said_by(error))
        await wire.close()
    assert len(said) == 4
    output = capsys.readouterr()
    everything = "\n".join([*said, recorded.getvalue().decode(), caplog.text, output.out, output.err])
    assert "PLANTED" not in everything
    assert not any(form in everything for form in forms(SECRET))
    assert len(recorded.getvalue().splitlines()) == 5


@pytest.mark.parametrize(
    "text",
    [
        "Config(password='{}')",
        "Config(token=b'{}', size=3)",
        'password: "{} and more"',
        'api_key = "{}"',
        "Cookie: theme=dark; sid={}",
        "Authorization: ApiKey {}",
        "curl -H 'Authorization: Custom realm=a, key={}'",
        '{{"vast_api_key": "{}"}}',
        '{{"apiToken":"{}"}}',
        '{{"event": "{{\\"dbPassword\\": \\"{}\\"}}"}}',
        '{{"event": "{{\\\\\\"token\\\\\\": \\\\\\"{}\\\\\\"}}"}}',
        '{{"token": "{}',
        "https://user:p@{}@proxy.example/",
        "exec: get-token --client-secret {}",
        "['get-token', '--password', '{}']",
    ],
)
def test_the_value_of_a_secret_name_is_redacted_in_every_notation(text):
    secret = "hunter22-hunter22"
    shown = Redactor().text(text.format(secret))
    assert "hunter22" not in shown
    assert HIDDEN in shown


def test_a_number_with_a_secret_name_is_redacted_and_the_text_is_still_json():
    shown = json.loads(Redactor().text('{"token": 12345678, "password": null, "credentials": {"name": "a"}}'))
    assert shown == {"token": HIDDEN, "password": None, "credentials": {"name": "a"}}
    assert Redactor().data({"VAST_API_KEY": "a", "dbPassword": "b", "tokens": 5}) == {
        "VAST_API_KEY": HIDDEN,
        "dbPassword": HIDDEN,
        "tokens": 5,
    }


@pytest.mark.parametrize(
    "text",
    [
        "a.",
        "a-",
        "eyJ-",
        '"token":"' + "\\",
        "\\",
        "token:",
        'token"',
        'token\\"',
        "http://a",
        "http://a/token",
        "/token: ",
        "--",
        "aA",
        "Bearer ",
    ],
)
def test_redaction_takes_linear_time(text):
    began = time.process_time()
    Redactor().text(text * (100_000 // len(text)))
    Redactor().text('"token":"' + text * (100_000 // len(text)))
    assert time.process_time() - began < 5  # it takes a tenth of a second; where it is quadratic, a minute


async def test_the_original_error_is_not_chained_to_the_redacted_one():
    async def handler(request):
        raise AnswerLost("sent token=s3cret-s3cret", request)

    with pytest.raises(AnswerLost) as caught:
        await Redacting(InProcess(handler), Redactor()).request(Request(method="GET", url="http://a/"))
    assert str(caught.value) == f"sent token={HIDDEN}"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_secret_registered_after_the_first_redaction_is_redacted_as_well():
    redactor = Redactor(["the-first-secret"])
    assert redactor.text("the-first-secret and the-later-secret") == f"{HIDDEN} and the-later-secret"
    redactor.register("the-later-secret")
    assert redactor.text("the-first-secret and the-later-secret") == f"{HIDDEN} and {HIDDEN}"


@pytest.mark.parametrize(
    "secret", ["\u00e9clair-of-9", 'quo"ted\\key', "tab\tin-it-1", "plain-secret", "ends-in-\u00e9"]
)
def test_every_form_of_a_secret_is_removed_whole(secret):
    raw = secret.encode()
    forms = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr(raw)[2:-1],
        quote(raw, safe=""),
        quote_plus(raw),
        raw.hex(),
        raw.hex().upper(),
    ]
    redactor = Redactor([secret])
    for form in forms:
        assert redactor.text(f"<{form}>") == f"<{HIDDEN}>", form
