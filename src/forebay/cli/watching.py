"""`--watch`: a command's output again and again, in place on a terminal, until Ctrl-C."""

import argparse
import contextlib
import io
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from forebay.cli.output import print_line

if TYPE_CHECKING:
    from forebay.cli.parser import Command
    from forebay.settings import Settings

_EVERY_S: Final = 5.0
_SHORTEST_S, _LONGEST_S = 0.5, 86_400.0
#: To the upper left corner; after the new output, whatever the old one had beyond it.
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K\n", "\x1b[J"


def add_watch_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="show it again and again, until Ctrl-C")
    parser.add_argument(
        "--every",
        type=_seconds,
        default=_EVERY_S,
        metavar="SECONDS",
        help=f"time between two times of --watch (default: {_EVERY_S:g})",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {_SHORTEST_S:g} on")
    return seconds


class _Buffer(io.StringIO):
    """Output that is shown at once when it is complete. What is written is wrapped as for where it is shown."""

    def isatty(self) -> bool:
        return sys.__stdout__ is not None and sys.__stdout__.isatty()


def run_again_and_again(
    command: "Command", arguments: argparse.Namespace, settings: "Settings", errors: tuple[type[Exception], ...]
) -> int:
    """Runs until interrupted. An error is shown in place of the output: the cluster may come back."""
    # A shell that starts the command in the background has it ignore Ctrl-C, and there is no other end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        while True:
            buffer = _Buffer()
            failed = None
            with contextlib.redirect_stdout(buffer):
                try:
                    command.run(arguments, settings)
                except errors as error:
                    failed = error
            _show(buffer.getvalue(), on_terminal=buffer.isatty())
            if failed is not None:
                print_line(f"forebay: {failed}", error=True)
            time.sleep(arguments.every)
    except KeyboardInterrupt:
        return 0


def _show(text: str, *, on_terminal: bool) -> None:
    if on_terminal:
        # Line by line over the old output, because a cleared screen flickers.
        text = _HOME + text.replace("\n", _CLEAR_LINE) + _CLEAR_BELOW
    sys.stdout.write(text)
    sys.stdout.flush()
