"""`forebay run`: the operator."""

import argparse
import asyncio
import contextlib
import os
import signal

from forebay.cli.parser import Command, UserError
from forebay.settings import Settings, SettingsError


async def operate(settings: Settings) -> None:
    """Until SIGTERM or SIGINT, which end it in good order: work stops, then the lease is given back."""
    from forebay.wiring import configure_logging, run_operator

    redactor = configure_logging(settings, level="info")
    operator = asyncio.ensure_future(run_operator(settings, os.environ, redactor))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, operator.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await operator


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    try:
        asyncio.run(operate(settings))
    except SettingsError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot serve on {settings.health_server_address}: {error.strerror or error}") from error
    return 0


COMMAND = Command(
    name="run",
    summary="the operator",
    description="Run the operator. Of several replicas one leads, by a Lease in its namespace; the others stand by.",
    run=run,
)
