"""What every provider must do. The docstrings are the contract; `tests/contract/providers` proves it for each.

ProviderError
├── NoCapacity        nothing was started: try another offer
├── RateLimited       nothing was started: ask again after `retry_after`
├── BadCredentials    nothing was started: a person must correct the Secret
├── Rejected          nothing was started, and the same request will be refused again
├── Unavailable       nothing was started (never sent, or refused as a whole): ask again later
├── OutcomeUnknown    sent, and what became of it is not known: list before asking again
└── InstanceGone      there is nothing (left) under that id
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

import msgspec

from forebay.model.requirements import Taint
from forebay.model.sources import Capabilities, Failure, FailureKind, Found, Instance, Offer


class ProviderError(Exception):
    """Its text is a sentence for people: what went wrong and what to do. Never a secret."""

    kind: ClassVar[FailureKind]

    def __init__(self, sentence: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after

    def failure(self) -> Failure:
        return Failure(kind=self.kind, sentence=str(self), retry_after=self.retry_after)


class NoCapacity(ProviderError):
    kind = FailureKind.NO_CAPACITY


class RateLimited(ProviderError):
    kind = FailureKind.RATE_LIMITED


class BadCredentials(ProviderError):
    kind = FailureKind.BAD_CREDENTIALS


class Rejected(ProviderError):
    kind = FailureKind.REJECTED


class Unavailable(ProviderError):
    kind = FailureKind.UNAVAILABLE


class OutcomeUnknown(ProviderError):
    kind = FailureKind.OUTCOME_UNKNOWN


class InstanceGone(ProviderError):
    kind = FailureKind.GONE


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One launch. `uid` is the identity: asked twice under it, a provider must not deliver two."""

    #: UID of the GPUInstance.
    uid: str
    #: Name of the GPUInstance, for people.
    name: str
    #: UID of the cluster: the mark under which `instances` finds it again.
    cluster: str
    offer: Offer
    node_name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tags: Mapping[str, str] = {}
    #: Counted up with each request under the same uid.
    attempt: int = 1


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the provider can be used as configured."""

    ok: bool
    #: What was tried and what to do about it.
    sentence: str


class Provider(Protocol):
    def capabilities(self) -> Capabilities:
        """Facts that never change while the process runs."""
        ...

    async def offers(self) -> Sequence[Offer]:
        """Everything that could be rented or switched on, complete or an error. What has no stock is left out or has
        `stock=0`.
        """
        ...

    async def launch(self, request: LaunchRequest) -> Instance:
        """Starts one instance, or raises. Any error but OutcomeUnknown promises that this request started nothing; it
        says nothing about earlier ones under the same uid, whose outcome may still be unknown.
        """
        ...

    async def instances(self) -> Found:
        """Everything with this cluster's mark, complete or an error. Pages are followed to the end."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """Asks for its end, for good (deleted, not stopped). Returns when the provider has accepted; proof of absence
        is `instances`. Raises InstanceGone when there is nothing left. Harmless to repeat.
        """
        ...

    async def check(self) -> Check:
        """Credentials, permissions, reachability: without starting anything. Does not raise for what it reports."""
        ...

    async def close(self) -> None: ...
