"""Where log lines go, and how they are written."""

import sys
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor

from forebay.net.redaction import Redactor
from forebay.reporting.printable import printable
from forebay.settings import Settings
from forebay.wiring.lossy_output import LossyOutput


def configure_logging(settings: Settings, *, level: str = "warning") -> Redactor:
    """Sends log lines to standard error, and returns the redactor that removes secrets from them.

    Code that reads a secret registers it with that redactor. `level` applies where the user has not set `log_level`.
    """
    redactor = Redactor()
    plain = settings.log_format == "text" or (settings.log_format == "auto" and sys.stderr.isatty())
    renderers: tuple[Processor, ...] = (
        (_printable_values, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()))
        if plain
        else (structlog.processors.JSONRenderer(),)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redactor,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(settings.log_level or level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", LossyOutput(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    return redactor


def _printable_values(_logger: object, _name: str, event: EventDict) -> EventDict:
    """Makes what others wrote safe on a terminal. Only for text: JSON escapes controls itself."""
    return {key: _printable_value(value) for key, value in event.items()}


def _printable_value(value: object) -> object:
    return "\n".join(printable(line) for line in value.split("\n")) if isinstance(value, str) else value
