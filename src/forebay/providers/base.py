"""The contract of every provider. `tests/contract/providers` checks what the docstrings here promise.

ProviderError
├── NoCapacity        nothing was launched: try another offer
├── RateLimited       nothing was launched: retry after `retry_after`
├── BadCredentials    nothing was launched: a person must correct the Secret
├── Rejected          nothing was launched, and the same request would be refused again
├── Unavailable       nothing was launched (never sent, or refused as a whole): retry later
├── OutcomeUnknown    the request was sent and its outcome is unknown: list before retrying
└── InstanceGone      no instance (any more) has that id
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Protocol

import msgspec

from forebay.model.requirements import Taint
from forebay.model.sources import Capabilities, Failure, FailureKind, Found, Instance, Offer


class ProviderError(Exception):
    """A failed provider call. The text is for people: what went wrong and what to do. It holds no secret."""

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
    """One launch. `uid` is its identity: two requests with the same uid must not launch two instances."""

    #: UID of the GPUInstance.
    uid: str
    #: Name of the GPUInstance, for people.
    name: str
    #: UID of the cluster, by which `instances` finds the instance again.
    cluster: str
    offer: Offer
    node_name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    #: Number of this request among those with the same uid, from 1.
    attempt: int = 1


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the provider can be used as configured."""

    ok: bool
    #: What was checked, and what to do where it failed.
    sentence: str


class Provider(Protocol):
    """A source of machines. Calls raise `ProviderError`."""

    def capabilities(self) -> Capabilities:
        """Properties of the provider, constant while the process runs."""
        ...

    async def offers(self) -> Sequence[Offer]:
        """Every offer that can be launched: a complete answer or an error. Offers without stock are omitted or have
        `stock=0`.
        """
        ...

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launches one instance, or raises. Any error but `OutcomeUnknown` promises that this request launched nothing;
        it says nothing about earlier requests with the same uid, whose outcome may still be unknown.
        """
        ...

    async def instances(self) -> Found:
        """Every instance of this cluster: a complete answer (all pages) or an error."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """Terminates the instance for good (deleted, not stopped). Returns when the provider has accepted; that the
        instance is gone is proven by `instances` only. Raises `InstanceGone` where it is gone already. Safe to repeat.
        """
        ...

    async def check(self) -> Check:
        """Checks credentials, permissions and reachability without launching anything. Returns errors, raises none."""
        ...

    async def close(self) -> None: ...
