"""Reports to Sentry: each log line that has a traceback, such as that of a tick that failed.

Imported only where reports are asked for. They have passed the redactor, and hold nothing that Sentry's SDK would
collect by itself: no values of variables, arguments, requests or host names.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import sentry_sdk
import structlog
from structlog.typing import EventDict

from forebay import __version__
from forebay.api.names import OPERATOR_NAME
from forebay.net.redaction import Redactor

#: Seconds that the last reports may take at the end.
_FLUSH: Final = 2.0
_LEVELS: Final = frozenset({"error", "exception", "critical"})


def start_reports(dsn: str, environment: Mapping[str, str], redactor: Redactor) -> None:
    """From now on log lines with a traceback are reported, too. Raises `ValueError` where the DSN is none."""
    redactor.register(urlsplit(dsn).username or "")
    sentry_sdk.init(
        dsn=dsn,
        release=f"{OPERATOR_NAME}@{__version__}",
        environment=environment.get("SENTRY_ENVIRONMENT"),
        default_integrations=False,
        auto_enabling_integrations=False,
        include_local_variables=False,
        server_name="",
        before_send=lambda event, _hint: redacted(event, redactor),
    )
    structlog.configure(processors=[_report, *structlog.get_config()["processors"]])


def end_reports() -> None:
    """Sends what is left. Blocks for some seconds at most."""
    sentry_sdk.flush(_FLUSH)


def redacted(value: Any, redactor: Redactor) -> Any:
    """The same with every text redacted."""
    match value:
        case str():
            return redactor.text(value)
        case dict():
            return {key: redacted(each, redactor) for key, each in value.items()}
        case list() | tuple():
            return [redacted(each, redactor) for each in value]
        case _:
            return value


def _report(_logger: object, method: str, event: EventDict) -> EventDict:
    """Must come before exceptions are formatted. The line goes on as it is."""
    found = event.get("exc_info")
    error = sys.exc_info()[1] if found is True else found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException) and method in _LEVELS:
        with sentry_sdk.new_scope() as scope:
            scope.set_tag("event", str(event.get("event")))
            if "object" in event:
                scope.set_extra("object", str(event["object"]))
            scope.capture_exception(error)
    return event
