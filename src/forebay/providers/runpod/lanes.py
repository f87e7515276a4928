"""Which of the requests to RunPod wait for their turn together: 60 a minute must do for everything."""

from typing import Final
from urllib.parse import urlsplit

from forebay.net.rate_budget import Lane
from forebay.net.transport import Request
from forebay.providers.runpod.wire import PODS

#: One request shows all containers, and a few look for those that it lacks. Every status, and every proof of absence,
#: waits for it.
_LISTING: Final = Lane("listing", 100)
#: Until then the container is billed.
_TERMINATION: Final = Lane("termination", 4)
_CREATION: Final = Lane("creation")
#: Streams of a thousand containers must not keep a new one waiting, nor the other way round.
_LOG: Final = Lane("log")
_CATALOGUE: Final = Lane("catalogue")


def lane_of(request: Request) -> Lane:
    path = urlsplit(request.url).path
    if request.method == "DELETE":
        return _TERMINATION
    if request.method == "POST":
        return _CREATION
    if path.endswith("/logs"):
        return _LOG
    return _LISTING if path.endswith(PODS) or f"{PODS}/" in path else _CATALOGUE
