"""Who may read a page: everybody on this machine, or whom the cluster lets."""

from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from forebay.net.transport import Handler, Request, Response

_TEXT: Final = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`, an address or a name."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def for_this_machine(handler: Handler) -> Handler:
    """The handler for requests to a loopback name only.

    A website could have its own name resolve to 127.0.0.1 and read the page through the browser of whoever visits it.
    The browser still sends the name of that website.
    """

    async def handle(request: Request) -> Response:
        host = request.headers.get("Host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if not is_loopback(name.strip("[]")):
            return Response(HTTPStatus.FORBIDDEN, _TEXT, b"open this page as http://localhost or http://127.0.0.1\n")
        return await handler(request)

    return handle
