"""Lists of several pages, complete or an error."""

from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from forebay.providers.base import Unavailable
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.cloud_frame import all_items
from forebay.providers.paperspace.wire import PaperspacePage

T = TypeVar("T")

_PAGE: Final = 120


async def all_pages(calls: CloudCalls, path: str, item: type[T], **query: str) -> list[T]:
    """The items of all pages. A page that cannot be read makes the whole list an error."""

    async def page(after: str | None) -> tuple[tuple[T, ...], str | None]:
        asked = {**query, "limit": str(_PAGE), **({"after": after} if after is not None else {})}
        found = await calls.get(f"{path}?{urlencode(asked, quote_via=quote)}", PaperspacePage[item])  # type: ignore[valid-type]
        if found.has_more and found.next_page is None:
            raise Unavailable(f"Paperspace's list {path} says that there is more, and not where.")
        return found.items, found.next_page if found.has_more else None

    return await all_items(f"Paperspace's list {path}", page)
