"""Secrets as providers read them: kept until they are doubted, and known to the redactor before anybody uses them."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.net.redaction import Redactor


class NoSecret(Exception):
    """There is no such Secret or key, or it may not be read: a person must act. The text says how."""


class SecretsUnavailable(Exception):
    """The API server did not answer: ask again later."""


class SecretReader(Protocol):
    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Every key of a Secret, decoded. Raises `NoSecret` or `SecretsUnavailable`."""
        ...


class Secrets:
    """`namespace` is where Secrets are looked for that name none: the one Forebay runs in."""

    def __init__(self, reader: SecretReader, namespace: str, redactor: Redactor) -> None:
        self._reader = reader
        self._namespace = namespace
        self.redactor = redactor
        self._known: dict[tuple[str, str], Mapping[str, bytes]] = {}
        self._reading = asyncio.Lock()

    async def whole(self, ref: SecretRef) -> Mapping[str, bytes]:
        return await self._read(ref.namespace, ref.name)

    async def value(self, ref: SecretKeyRef) -> bytes:
        found = await self._read(ref.namespace, ref.name)
        if ref.key not in found:
            raise NoSecret(f"{self.where(ref)} has no key {ref.key}: add it, or name another one")
        return found[ref.key]

    def where(self, ref: SecretKeyRef | SecretRef) -> str:
        """For sentences."""
        return f"Secret {ref.namespace or self._namespace}/{ref.name}"

    def doubt(self, *refs: SecretKeyRef | SecretRef | None) -> None:
        """Somebody refused what they hold: they are read again before they are used again."""
        for ref in refs:
            if ref is not None:
                self._known.pop((ref.namespace or self._namespace, ref.name), None)

    async def _read(self, namespace: str | None, name: str) -> Mapping[str, bytes]:
        key = (namespace or self._namespace, name)
        async with self._reading:
            if key not in self._known:
                found = await self._reader.get(*key)
                for value in found.values():
                    self.redactor.register(value)
                self._known[key] = found
            return self._known[key]
