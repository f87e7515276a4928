"""How the exit code of a remote command comes back: a POSIX shell reports it in the log, under a nonce.

Providers of containers tell that a container has exited, not with which code, and start it again. So the command runs
under a shell that writes its exit code as a line of the log and then waits to be terminated. The nonce keeps a program
whose output resembles such a line from ending its own pod by accident.
"""

import hashlib
import re
import shlex
from typing import Final

import msgspec

#: Arguments: the nonce, the restart policy, the working directory (or ""), the number of directories to make, those,
#: then the command. Only what POSIX demands of a shell is used. `wait` ends early at a signal: hence the loop.
#: A signal that comes while the report is written has set `stop`, which is asked for once nothing sets it any more.
_SCRIPT: Final = """\
nonce=$1 policy=$2 dir=$3 n=$4 child= stop=
shift 4
end() {
printf '\\nforebay-exit %s %s\\n' "$nonce" "$1"
trap 'kill "$child" 2>/dev/null; exit 0' TERM INT
[ -z "$stop" ] || exit "$1"
while :; do sleep 3600 >/dev/null 2>&1 & child=$!; wait "$child"; done
}
while [ "$n" -gt 0 ]; do mkdir -p "$1" || end 126; shift; n=$((n-1)); done
if [ -n "$dir" ]; then mkdir -p "$dir" && cd "$dir" || end 126; fi
trap 'stop=1; kill -TERM "$child" 2>/dev/null' TERM INT
pause=10
while :; do
"$@" &
child=$!
while :; do wait "$child"; code=$?; kill -0 "$child" 2>/dev/null || break; done
if [ -n "$stop" ] || [ "$policy" != OnFailure ] || [ "$code" -eq 0 ]; then end "$code"; fi
printf '\\nforebay-restart %s %s\\n' "$nonce" "$code"
n=$pause
while [ "$n" -gt 0 ] && [ -z "$stop" ]; do sleep 1; n=$((n-1)); done
[ -z "$stop" ] || end "$code"
pause=$((pause*2)); if [ "$pause" -gt 300 ]; then pause=300; fi
done"""
_LINE: Final = re.compile(r"forebay-(exit|restart) ([0-9a-f]{32}) (\d{1,3})")


class ExitReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the shell reported: the command has exited, and either ends the container or runs again."""

    exit_code: int
    restarts: bool = False


def nonce_of(instance_uid: str) -> str:
    """Nonce of the container of a GPUInstance: the same for whoever leads next."""
    return hashlib.sha256(f"forebay exit {instance_uid}".encode()).hexdigest()[:32]


def wrapped(
    command: tuple[str, ...],
    nonce: str,
    *,
    restart_policy: str = "Never",
    working_dir: str = "",
    directories: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """The command under the shell that reports its exit code; `directories` are made first."""
    return (
        "/bin/sh",
        "-c",
        _SCRIPT,
        "forebay",
        nonce,
        restart_policy,
        working_dir,
        str(len(directories)),
        *directories,
        *command,
    )


def read_report(line: str, nonce: str) -> ExitReport | None:
    """What a line of the log reports; None for a line of the user's own."""
    found = _LINE.fullmatch(line.strip("\r\n"))
    if found is None or found[2] != nonce:
        return None
    return ExitReport(exit_code=int(found[3]), restarts=found[1] == "restart")


def is_report(line: str) -> bool:
    """Whether the line is the shell's and not the user's, so that `kubectl logs` leaves it out."""
    return _LINE.fullmatch(line.strip("\r\n")) is not None


def shell_words(command: tuple[str, ...]) -> str:
    """The command as one string, for a provider that takes it so and splits it as a POSIX shell does."""
    return shlex.join(command)
