"""Spans of OpenTelemetry: of ticks, of calls to providers, and of writes to Kubernetes.

Imported only where traces are asked for. Attributes have passed the redactor, and never hold bodies, headers or
queries.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, get_current_span

from forebay import __version__
from forebay.api.names import OPERATOR_NAME
from forebay.net.redaction import Redactor
from forebay.net.transport import Request, Response, Transport, TransportError

#: Nanoseconds. Work that goes on for longer after the tick that began it is no part of that tick.
_PART_OF_TICK: Final = 60 * 10**9
_READS: Final = frozenset({"GET", "HEAD"})
_FIRST_ERROR: Final = 400
#: Seconds that the last spans may take at the end.
_END: Final = 2.0


class Traces:
    """Makes the spans, and gives them to an exporter in batches, from a thread of their own."""

    def __init__(self, exporter: SpanExporter, redactor: Redactor) -> None:
        own = Resource({SERVICE_NAME: OPERATOR_NAME, SERVICE_VERSION: __version__})
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go before.
        resource = own.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(OPERATOR_NAME, __version__)
        self._redactor = redactor

    def tick(self) -> AbstractContextManager[object]:
        """What is called in here, and beside the loop because of it, is a part of this tick."""
        return self._tracer.start_as_current_span("tick")

    @contextmanager
    def call(self, name: str, request: Request, *, with_path: bool) -> Iterator[Span]:
        """Without the path where that may be a secret, as in the address of a webhook."""
        parts = urlsplit(request.url)
        attributes = {"http.request.method": request.method, "server.address": parts.hostname or ""}
        if with_path:
            attributes["url.path"] = self._redactor.text(parts.path)
        context, links = _parent(request)
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except TransportError as error:
                span.set_attribute("error.type", type(error).__name__)
                # The message has the path, too.
                span.set_status(Status(StatusCode.ERROR, self._redactor.text(str(error)) if with_path else None))
                raise

    def flush(self) -> None:
        """Gives what there is to the exporter."""
        self._provider.force_flush()

    def end(self) -> None:
        """Sends what is left. Blocks for two seconds at most; the exporter would retry for longer."""
        last = Thread(target=self._provider.shutdown, daemon=True, name="last spans")
        last.start()
        last.join(_END)


class Traced:
    """A transport whose calls are spans: all of them, or to Kubernetes those that change something."""

    def __init__(self, inner: Transport, traces: Traces, *, kubernetes: bool = False) -> None:
        self._inner = inner
        self._traces = traces
        self._kubernetes = kubernetes

    async def request(self, request: Request) -> Response:
        if self._kubernetes and request.method in _READS:
            return await self._inner.request(request)
        name = f"{request.method} {'kubernetes' if self._kubernetes else urlsplit(request.url).hostname}"
        with self._traces.call(name, request, with_path=self._kubernetes) as span:
            response = await self._inner.request(request)
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= _FIRST_ERROR:
                span.set_attribute("error.type", str(response.status))
                span.set_status(Status(StatusCode.ERROR))
            return response

    async def close(self) -> None:
        await self._inner.close()


def _parent(request: Request) -> tuple[Context | None, list[Link]]:
    """What a call is a part of. Reads begin a trace of their own: they are made at intervals, and no tick waits for
    them. So do calls of what an old tick has started; they name it.
    """
    if request.method in _READS:
        return Context(), []
    span = get_current_span()
    ended = getattr(span, "end_time", None)
    if ended is None or time.time_ns() - ended < _PART_OF_TICK:
        return None, []
    return Context(), [Link(span.get_span_context())]
