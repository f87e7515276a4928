"""The `forebay` command.

Belongs here: options, output and exit codes, one module or folder per command, and the place where an exception becomes
one sentence for the user. Does not belong here: the work itself; a command calls `wiring`, `reporting` and `install`,
and prints. Heavy imports are inside the functions that need them, so that `forebay --help` stays fast.

Exit codes: 0 success; 1 the answer is no; 2 bad input, or the cluster cannot be reached; 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["main"]

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors meant for the user are printed as one sentence, no traceback."""
    from forebay.wiring.lossy_output import no_room

    code = _run(argv)
    try:
        sys.stderr.flush()
    except OSError as error:
        if not no_room(error):
            raise
        # What is left there cannot be written. Python would try once more at exit, and exit with 120.
        _forget(sys.stderr)
    return code


def _run(argv: Sequence[str] | None) -> int:
    from forebay.cli.commands import COMMANDS
    from forebay.cli.parser import UserError, parse
    from forebay.cli.watching import run_again_and_again
    from forebay.kube.errors import KubeError
    from forebay.net.transport import TransportError
    from forebay.wiring.lossy_output import no_room

    errors = (UserError, KubeError, TransportError)
    try:
        command, arguments, settings = parse(COMMANDS, sys.argv[1:] if argv is None else argv, os.environ)
        if command.watchable and arguments.watch:
            return run_again_and_again(command, arguments, settings, errors)
        code = command.run(arguments, settings)
        sys.stdout.flush()
    except errors as error:
        _say(f"forebay: {error}")
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python would raise once more when it flushes stdout at exit.
        _forget(sys.stdout)
        return 0
    except OSError as error:
        if not no_room(error):
            raise
        # Not 1, which scripts take for an answer.
        _forget(sys.stdout)
        _say(f"forebay: the output could not be written: {error.strerror}")
        return 2
    return code


def _say(text: str) -> None:
    """Prints a line on standard error, where there is room for it: the exit code tells the same."""
    from forebay.cli.output import print_line
    from forebay.wiring.lossy_output import no_room

    try:
        print_line(text, error=True)
    except OSError as error:
        if not no_room(error):
            raise


def _forget(stream: TextIO) -> None:
    """What is still buffered for the stream goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
