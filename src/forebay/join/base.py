"""The contract of every join credential.

A credential is planned, made, used and revoked, in this order:

1. `planned` names it. The name is written into the GPUInstance (`status.secondaryResources`) before anything is made.
2. `make` makes it, and returns its secret values, which live in memory only. After a crash they are lost: the next
   launch call has credentials of its own, and those of the former one are revoked by their names.
3. `revoke` takes it away, on every path: the machine has joined, will not join, or was never launched.
"""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Protocol

from forebay.api.gpu_instance import GPUInstance, SecondaryResource


class JoinError(Exception):
    """A credential could not be made or revoked: retry later. The text says why, and holds no secret."""


class JoinRejected(JoinError):
    """A person must correct the class first: the same launch would fail again."""


class Made(NamedTuple):
    """A credential that exists."""

    #: As planned, with its id where it has one.
    resource: SecondaryResource
    #: Values for the template of the boot payload, by variable: secret, never stored or logged.
    values: Mapping[str, str]
    #: What people should know about how this machine joins, in a sentence.
    note: str | None = None

    def __repr__(self) -> str:
        return f"Made({self.resource.kind} {self.resource.name}, values of {', '.join(self.values)})"


class JoinCredential(Protocol):
    """Makes and revokes one kind of credential."""

    kind: ClassVar[str]

    def planned(self, record: GPUInstance, attempt: int) -> SecondaryResource:
        """The credential for this launch call: the same for the same record and attempt, another for any other."""
        ...

    async def make(self, record: GPUInstance, planned: SecondaryResource) -> Made:
        """Makes it. Raises `JoinError`, after which it may or may not exist: revoke it by its name."""
        ...

    async def revoke(self, resource: SecondaryResource) -> None:
        """Takes it away, whether it was ever made or not. Returns only when it is gone for sure; else `JoinError`."""
        ...
