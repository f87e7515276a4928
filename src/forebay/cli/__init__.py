"""The `forebay` command.

Belongs here: options, output and exit codes, one module or folder per command, and the place where an exception becomes
one sentence for the user. Does not belong here: the work itself; a command calls `wiring`, `reporting` and `install`,
and prints. Heavy imports are inside the functions that need them, so that `forebay --help` stays fast.

Exit codes: 0 success; 1 the answer is no; 2 bad input, or the cluster cannot be reached; 130 interrupted.
"""

import errno
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130
#: A disk, or a user's share of it, is full.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors meant for the user are printed as one sentence, no traceback."""
    from forebay.cli.commands import COMMANDS
    from forebay.cli.output import print_line
    from forebay.cli.parser import UserError, parse
    from forebay.cli.watching import run_again_and_again
    from forebay.kube.errors import KubeError
    from forebay.net.transport import TransportError

    errors = (UserError, KubeError, TransportError)
    try:
        command, arguments, settings = parse(COMMANDS, sys.argv[1:] if argv is None else argv, os.environ)
        if command.watchable and arguments.watch:
            return run_again_and_again(command, arguments, settings, errors)
        code = command.run(arguments, settings)
        sys.stdout.flush()
    except errors as error:
        print_line(f"forebay: {error}", error=True)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe. Python would raise once more when it flushes stdout at exit.
        _forget_output()
        return 0
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # Not 1, which scripts take for an answer.
        _forget_output()
        print_line(f"forebay: the output could not be written: {error.strerror}", error=True)
        return 2
    return code


def _forget_output() -> None:
    """What is still buffered for standard output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
