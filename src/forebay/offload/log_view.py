"""What `kubectl logs` shows of a remote container: the lines of one run of its command, without Forebay's own."""

from datetime import datetime

import msgspec

from forebay.offload.exit_code import is_report, read_report


class LogRefused(Exception):
    """There is no log to show. The text is for the person who asked; `status` is what a kubelet would answer."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `kubectl logs`."""

    follow: bool = False
    #: The run before the current one.
    previous: bool = False
    since: datetime | None = None
    #: At most so many lines, the last ones.
    tail: int | None = None
    limit_bytes: int | None = None
    timestamps: bool = False


class LogView:
    """Lines of one run, as they are read from the beginning of the container's log.

    A command that failed and was started again wrote into the same log: `restarts` is how often that is known to have
    happened. Shown is the last run, or with `previous` the one before it.
    """

    def __init__(self, query: LogQuery, nonce: str, *, restarts: int = 0) -> None:
        self._query = query
        self._nonce = nonce
        self._skipped = restarts - 1 if query.previous else restarts
        #: An empty line is shown once it is known that the shell did not write it to begin its own on a new line.
        self._held: tuple[bytes, ...] = ()
        #: Whether nothing that follows would be shown.
        self.over = False

    def line(self, text: str, at: datetime | None) -> tuple[bytes, ...]:
        """What is shown now that the next line has come: lines, oldest first, or none."""
        if self.over:
            return ()
        if is_report(text):
            self._held = ()
            self._end_of_run(text)
            return ()
        since = self._query.since
        if self._skipped > 0 or (since is not None and at is not None and at < since):
            return ()
        time = f"{_rfc3339(at)} " if self._query.timestamps and at is not None else ""
        shown = f"{time}{text}\n".encode()
        held, self._held = self._held, ()
        if not text:
            self._held = (shown,)
            return held
        return (*held, shown)

    def rest(self) -> tuple[bytes, ...]:
        """What was held back, at the end of the log."""
        held, self._held = self._held, ()
        return () if self.over else held

    def _end_of_run(self, text: str) -> None:
        report = read_report(text, self._nonce)
        if report is None:
            return
        if self._skipped > 0:
            self._skipped -= 1
        elif not report.restarts or self._query.previous:
            self.over = True


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
