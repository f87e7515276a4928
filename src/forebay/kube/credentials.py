"""Credentials for the API server, and how they are refreshed after a 401."""

import asyncio
import base64
from pathlib import Path
from typing import Protocol

import msgspec

from forebay.kube.certificates import ClientCertificate
from forebay.kube.errors import ConfigError

#: Seconds between reads of a token file. The kubelet rotates a service account token long before it expires.
TOKEN_MAX_AGE = 60.0


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    #: The value of the Authorization header.
    authorization: str | None = None
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        held = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"Credential({', '.join(held)})"


class CredentialSource(Protocol):
    """A source of `Credential`s. Both methods raise `ConfigError` when there is none."""

    async def current(self) -> Credential: ...

    async def renewed(self, rejected: Credential) -> Credential:
        """The credential to try after a 401: a newer one, or `rejected` itself if there is none."""
        ...


class FixedCredential:
    """A credential that never changes."""

    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    async def renewed(self, rejected: Credential) -> Credential:  # noqa: ARG002 (the protocol's)
        return self._credential


class TokenFile:
    """A token in a file that another process rotates: read once a minute and after a 401."""

    def __init__(
        self, path: Path, *, where: str, certificate: ClientCertificate | None = None, until_readable: str = ""
    ) -> None:
        self._path = path
        self._where = where
        self._certificate = certificate
        self._last = Credential(authorization=bearer(until_readable, where), certificate=certificate)
        self._has_token = bool(until_readable)
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
            # The file may be half-written by a rotation: keep using the last token until a 401.
            if self._has_token:
                return self._last
            raise
        self._last = Credential(authorization=authorization, certificate=self._certificate)
        self._has_token = True
        self._read_at = asyncio.get_running_loop().time()
        return self._last

    def _authorization(self) -> str:
        named = f"{self._where} names token file {self._path}"
        try:
            authorization = bearer(self._path.read_text(encoding="utf-8"), f"token file {self._path}")
        except OSError as error:
            raise ConfigError(f"{named}, which cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{named}, which cannot be read: the file is not text") from None
        if authorization is None:
            raise ConfigError(f"{named}, which is empty")
        return authorization


def bearer(token: str, where: str) -> str | None:
    """The Authorization header for a token; None for an empty token."""
    token = token.strip()
    if not token:
        return None
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{where} has a token with spaces or control characters; paste the token again")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    """The Authorization header for a username and password."""
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode("ascii")
