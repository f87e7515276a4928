"""One control plane for all workers of a test run.

The first worker starts a keeper process, which runs the control plane and listens on a Unix socket. Every worker holds
a connection to it for as long as it needs the control plane: the kernel counts the references, and closes them for a
worker that was killed. When the last one is gone, the keeper ends everything, itself included. A start costs about
six seconds of both cores, so one for all beats one for each.
"""

import contextlib
import fcntl
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.rig.control_plane import START_LIMIT_SECONDS, Rig, RigFailed, Tier, scratch_root

FIRST_CLIENT_SECONDS = 5.0
#: What a worker says before it leaves when none of its tests failed: then nobody needs the logs.
ALL_WELL = b"all well\n"


@contextlib.contextmanager
def shared(run: str, tier: Tier) -> Iterator[tuple[Rig, socket.socket]]:
    """The control plane of this test run, started if this is its first user. Send `ALL_WELL` before leaving, if so."""
    meeting = scratch_root() / f"run-{run}-{tier}"
    # One lock for all runs: two that start at once would only slow each other down.
    with (scratch_root() / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        connection = _connect(meeting)
        if connection is None:
            _spawn(meeting, tier)
            connection = _connect(meeting)
        if connection is None:
            raise RigFailed("the keeper of the control plane left before anyone came")
    with connection:
        yield Rig.join(Path(meeting.with_suffix(".rig").read_text())), connection


def _connect(meeting: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(meeting.with_suffix(".sock")))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _spawn(meeting: Path, tier: Tier) -> None:
    report = meeting.with_suffix(".log")
    repository = Path(__file__).parents[2]
    with report.open("wb") as log:
        # Its own session: it outlives this worker when another one still needs it.
        keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.rig.keeper", str(meeting), tier],
            cwd=repository,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_LIMIT_SECONDS + 10
    while not meeting.with_suffix(".sock").exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.kill()
            keeper.wait()
            raise RigFailed(f"the control plane did not start:\n{report.read_text(errors='replace')}")
        time.sleep(0.02)
    # The last of the workers sees it end; this one forgets it without a ResourceWarning.
    keeper.returncode = 0


def keep(meeting: Path, tier: Tier) -> None:
    path = meeting.with_suffix(".sock")
    path.unlink(missing_ok=True)
    rig = Rig.start(tier)
    well = False
    try:
        meeting.with_suffix(".rig").write_text(str(rig.directory))
        with socket.socket(socket.AF_UNIX) as listener:
            # Bound under another name first: whoever sees the socket can connect to it.
            listener.bind(f"{path}.new")
            listener.listen(64)
            Path(f"{path}.new").rename(path)
            well = _serve(listener)
            path.unlink(missing_ok=True)
    finally:
        rig.stop(keep_logs=not well)
        for suffix in (".sock", ".rig", ".log"):
            meeting.with_suffix(suffix).unlink(missing_ok=True)


def _serve(listener: socket.socket) -> bool:
    """Hold on until everybody has gone; whether all of them left well."""
    well = True
    clients: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        patience: float | None = FIRST_CLIENT_SECONDS
        while True:
            ready = selector.select(patience)
            if not ready:
                return False
            patience = None
            for key, _ in ready:
                if key.fileobj is listener:
                    client, _ = listener.accept()
                    selector.register(client, selectors.EVENT_READ)
                    clients[client] = b""
                    continue
                client = key.fileobj  # type: ignore[assignment]
                said = b""
                with contextlib.suppress(ConnectionResetError):
                    said = client.recv(4096)
                if said:
                    clients[client] += said
                    continue
                well &= clients.pop(client).endswith(ALL_WELL)
                selector.unregister(client)
                client.close()
            if not clients:
                return well


if __name__ == "__main__":
    keep(Path(sys.argv[1]), Tier(sys.argv[2]))
