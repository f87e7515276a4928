"""A transport that reads only: what would change something is refused here, whoever asks for it."""

from typing import Final

from forebay.net.transport import NeverSent, Request, Response, Transport

_SAFE_METHODS: Final = frozenset({"GET", "HEAD"})


class ReadOnly:
    """Passes on requests that change nothing at the server, and refuses all others before anything is sent."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    async def request(self, request: Request) -> Response:
        if request.method not in _SAFE_METHODS and not request.safe:
            raise NeverSent(f"{request}: not sent, because this is a dry run", request, lasting=True)
        return await self._inner.request(request)

    async def close(self) -> None:
        await self._inner.close()
