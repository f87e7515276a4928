"""Traces and crash reports for those who ask for them, by the variables that OpenTelemetry and Sentry have defined.

Neither package is imported, or needed, unless its variable is set.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import structlog

from forebay.net.redaction import Redactor
from forebay.net.transport import Transport

if TYPE_CHECKING:
    from forebay.wiring.traces import Traces

log = structlog.get_logger(__name__)

OTLP_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
SENTRY_VARIABLE: Final = "SENTRY_DSN"
_DISABLED: Final = "OTEL_SDK_DISABLED"
_LOGGERS: Final = ("opentelemetry", "sentry_sdk", "urllib3")


class _LogLines(logging.Handler):
    """What these packages log goes the way of all log lines: redacted, and in the same format."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning(record.name.partition(".")[0], error=record.getMessage())


class Telemetry:
    """What was asked for. Without anything, all of it does nothing."""

    def __init__(self, traces: "Traces | None" = None, end_reports: Callable[[], None] | None = None) -> None:
        self._traces = traces
        self._end_reports = end_reports

    @property
    def is_on(self) -> bool:
        return self._traces is not None or self._end_reports is not None

    def tick(self) -> AbstractContextManager[object]:
        """To be entered for each tick."""
        return nullcontext() if self._traces is None else self._traces.tick()

    def to_providers(self, transport: Transport) -> Transport:
        """The transport, all of whose calls are traced."""
        if self._traces is None:
            return transport
        from forebay.wiring.traces import Traced  # noqa: PLC0415 (brings opentelemetry)

        return Traced(transport, self._traces)

    def to_kubernetes(self, transport: Transport) -> Transport:
        """The transport, whose writes are traced."""
        if self._traces is None:
            return transport
        from forebay.wiring.traces import Traced  # noqa: PLC0415 (brings opentelemetry)

        return Traced(transport, self._traces, kubernetes=True)

    def end(self) -> None:
        """Sends what is left. Blocks for some seconds at most."""
        if self._traces is not None:
            self._traces.end()
        if self._end_reports is not None:
            self._end_reports()


def start_telemetry(environment: Mapping[str, str], redactor: Redactor) -> Telemetry:
    """What the variables ask for. Says in the log what is on, and what is not and why."""
    telemetry = Telemetry(_started_traces(environment, redactor), _started_reports(environment, redactor))
    for name in _LOGGERS if telemetry.is_on else ():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [_LogLines(logging.WARNING)], False
    return telemetry


def _started_traces(environment: Mapping[str, str], redactor: Redactor) -> "Traces | None":
    named = next((each for each in OTLP_VARIABLES if environment.get(each)), None)
    if named is None or environment.get(_DISABLED, "").lower() == "true":
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        from forebay.wiring.traces import Traces  # noqa: PLC0415 (brings opentelemetry)
    except ImportError:
        _log_missing(named, "otel", "no traces are sent")
        return None
    log.info("traces are sent", to=environment[named])
    return Traces(OTLPSpanExporter(), redactor)


def _started_reports(environment: Mapping[str, str], redactor: Redactor) -> Callable[[], None] | None:
    dsn = environment.get(SENTRY_VARIABLE)
    if not dsn:
        return None
    try:
        from forebay.wiring.crash_reports import end_reports, start_reports  # noqa: PLC0415 (brings sentry_sdk)
    except ImportError:
        _log_missing(SENTRY_VARIABLE, "sentry", "no crashes are reported")
        return None
    try:
        start_reports(dsn, environment, redactor)
    except ValueError as error:
        log.warning(
            "telemetry is off", error=f"{SENTRY_VARIABLE} is no DSN of Sentry ({error}): no crashes are reported"
        )
        return None
    log.info("crashes are reported", to=urlsplit(dsn).hostname)
    return end_reports


def _log_missing(variable: str, extra: str, so: str) -> None:
    log.warning(
        "telemetry is off",
        error=f"{variable} is set, but {so}: pip install 'forebay[{extra}]', or unset {variable}",
    )
