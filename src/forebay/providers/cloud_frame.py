"""What providers of clouds have in common: the check that never raises, complete listings, how they are built."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.parts import SecretKeyRef
from forebay.model.sources import Capabilities, Check, Found
from forebay.net.rate_budget import Lane
from forebay.net.transport import Request, Transport
from forebay.providers.base import Provider, ProviderError, Rejected, Unavailable
from forebay.providers.pacing import cloud_transport
from forebay.providers.plugin import ProviderContext
from forebay.providers.secrets import Secrets

T = TypeVar("T")
_Build = Callable[[Entry, ProviderContext], Provider]

#: A listing of more pages is given up: an API that never ends its list must not hold the source.
MOST_PAGES: Final = 1000


async def checked(check: Awaitable[str]) -> Check:
    """The check of a provider: its sentence, or what it raises."""
    try:
        return Check(ok=True, sentence=await check)
    except ProviderError as error:
        return Check(ok=False, sentence=str(error))


def require_regions(label: str, wanted: Iterable[str], known: Collection[str], noun: str = "region") -> None:
    """Raises `Rejected` where the cloud lacks some of them."""
    if unknown := sorted(set(wanted) - set(known)):
        raise Rejected(
            f"{label} has no {noun} {' or '.join(unknown)}. Correct regions of the provider; "
            f"there are: {', '.join(sorted(known))}."
        )


def stated_time(text: str | None) -> datetime | None:
    """A time of a cloud; None where it states none, or not in a form that can be read: one odd time, of somebody
    else's disk perhaps, must not hide a whole listing.
    """
    try:
        time = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
    return time if time.tzinfo is not None else None


async def all_items(listing: str, page: Callable[[str | None], Awaitable[tuple[Iterable[T], str | None]]]) -> list[T]:
    """Items of all pages, complete or an error.

    `page` returns the items of one page, and where the next one begins; None: there is no other. It is first called
    with None. `listing` is the beginning of a sentence.
    """
    found: list[T] = []
    begin: str | None = None
    for _ in range(MOST_PAGES):
        items, following = await page(begin)
        found += items
        if following is None:
            return found
        if following == begin:
            raise Unavailable(f"{listing} says that there is more, and not where.")
        begin = following
    raise Unavailable(f"{listing} has no end after {MOST_PAGES} pages.")


async def of_one_account(account: Callable[[], Awaitable[str]], listing: Callable[[], Awaitable[Found]]) -> Found:
    """The listing, with the account that it is of. Credentials that were replaced meanwhile, by those of another
    account, are an error: half of the listing might be of either.
    """
    before = await account()
    found = await listing()
    if await account() != before:
        raise Unavailable("The credentials were replaced during the listing. The next listing tells.")
    return replace(found, account=before)


class _MakesProvider(Protocol):
    """Constructor of a provider."""

    def __call__(  # noqa: PLR0917 (its dependencies)
        self,
        cluster: str,
        transport: Transport,
        secrets: Secrets,
        clock: Callable[[], datetime],
        key: SecretKeyRef | None,
        base: str,
        regions: Sequence[str],
    ) -> Provider: ...


def builder(
    make: _MakesProvider,
    capabilities: Capabilities,
    base: str,
    lane_of: Callable[[Request], Lane] | None = None,
) -> Callable[[Entry, ProviderContext], Provider]:
    """`ProviderPlugin.build` of a cloud whose public API is at `base`. `lane_of` is as for `pacing.paced`."""

    def build(entry: Entry, context: ProviderContext) -> Provider:
        return make(
            context.cluster,
            cloud_transport(context.make_transport(None), capabilities, lane_of),
            Secrets(context.secrets, context.namespace, context.redactor),
            context.clock,
            entry.credentials_ref,
            entry.endpoint or base,
            entry.regions,
        )

    return build
