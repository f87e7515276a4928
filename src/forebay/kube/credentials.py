"""Who we are to the API server, and how to become it again when the server no longer believes it."""

import asyncio
import base64
from pathlib import Path
from typing import Protocol

import msgspec

from forebay.kube.certificates import ClientCertificate
from forebay.kube.errors import ConfigError

#: The kubelet rotates a service account token well before it expires; a minute late is soon enough.
TOKEN_MAX_AGE = 60.0


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    #: The value of the Authorization field.
    authorization: str | None = None
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        held = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"Credential({', '.join(held)})"


class CredentialSource(Protocol):
    """A source of `Credential`s. Both raise `ConfigError` with one sentence when there is none to be had."""

    async def current(self) -> Credential: ...

    async def renewed(self, rejected: Credential) -> Credential:
        """What to try after a 401. The rejected one itself where there is nothing newer."""
        ...


class FixedCredential:
    """Written down once; nothing newer can come."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def renewed(self, rejected: Credential) -> Credential:  # noqa: ARG002 (the protocol's)
        return self._credential


class TokenFile:
    """A token that somebody else keeps fresh: read again once a minute and after a 401."""

    def __init__(
        self, path: Path, *, where: str, certificate: ClientCertificate | None = None, until_readable: str = ""
    ) -> None:
        self._path = path
        self._where = where
        self._certificate = certificate
        self._last = Credential(authorization=bearer(until_readable, where), certificate=certificate)
        self._ever = bool(until_readable)
        self._read_at: float | None = None

    async def current(self) -> Credential:
        age = None if self._read_at is None else asyncio.get_running_loop().time() - self._read_at
        return self._last if age is not None and age < TOKEN_MAX_AGE else self._read()

    async def renewed(self, rejected: Credential) -> Credential:  # noqa: ARG002 (the protocol's)
        return self._read()

    def _read(self) -> Credential:
        try:
            authorization = self._authorization()
        except ConfigError:
            # A rotation caught half-way must not take a working operator down: the last token serves until a 401.
            if self._ever:
                return self._last
            raise
        self._last = Credential(authorization=authorization, certificate=self._certificate)
        self._ever = True
        self._read_at = asyncio.get_running_loop().time()
        return self._last

    def _authorization(self) -> str:
        named = f"{self._where} names token file {self._path}"
        try:
            authorization = bearer(self._path.read_text(encoding="utf-8"), f"token file {self._path}")
        except OSError as error:
            raise ConfigError(f"{named}, which cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{named}, which cannot be read: it is not text") from None
        if authorization is None:
            raise ConfigError(f"{named}, which is empty")
        return authorization


def bearer(token: str, where: str) -> str | None:
    """The Authorization value of a token, which may hold only what a header field can carry."""
    token = token.strip()
    if not token:
        return None
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{where} has a token with spaces or control characters in it; paste it again")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
