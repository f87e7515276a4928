"""The port of the virtual node, as one handler: what `kubectl logs` asks a kubelet for, and what it cannot have."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from forebay.net.transport import Handler, PeerCertificate, Request, Response
from forebay.offload.log_view import LogQuery, LogRefused

_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8"}
#: First words of the paths by which a kubelet is asked to do something in a container, with their command of kubectl.
_COMMANDS: Final = {
    "exec": "kubectl exec",
    "run": "kubectl exec",
    "attach": "kubectl attach",
    "portForward": "kubectl port-forward",
    "cp": "kubectl cp",
}
#: `containerLogs`, namespace, pod, container.
_PARTS_OF_A_LOG: Final = 4
#: Of an int64, as which Kubernetes reads these numbers.
_MOST_DIGITS: Final = 19

#: Opens the log of a container, by namespace, pod and container. Raises `LogRefused`.
OpenLog = Callable[[str, str, str, LogQuery], Awaitable[AsyncIterator[bytes]]]
#: Why a client may not do this (the verb of its authorization), or None.
Refusal = Callable[[PeerCertificate, str], Awaitable[str | None]]
#: What is said to somebody who wants more than logs, by command, namespace and pod.
Unsupported = Callable[[str, str, str], str]


def kubelet_port(
    *, open_log: OpenLog, refusal: Refusal, unsupported: Unsupported, clock: Callable[[], datetime]
) -> Handler:
    """Handler of the port. Everything on it needs a client certificate, and a permission for the node."""

    async def handle(request: Request) -> Response:
        if request.client is None:
            return _text(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        # As for a kubelet: whoever may only read cannot execute.
        verb = "get" if request.method in {"GET", "HEAD"} else "create"
        split = urlsplit(request.url)
        words = [unquote(each) for each in split.path.split("/") if each]
        if words and words[0] in _COMMANDS:
            verb = "create"
        refused = await refusal(request.client, verb)
        if refused is not None:
            return _text(HTTPStatus.FORBIDDEN, refused)
        match words:
            case [command, namespace, pod, *_] if command in _COMMANDS:
                return _text(HTTPStatus.NOT_IMPLEMENTED, unsupported(_COMMANDS[command], namespace, pod))
            case ["containerLogs", namespace, pod, container] if len(words) == _PARTS_OF_A_LOG and verb == "get":
                return await _log(namespace, pod, container, split.query)
            case _:
                return _text(HTTPStatus.NOT_FOUND, "Not found: a virtual node has no more than /containerLogs.")

    async def _log(namespace: str, pod: str, container: str, query: str) -> Response:
        try:
            lines = await open_log(namespace, pod, container, log_query(query, clock()))
        except LogRefused as refused:
            return _text(HTTPStatus(refused.status), str(refused))
        return Response(HTTPStatus.OK, _TEXT, lines)

    return handle


def log_query(query: str, now: datetime) -> LogQuery:
    """Options in the query of a URL. Raises `LogRefused` for one that cannot be read."""
    given = {name: values[-1] for name, values in parse_qs(query).items()}
    seconds, at = _number(given, "sinceSeconds"), given.get("sinceTime")
    try:
        since = datetime.fromisoformat(at) if at else None
    except ValueError:
        since = None
    if at and (since is None or since.tzinfo is None):
        raise LogRefused(f"sinceTime={at} is not an RFC 3339 time.", HTTPStatus.BAD_REQUEST)
    if seconds is not None:
        try:
            since = now - timedelta(seconds=seconds)
        except OverflowError:
            since = None
    return LogQuery(
        follow=given.get("follow") == "true",
        previous=given.get("previous") == "true",
        since=since,
        tail=_number(given, "tailLines"),
        limit_bytes=_number(given, "limitBytes"),
        timestamps=given.get("timestamps") == "true",
    )


def _number(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    # The length, too: Python refuses to read thousands of digits.
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise LogRefused(f"{name}={text} is not a whole number.", HTTPStatus.BAD_REQUEST)
    return int(text)


def _text(status: HTTPStatus, sentence: str) -> Response:
    return Response(status, _TEXT, f"{sentence}\n".encode())
