"""Traces and crash reports: only where their variables are set, redacted, and never in the way."""

import asyncio
import gzip
import logging
import socket
import subprocess
import sys
import threading
import time

import pytest
import structlog

from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.net.serve import serving
from forebay.net.transport import AnswerLost, Request, Response
from forebay.wiring.telemetry import Telemetry, start_telemetry

pytestmark = pytest.mark.telemetry
SECRET = "planted-hook-secret-77"
ARGUMENT = "value-of-an-argument"


class Traced:
    """Telemetry whose spans a test sees."""

    def __init__(self):
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        from forebay.wiring.traces import Traces

        self._exporter = InMemorySpanExporter()
        self._traces = Traces(self._exporter, Redactor([SECRET]))
        self.telemetry = Telemetry(self._traces)

    @property
    def spans(self):
        self._traces.flush()
        return {each.name: each for each in self._exporter.get_finished_spans()}

    def end(self):
        self.telemetry.end()


@pytest.fixture
def traced():
    made = Traced()
    yield made
    made.end()


async def answer(request):
    if "broken" in request.url:
        raise AnswerLost(f"{request}: the connection was closed", request)
    return Response(503 if "busy" in request.url else 200)


def post(url, method="POST"):
    return Request(method=method, url=url, body=b"{}")


async def test_what_a_tick_writes_is_a_part_of_it_and_what_is_read_at_intervals_is_not(traced):
    providers = traced.telemetry.to_providers(InProcess(answer))
    kubernetes = traced.telemetry.to_kubernetes(InProcess(answer))
    with traced.telemetry.tick():
        await providers.request(post("https://cloud.example/launch"))
        await providers.request(post("https://list.example/instances", "GET"))
        await kubernetes.request(post("https://10.0.0.1/api/v1/nodes/a", "PATCH"))
        await kubernetes.request(post("https://10.0.0.1/api/v1/pods", "GET"))
    assert traced.spans.keys() == {"tick", "POST cloud.example", "GET list.example", "PATCH kubernetes"}
    tick = traced.spans["tick"].context.span_id
    for name in ("POST cloud.example", "PATCH kubernetes"):
        assert traced.spans[name].parent.span_id == tick
    assert traced.spans["GET list.example"].parent is None
    assert traced.spans["PATCH kubernetes"].attributes["url.path"] == "/api/v1/nodes/a"
    assert traced.spans["tick"].resource.attributes["service.name"] == "forebay"


async def test_failures_are_marked_and_nothing_secret_is_in_a_span(traced):
    providers = traced.telemetry.to_providers(InProcess(answer))
    # Whatever is in the address of a webhook may be a secret that nobody has registered.
    await providers.request(post(f"https://user:pass@busy.example/hook/T0K3N/{SECRET}?api_key=abcdefgh"))
    with pytest.raises(AnswerLost):
        await providers.request(post(f"https://broken.example/T0K3N/{SECRET}"))
    await traced.telemetry.to_kubernetes(InProcess(answer)).request(post(f"https://10.0.0.1/api/v1/{SECRET}"))
    busy, broken = traced.spans["POST busy.example"], traced.spans["POST broken.example"]
    assert busy.attributes["http.response.status_code"] == 503
    assert {busy.status.status_code.name, broken.status.status_code.name} == {"ERROR"}
    assert broken.attributes["error.type"] == "AnswerLost"
    shown = "".join(each.to_json() for each in traced.spans.values())
    assert "[redacted]" in shown
    assert not any(each in shown for each in (SECRET, "pass@", "abcdefgh", "T0K3N"))


@pytest.fixture(autouse=True)
def restored():
    """Logs and Sentry's SDK are as before."""
    import sentry_sdk

    before = structlog.get_config()
    loggers = [logging.getLogger(each) for each in ("opentelemetry", "sentry_sdk", "urllib3")]
    settings = [(each.handlers, each.propagate) for each in loggers]
    yield
    structlog.configure(**before)
    for logger, (handlers, propagate) in zip(loggers, settings, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
    sentry_sdk.get_client().close()
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)


def failing_tick(argument):
    raise RuntimeError(f"cannot read {SECRET} of {len(argument)}")


@pytest.mark.real_time
async def test_the_traceback_of_a_failed_tick_is_reported_redacted():
    envelopes = []

    async def collect(request):
        body = request.body or b""
        envelopes.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        return Response(200, body=b"{}")

    redactor = Redactor([SECRET])
    async with serving(collect) as base:
        dsn = base.replace("://", "://publickey0123@") + "/42"
        telemetry = start_telemetry({"SENTRY_DSN": dsn}, redactor)
        try:
            failing_tick(ARGUMENT)
        except RuntimeError:
            structlog.get_logger().exception("reconcile failed", object="GPUNodePool ml/a")
        structlog.get_logger().error("provider unavailable", error="an ordinary error")
        await asyncio.to_thread(telemetry.end)
    (report,) = envelopes
    for expected in (b"RuntimeError", b"[redacted]", b"reconcile failed", b"GPUNodePool ml/a", b"test_telemetry"):
        assert expected in report
    for absent in (SECRET.encode(), ARGUMENT.encode(), socket.gethostname().encode()):
        assert absent not in report


@pytest.mark.parametrize(
    ("variable", "package", "extra"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "opentelemetry.exporter.otlp.proto.http.trace_exporter", "forebay[otel]"),
        ("SENTRY_DSN", "forebay.wiring.crash_reports", "forebay[sentry]"),
    ],
)
def test_a_variable_without_its_package_is_one_sentence_in_the_log(monkeypatch, variable, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with structlog.testing.capture_logs() as lines:
        telemetry = start_telemetry({variable: "http://127.0.0.1:1"}, Redactor())
    (line,) = lines
    assert f"{variable} is set" in line["error"]
    assert extra in line["error"]
    with telemetry.tick():
        telemetry.end()


def test_what_is_no_dsn_stops_nothing():
    with structlog.testing.capture_logs() as lines:
        start_telemetry({"SENTRY_DSN": "nonsense"}, Redactor())
    assert "SENTRY_DSN is no DSN" in lines[0]["error"]


def test_a_collector_that_is_down_delays_the_end_by_seconds_and_says_so_in_the_log(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    before = {*threading.enumerate()}
    with structlog.testing.capture_logs() as lines:
        telemetry = start_telemetry({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, Redactor())
        with telemetry.tick():
            pass
        began = time.monotonic()
        telemetry.end()
        assert time.monotonic() - began < 4
    # Those that are given up draw random numbers for their next try, which Hypothesis minds in whatever runs next.
    for thread in {*threading.enumerate()} - before:
        thread.join(30)
    assert "Connection refused" in str([each for each in lines if each["event"] == "opentelemetry"])
    assert not logging.getLogger("opentelemetry").propagate


def test_nothing_is_imported_unless_it_is_asked_for():
    program = (
        "import sys, forebay.wiring.operator as o\n"
        "o.start_telemetry({'OTEL_EXPORTER_OTLP_ENDPOINT': 'http://x', 'OTEL_SDK_DISABLED': 'true'}, None)\n"
        "print([each for each in sys.modules if each.startswith(('opentelemetry', 'sentry_sdk'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
