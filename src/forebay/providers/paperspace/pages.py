"""Lists of several pages, complete or an error."""

from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from forebay.providers.base import Unavailable
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.paperspace.wire import PaperspacePage

T = TypeVar("T")

_PAGE: Final = 120
#: A listing of more pages is given up: an API that never ends its list must not hold the source.
_MOST_PAGES: Final = 1000


async def all_pages(calls: CloudCalls, path: str, item: type[T], **query: str) -> list[T]:
    """The items of all pages. A page that cannot be read makes the whole list an error."""
    found: list[T] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        asked = {**query, "limit": str(_PAGE), **({"after": after} if after is not None else {})}
        page = await calls.get(f"{path}?{urlencode(asked, quote_via=quote)}", PaperspacePage[item])  # type: ignore[valid-type]
        found.extend(page.items)
        if not page.has_more:
            return found
        if page.next_page is None or page.next_page == after:
            raise Unavailable(f"Paperspace's list {path} says that there is more, and not where.")
        after = page.next_page
    raise Unavailable(f"Paperspace's list {path} has no end after {_MOST_PAGES} pages.")
