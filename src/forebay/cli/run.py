"""`forebay run`: runs the operator."""

import argparse
import asyncio
import contextlib
import os

from forebay.cli.end_signals import on_end_signals
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings, SettingsError


async def operate(settings: Settings) -> None:
    """Run the operator until a signal ends it. Then work stops first, and then the lease is released."""
    from forebay.wiring.logs import configure_logging
    from forebay.wiring.operator import run_operator

    redactor = configure_logging(settings, level="info")
    operator = asyncio.ensure_future(run_operator(settings, os.environ, redactor))
    on_end_signals(operator.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await operator


def check(settings: Settings) -> None:
    from forebay.wiring.run_settings import check_settings

    check_settings(settings)


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.net.server_certificate import NoCertificate

    try:
        asyncio.run(operate(settings))
    except SettingsError as error:
        raise UserError(str(error)) from error
    except NoCertificate as error:
        raise UserError(f"--metrics-cert-path: {error}") from error
    except OSError as error:
        addresses = (settings.health_server_address, settings.metrics_bind_address, settings.web_address)
        served = ", ".join(each for each in addresses if each != "0")
        raise UserError(f"cannot serve on {served}: {error.strerror or error}") from error
    return 0


COMMAND = Command(
    name="run",
    summary="run the operator",
    description="Run the operator. Several replicas use leader election (a Lease in the operator's namespace):\n"
    "one acts, the others are standby.\n\n"
    "Signals: SIGTERM, SIGINT and SIGHUP end it in order; SIGUSR1 saves the last snapshot, without secrets, to a\n"
    "file that the log names and `forebay plan -f` and `explain -f` read; SIGUSR2 changes the log level to debug,\n"
    "and back.",
    check=check,
    run=run,
)
