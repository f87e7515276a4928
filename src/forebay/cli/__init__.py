"""The `forebay` command.

Belongs here: options, output and exit codes, one module per command, and the boundary where an error becomes a
sentence. Does not belong here: how anything is done; a command calls `wiring` and prints. Heavy imports wait inside the
functions that need them, so that `forebay --help` answers at once.

Exit codes: 0 it worked; 1 the answer is no; 2 bad input, or the cluster cannot be reached; 130 interrupted.
"""

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what it raises for the user is printed as one sentence, without a traceback."""
    from forebay.cli.commands import COMMANDS
    from forebay.cli.parser import UserError, parse
    from forebay.kube.errors import KubeError
    from forebay.net.transport import TransportError

    try:
        command, arguments, settings = parse(COMMANDS, sys.argv[1:] if argv is None else argv, os.environ)
        return command.run(arguments, settings)
    except (UserError, KubeError, TransportError) as error:
        print(f"forebay: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone. Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
