"""Logs of remote pods: from the provider while it has them, then from memory."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.names import MANAGED_MARK, REMOTE_PORTS_ANNOTATION, VIRTUAL_NODE
from forebay.engine.views import Views
from forebay.engine.virtual_node.log_tails import LogTails
from forebay.model.workloads import Pod
from forebay.offload.exit_code import nonce_of
from forebay.offload.log_view import LogQuery, LogRefused, LogView
from forebay.offload.record_progress import ReportedExit, container_of_pod
from forebay.providers.base import InstanceGone, LogLine, ProviderError, RunsContainers

_NOTHING: Final = ReportedExit()
#: Lines of the shell around a command, at the end of its log.
_OWN_LINES: Final = 2


class RemoteLogs:
    """Opens logs of pods on the virtual node."""

    def __init__(
        self,
        views: Views,
        provider_of: Callable[[GPUInstance], RunsContainers | None],
        tails: LogTails,
        reports: Callable[[], Mapping[str, ReportedExit]],
    ) -> None:
        self._views = views
        self._provider_of = provider_of
        self._tails = tails
        self._reports = reports

    async def open(self, namespace: str, pod: str, container: str, query: LogQuery) -> AsyncIterator[bytes]:
        """The log as text. Raises `LogRefused`, with what a kubelet would answer, before anything is returned."""
        found = self._pod(namespace, pod)
        record = container_of_pod(self._records(found))
        told = self._reports().get(record.uid, _NOTHING) if record is not None else _NOTHING
        if query.previous and told.restarts == 0:
            raise LogRefused(
                f'previous terminated container "{container}" in pod "{pod}" not found', HTTPStatus.BAD_REQUEST
            )
        asked = _asked(query, told)
        nonce = nonce_of(record.uid) if record is not None else ""
        view = LogView(replace(query, since=_later(asked.since, query.since)), nonce, restarts=asked.runs)
        ended = told.exit_code is not None
        follows = query.follow and not ended
        if follows:
            if (kept := self._tails.following(found.uid, tail=asked.tail, since=asked.since)) is not None:
                return _cut(_followed(view, None, kept), query.limit_bytes)
        elif (so_far := self._tails.so_far(found.uid, tail=asked.tail, since=asked.since, ended=ended)) is not None:
            # A request for each look at a log would leave none for launches: RunPod allows sixty a minute.
            return _whole(view, query, so_far)
        lines = self._from_provider(record, asked, follow=follows, ended=ended)
        try:
            first = await anext(lines, None)
        except InstanceGone:
            return _whole(view, query, self._kept(found, container, record))
        except ProviderError as error:
            raise LogRefused(f"The provider did not return the log: {error}", HTTPStatus.SERVICE_UNAVAILABLE) from None
        if follows:
            return _cut(_followed(view, first, lines), query.limit_bytes)
        rest = [] if first is None else [first]
        try:
            rest += [each async for each in lines]
        except ProviderError as error:
            raise LogRefused(f"The log broke off: {error}", HTTPStatus.SERVICE_UNAVAILABLE) from None
        return _whole(view, query, rest)

    def unsupported(self, command: str, namespace: str, pod: str) -> str:
        """What is said to somebody who wants more of a remote pod than its log."""
        found = self._views.pods.get((namespace, pod))
        record = None if found is None else container_of_pod(self._records(found))
        # No colon: API servers before 1.36 would read the text as YAML of a Status, and say "unknown error" instead.
        said = f"{command} is not supported by this provider, because the pod runs in a remote container."
        if record is None or record.status is None or record.status.instance_id is None:
            return f"{said} kubectl logs works."
        where = f"container {record.status.instance_id} at {record.spec.provider}"
        return (
            f"{said} kubectl logs works; for a shell, use the provider's own SSH access to {where}, which a Job with "
            f"port 22 in {REMOTE_PORTS_ANNOTATION} has where its image serves SSH."
        )

    def _pod(self, namespace: str, name: str) -> Pod:
        found = self._views.pods.get((namespace, name))
        if found is None or found.node != VIRTUAL_NODE:
            raise LogRefused(f'pod "{name}" not found on node {VIRTUAL_NODE}', HTTPStatus.NOT_FOUND)
        return found

    def _records(self, pod: Pod) -> list[GPUInstance]:
        return [
            each
            for each in self._views.instances.values()
            if not each.spec.delivers.has_node and any(ref.uid == pod.uid for ref in each.spec.pods)
        ]

    async def _from_provider(
        self, record: GPUInstance | None, asked: "_Asked", *, follow: bool, ended: bool
    ) -> AsyncIterator[LogLine]:
        """Raises `InstanceGone` where the provider has no such log (any more)."""
        instance = record.status.instance_id if record is not None and record.status is not None else None
        provider = self._provider_of(record) if record is not None else None
        if instance is None or provider is None:
            raise InstanceGone("No container.")
        tail = asked.tail + _OWN_LINES if asked.tail is not None and ended else asked.tail
        async for line in provider.logs(instance, follow=follow, since=asked.since, tail=tail):
            yield line

    def _kept(self, pod: Pod, container: str, record: GPUInstance | None) -> list[LogLine]:
        kept = self._tails.tail(pod.uid)
        if kept is not None:
            return list(kept)
        if pod.phase.ended:
            raise LogRefused(
                "The provider has deleted the log together with its container, and this Forebay has not read it.",
                HTTPStatus.NOT_FOUND,
            )
        if record is None and MANAGED_MARK not in pod.labels:
            raise LogRefused(
                f'container "{container}" in pod "{pod.name}" is waiting to start: NotSupported', HTTPStatus.BAD_REQUEST
            )
        why = (
            record.status.message if record is not None and record.status is not None else None
        ) or "not launched yet"
        raise LogRefused(
            f'container "{container}" in pod "{pod.name}" is waiting to start: ContainerCreating ({why})',
            HTTPStatus.BAD_REQUEST,
        )


class _Asked(NamedTuple):
    """Which lines are asked for."""

    tail: int | None
    since: datetime | None
    #: Runs of the command in these lines before the current one.
    runs: int = 0


def _asked(query: LogQuery, told: ReportedExit) -> _Asked:
    """Lines of the run that is shown: of a log that is long, earlier ones may not be had any more."""
    if not told.restarts:
        return _Asked(query.tail, query.since)
    if len(told.restarted) < min(told.restarts, 2) or (query.previous and told.restarts == 1):
        # Where a run begins is known from the lines before it only.
        return _Asked(None, None, told.restarts)
    # The shell pauses for longer than a second before it starts the command again.
    begins = told.restarted[0 if query.previous else -1] + timedelta(seconds=1)
    return _Asked(None, begins, 1) if query.previous else _Asked(query.tail, _later(begins, query.since))


def _later(*times: datetime | None) -> datetime | None:
    return max((each for each in times if each is not None), default=None)


async def _followed(view: LogView, first: LogLine | None, lines: AsyncIterator[LogLine]) -> AsyncIterator[bytes]:
    # A log that breaks off shows as the end of the stream, as with any kubelet.
    with suppress(ProviderError):
        if first is not None:
            yield b"".join(view.line(first.text, first.at))
        async for line in lines:
            if shown := view.line(line.text, line.at):
                yield b"".join(shown)
            if view.over:
                return
    yield b"".join(view.rest())


def _whole(view: LogView, query: LogQuery, lines: Sequence[LogLine]) -> AsyncIterator[bytes]:
    """A log that is complete. What the provider was not asked to leave out is left out here."""
    shown = [text for each in lines for text in view.line(each.text, each.at)]
    shown += view.rest()
    last = shown if query.tail is None else shown[len(shown) - min(query.tail, len(shown)) :]
    return _cut(_each(last), query.limit_bytes)


async def _each(lines: list[bytes]) -> AsyncIterator[bytes]:
    yield b"".join(lines)


async def _cut(chunks: AsyncIterator[bytes], most: int | None) -> AsyncIterator[bytes]:
    """The first bytes of a log, at most so many."""
    left = most
    async for chunk in chunks:
        shown = chunk if left is None else chunk[:left]
        if shown:
            yield shown
        if left is not None:
            left -= len(shown)
            if left == 0:
                return
