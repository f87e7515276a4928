"""The contract of every provider. `tests/contract/providers` checks what the docstrings here promise.

ProviderError
├── NoCapacity        nothing was launched: try another offer
├── QuotaReached      nothing was launched: the account may not have more of these
├── RateLimited       nothing was launched: retry after `retry_after`
├── BadCredentials    nothing was launched: a person must correct the Secret
├── Rejected          nothing was launched, and the same request would be refused again
├── Unavailable       nothing was launched (never sent, or refused as a whole): retry later
├── OutcomeUnknown    the request was sent and its outcome is unknown: list before retrying
└── InstanceGone      no instance (any more) has that id

Each error has a scope, which says how much cools down: the offer, its zone, or the whole source. The class of the error
has the usual one; a provider that knows better passes `scope`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import ClassVar, Protocol, runtime_checkable

import msgspec

from forebay.model.containers import ContainerSpec
from forebay.model.requirements import Taint
from forebay.model.secret_text import SecretText
from forebay.model.sources import Capabilities, Check, Failure, FailureKind, FailureScope, Found, Instance, Offer


class ProviderError(Exception):
    """A failed provider call. The text is for people: what went wrong and what to do. It holds no secret."""

    kind: ClassVar[FailureKind]
    usual_scope: ClassVar[FailureScope] = FailureScope.OFFER

    def __init__(
        self, sentence: str, *, retry_after: timedelta | None = None, scope: FailureScope | None = None
    ) -> None:
        super().__init__(sentence)
        self.retry_after = retry_after
        self.scope = scope or self.usual_scope

    def failure(self) -> Failure:
        return Failure(kind=self.kind, sentence=str(self), scope=self.scope, retry_after=self.retry_after)


class NoCapacity(ProviderError):
    kind = FailureKind.NO_CAPACITY


class QuotaReached(ProviderError):
    kind = FailureKind.QUOTA
    usual_scope = FailureScope.SOURCE


class RateLimited(ProviderError):
    kind = FailureKind.RATE_LIMITED
    usual_scope = FailureScope.SOURCE


class BadCredentials(ProviderError):
    kind = FailureKind.BAD_CREDENTIALS
    usual_scope = FailureScope.SOURCE


class Rejected(ProviderError):
    kind = FailureKind.REJECTED


class Unavailable(ProviderError):
    kind = FailureKind.UNAVAILABLE
    usual_scope = FailureScope.SOURCE


class OutcomeUnknown(ProviderError):
    kind = FailureKind.OUTCOME_UNKNOWN


class InstanceGone(ProviderError):
    kind = FailureKind.GONE


class BootKind(StrEnum):
    """Form of a boot payload: which field of the provider it goes into."""

    #: Cloud-init user data.
    CLOUD_INIT = "CloudInit"
    #: A shell script that runs at the first boot.
    SCRIPT = "Script"
    #: A Talos machine config.
    TALOS = "Talos"


class BootPayload(msgspec.Struct, frozen=True, kw_only=True):
    """What a rented machine is told at its first boot. Holds the credentials with which it joins."""

    kind: BootKind
    text: SecretText


class LaunchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One launch. `uid` is its identity: two requests with the same uid must not launch two instances.

    All of it comes from the GPUInstance, but for the secrets in `boot` and `container`: these exist in memory only, and
    appear neither in the repr of a request nor in what a provider logs, raises or returns.
    """

    #: UID of the GPUInstance.
    uid: str
    #: Name of the GPUInstance, for people.
    name: str
    #: UID of the cluster, by which `instances` finds the instance again.
    cluster: str
    offer: Offer
    #: Name under which the machine must register; "" for a container.
    node_name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    #: Taints that the node must register with besides, and that go later: Forebay's own and those of the pool.
    startup_taints: tuple[Taint, ...] = ()
    #: Number of this request among those with the same uid, from 1.
    attempt: int = 1
    #: For a rented machine: how it joins. None: it is installed already.
    boot: BootPayload | None = None
    #: Image that a rented machine boots, as the class names it; None: the provider's usual one.
    image: str | None = None
    #: For a container.
    container: ContainerSpec | None = None
    #: Tags of the class, for everything that is rented; a provider without tags ignores them.
    tags: Mapping[str, str] = {}
    #: The provider ends the instance by itself after this long. Given only where it has a dead-man switch.
    max_run_time: timedelta | None = None
    #: Instance group that gets one more member; only for groups of a NodeProvisioner.
    group: str | None = None


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
        """Every instance of this cluster: a complete answer (all pages) or an error. With `Found.account`, what is in
        another account is not taken for gone once the class has other credentials.
        """
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


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a container has written."""

    #: None where the provider does not tell.
    at: datetime | None = None
    text: str


@runtime_checkable
class RunsContainers(Protocol):
    """What a provider of containers adds to `Provider`."""

    def logs(
        self,
        instance_id: str,
        *,
        follow: bool = False,
        since: datetime | None = None,
        tail: int | None = None,
        opened: Callable[[], None] | None = None,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncIterator[LogLine]:
        """What the container has written, oldest first, not before `since` and at most the last `tail` lines of it.

        `opened` is called when the provider has begun to answer: a container may write nothing for hours. With
        `follow`, further lines are returned as they are written, until the container has ended; where a stream has to
        be opened again for that, `turn` is awaited before, and `opened` is called again. Raises
        `InstanceGone` where no log is left, and any other `ProviderError`; a log that broke off raises, and never just
        ends. The lines are the user's: nothing is added to them and nothing redacted.
        """
        ...


@runtime_checkable
class TellsIdleContainers(Protocol):
    """What a provider of containers adds whose listings tell how busy each container is."""

    def idle_containers(self) -> Collection[str]:
        """Ids of containers that run, and whose GPUs did nothing when they were last listed.

        A hint and no proof: the command of such a container may have ended, or may be reading its data.
        """
        ...


@runtime_checkable
class KeepsRegistryCredentials(Protocol):
    """What a provider of containers adds that pulls private images with credentials kept at the provider."""

    async def registry_credentials(self) -> Mapping[str, Sequence[str]]:
        """Ids of all credentials of the account, by name (several may have one): a complete answer or an error."""
        ...

    async def create_registry_credential(self, name: str, username: str, password: SecretText) -> str:
        """Creates credentials and returns their id. After `OutcomeUnknown` they are found by their name."""
        ...

    async def delete_registry_credential(self, credential_id: str) -> None:
        """Deletes credentials. Those that do not exist (any more) are deleted already; those in use are not deleted,
        and `Rejected` is raised.
        """
        ...


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """One machine of an instance group, or one that the group was asked for."""

    #: Name in the group, which is also the name of its node.
    name: str
    #: None while only its creation was asked for.
    instance: Instance | None = None
    #: Why the group could not create it so far; it goes on trying.
    failure: Failure | None = None


class GroupMembers(msgspec.Struct, frozen=True, kw_only=True):
    """A complete list of a group's members: a name that is not in it is not in the group."""

    members: tuple[GroupMember, ...] = ()
    #: How many the group tries to have.
    target: int
    #: When the billing of members ended that are no members any more, by name, where the provider tells.
    ended: Mapping[str, datetime] = {}
    #: What a member is, with its price; None where that is not known (yet): then the group is not grown.
    offer: Offer | None = None
    #: Whether the group names new members itself.
    chooses_names: bool = False
    #: What works against Forebay in this group, and what to do about it.
    problem: str | None = None


@runtime_checkable
class HasGroups(Protocol):
    """What a provider of instance groups adds to `Provider`. Groups belong to the user; Forebay only sizes them."""

    async def account(self) -> str:
        """The account that the groups are in, as in `Found.account`."""
        ...

    async def members(self, group: str) -> GroupMembers:
        """All members of the group: a complete answer (all pages) or an error. Raises `Rejected` where there is no such
        group.
        """
        ...

    async def grow(self, group: str, names: Collection[str]) -> Mapping[str, str]:
        """Adds members of exactly these names. Names that are members already are left as they are, so that a repeated
        call creates no second machine. Returns when the provider has accepted; `members` shows what comes of it. Any
        error but `OutcomeUnknown` promises that nothing was created.

        Of a group that names its members itself, it returns their names by those that were asked for; of others {}.
        """
        ...

    async def shrink(self, group: str, names: Collection[str]) -> None:
        """Deletes exactly these members and lowers the target of the group with them, in one request: the provider must
        neither choose others nor replace these. Names that are no members (any more) are ignored. Safe to repeat.
        """
        ...


class GroupsProvider(Provider, HasGroups, Protocol):
    """A provider of instance groups."""
