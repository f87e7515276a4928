"""The address of this machine, or pod, by which another one can reach it."""

import socket
from typing import Final
from urllib.parse import urlsplit

#: No route depends on the port.
_ANY_PORT: Final = 443


def address_towards(url: str) -> str | None:
    """The local address of connections to the host of the URL; None where its name is unknown or there is no route.

    Nothing is sent: connecting a datagram socket only chooses the route.
    """
    try:
        found = socket.getaddrinfo(urlsplit(url).hostname, _ANY_PORT, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.connect(address)
            except OSError:
                continue
            return str(probe.getsockname()[0])
    return None
