"""The operator's pages, as one handler for each port: `/healthz`, `/readyz`, `/metrics`."""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from forebay.net.transport import Handler, Request, Response

_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


def pages(
    *,
    alive: Callable[[], str | None] | None = None,
    ready: Callable[[], str | None] | None = None,
    metrics: Callable[[], tuple[bytes, str]] | None = None,
) -> Handler:
    """Handler for those pages that are given. `alive` and `ready` return None, or the error to show; `metrics` returns
    the page and its content type.
    """
    given = {"/healthz": alive, "/readyz": ready, "/metrics": metrics}
    known = ", ".join(path for path, page in given.items() if page is not None)

    def health(error: str | None) -> Response:
        status = HTTPStatus.OK if error is None else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, _TEXT, f"{error or 'ok'}\n".encode())

    async def handle(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return Response(HTTPStatus.METHOD_NOT_ALLOWED, {**_TEXT, "Allow": "GET, HEAD"}, b"read only\n")
        match urlsplit(request.url).path:
            case "/healthz" | "/livez" if alive is not None:
                return health(alive())
            case "/readyz" if ready is not None:
                return health(ready())
            case "/metrics" if metrics is not None:
                page, content_type = metrics()
                return Response(HTTPStatus.OK, {"Content-Type": content_type}, page)
            case _:
                return Response(HTTPStatus.NOT_FOUND, _TEXT, f"not found; served here: {known}\n".encode())

    return handle
