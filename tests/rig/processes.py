"""Processes that are gone when we are, and the traces by which a later run finds those that are not.

Three nets, each for where the one before has a hole: the owner ends them; the kernel kills them when the owner dies
(`PR_SET_PDEATHSIG`); the next run finds their pid files. A pid file names the start time of the process too, because
pids are used again: a stranger's process is never touched.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
#: No test run lasts this long: what a keeper left beside its directory has no owner any more.
STALE_SECONDS = 86400.0
_libc = ctypes.CDLL(None, use_errno=True)


def start_time(pid: int) -> int | None:
    """When the kernel says that the process started, in its own ticks; None when there is none (or only a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold blanks and brackets: fields are counted after its closing one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def _thread_states(pid: int) -> list[str]:
    states = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            states.append(stat.read_text().rpartition(")")[2].split()[0])
    return states


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def record(path: Path, pid: int) -> None:
    path.write_text(json.dumps({"pid": pid, "started": start_time(pid)}))


def recorded(path: Path) -> int | None:
    """The pid in the file, if that very process still runs."""
    try:
        entry = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    alive = entry["started"] is not None and start_time(entry["pid"]) == entry["started"]
    return entry["pid"] if alive else None


def sweep(root: Path) -> list[Path]:
    """Remove what dead owners left under `root`: their processes, then their directories."""
    removed = []
    for directory in root.iterdir() if root.exists() else ():
        if not directory.is_dir() or not (directory / "owner.pid").exists():
            continue
        if recorded(directory / "owner.pid") is not None:
            continue
        for file in directory.glob("pids/*.pid"):
            pid = recorded(file)
            if pid is not None and str(directory) in _command_line(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                _wait(lambda pid=pid: start_time(pid) is None, 5)
        shutil.rmtree(directory, ignore_errors=True)
        removed.append(directory)
    for file in root.glob("run-*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > STALE_SECONDS:
                file.unlink()
    return removed


def _wait(true: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class Process:
    """One program with its log and its pid file. Start it from the main thread, for the kernel's net hangs on it."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = list(command)
        self.environment = environment
        self.log = directory / "logs" / f"{name}.log"
        self._pid_file = directory / "pids" / f"{name}.pid"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def start(self) -> None:
        assert self.pid is None, f"{self.name} runs already"
        self.log.parent.mkdir(exist_ok=True)
        self._pid_file.parent.mkdir(exist_ok=True)
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if self.environment is None else {**os.environ, **self.environment},
                # Its own group: Ctrl-C in a terminal ends the tests, and the tests end this.
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (one prctl, prepared before the fork)
            )
        record(self._pid_file, self._process.pid)

    def stop(self, *, kill: bool = False, seconds: float = 10) -> None:
        """End it: politely for `seconds`, then not. Returns when it is gone."""
        process = self._process
        if process is not None and process.poll() is None:
            self.signal(signal.SIGKILL if kill else signal.SIGTERM)
            # A stopped process would sleep on its SIGTERM.
            self.signal(signal.SIGCONT)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                process.wait()
        self._process = None
        self._pid_file.unlink(missing_ok=True)

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def pause(self) -> None:
        """SIGSTOP, and not before every thread has stopped: on a busy machine some run on for a while."""
        self.signal(signal.SIGSTOP)
        pid = self.pid
        if pid is not None:
            _wait(lambda: all(state == "T" for state in _thread_states(pid)), 5)

    def tail(self, lines: int = 15) -> str:
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:]) or "(empty log)"
