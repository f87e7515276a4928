"""Secrets for providers: cached until a server refuses them, registered with the redactor before their first use."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.model.secret_text import SecretText
from forebay.net.redaction import Redactor

#: Namespace of references to environment variables of the operator. No namespace of a cluster can have such a name.
VARIABLES: Final = "$environment"


class UnusableSecret(Exception):
    """A Secret or key is missing, forbidden or malformed: a person must act. The text says how."""


class SecretsUnavailable(Exception):
    """The API server did not answer: retry later."""


class SecretReader(Protocol):
    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """All keys of a Secret, decoded. Raises `UnusableSecret` or `SecretsUnavailable`."""
        ...


class WithVariables:
    """`SecretReader` that also reads environment variables of the operator (`variable_ref`)."""

    def __init__(self, reader: SecretReader, variables: Mapping[str, SecretText]) -> None:
        self._reader = reader
        self._variables = variables

    async def get(self, namespace: str, name: str) -> Mapping[str, bytes]:
        if namespace != VARIABLES:
            return await self._reader.get(namespace, name)
        return {name: self._variables[name].reveal().encode()} if name in self._variables else {}


def variable_ref(name: str) -> SecretKeyRef:
    """Reference to a secret in an environment variable. It never leaves the process."""
    return SecretKeyRef(name=name, key=name, namespace=VARIABLES)


class Secrets:
    """Cached Secrets. `namespace`, the operator's own, applies to references that name none."""

    def __init__(self, reader: SecretReader, namespace: str, redactor: Redactor) -> None:
        self._reader = reader
        self._namespace = namespace
        self.redactor = redactor
        self._cache: dict[tuple[str, str], Mapping[str, bytes]] = {}
        self._lock = asyncio.Lock()

    async def read(self, ref: SecretRef) -> Mapping[str, bytes]:
        return await self._read(ref.namespace, ref.name)

    async def value(self, ref: SecretKeyRef) -> bytes:
        found = await self._read(ref.namespace, ref.name)
        if ref.key not in found:
            raise UnusableSecret(f"{self.describe(ref)} has no key {ref.key}: add it, or name another key")
        return found[ref.key]

    def describe(self, ref: SecretKeyRef | SecretRef) -> str:
        """`Secret namespace/name`, for messages."""
        if ref.namespace == VARIABLES:
            return f"environment variable {ref.name}"
        return f"Secret {ref.namespace or self._namespace}/{ref.name}"

    def invalidate(self, *refs: SecretKeyRef | SecretRef | None) -> None:
        """Drops these Secrets from the cache, because a server refused what they hold."""
        for ref in refs:
            if ref is not None:
                self._cache.pop((ref.namespace or self._namespace, ref.name), None)

    async def _read(self, namespace: str | None, name: str) -> Mapping[str, bytes]:
        key = (namespace or self._namespace, name)
        async with self._lock:
            if key not in self._cache:
                found = await self._reader.get(*key)
                for value in found.values():
                    self.redactor.register(value)
                self._cache[key] = found
            return self._cache[key]
