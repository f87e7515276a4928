"""Tables, paging and the small parts that the pages of the dashboard share."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Any

from forebay.model.quantities import Usd, UsdPerHour
from forebay.model.spans import human
from forebay.reporting.listed import ListPage
from forebay.web.markup import Content, Element, h, url


class Cell:
    """One cell. `number` aligns it to the right; `key` marks the cell that names its row."""

    __slots__ = ("class_", "content", "head", "number")

    def __init__(self, *content: Content, number: bool = False, key: bool = False, class_: str = "") -> None:
        self.content = content
        self.head = key
        self.number = number
        self.class_ = " ".join(each for each in ("n" if number else "", "key" if key else "", class_) if each) or None


def table(caption: str, header: Sequence[str], rows: Iterable[tuple[str, Sequence[Cell]]], *, empty: str) -> Element:
    """A table whose rows have a key each, so that a live update knows them again. `empty`: what to say without rows."""
    rows = list(rows)
    body = [
        h(
            "tr",
            *(
                h(
                    "th" if cell.head else "td",
                    *cell.content,
                    class_=cell.class_,
                    role="rowheader" if cell.head else "cell",
                    scope="row" if cell.head else None,
                    data_label=title,
                )
                for title, cell in zip(header, cells, strict=True)
            ),
            role="row",
            data_key=key,
        )
        for key, cells in rows
    ]
    if not body:
        return h("p", empty, class_="empty")
    titles = (
        h("th", title, scope="col", role="columnheader", class_="n" if cell.number else None)
        for title, cell in zip(header, rows[0][1], strict=True)
    )
    return h(
        "div",
        h(
            "table",
            h("caption", caption, class_="visually-hidden"),
            h("thead", h("tr", *titles, role="row"), role="rowgroup"),
            h("tbody", *body, role="rowgroup"),
            role="table",
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex=0,
    )


def section(title: str, *content: Content, more: tuple[str, str] | None = None, id_: str) -> Element:
    """A section with its heading; `more` is the text and the address of a link beside it."""
    link = h("a", more[0], href=more[1], class_="more") if more is not None else None
    head = h("div", h("h2", title, id=f"{id_}-title"), link, class_="head")
    return h("section", head, *content, aria_labelledby=f"{id_}-title", id=id_)


def filter_form(path: str, query: str, label: str, hint: str, **kept: str) -> Element:
    """A search field that works without JavaScript."""
    hidden = (h("input", type="hidden", name=name, value=value) for name, value in kept.items() if value)
    return h(
        "form",
        h("label", label, for_="q"),
        h("input", type="search", id="q", name="q", value=query, placeholder=hint, autocomplete="off", maxlength=100),
        *hidden,
        h("button", "Filter", type="submit"),
        h("a", "Clear", href=path) if query or any(kept.values()) else None,
        action=path,
        method="get",
        role="search",
    )


def pager(found: ListPage[Any], path: str, noun: str, **query: str) -> Element:
    """How many there are, and links to the pages before and after."""
    named = noun.removesuffix("s") if found.total == 1 else noun
    count = f"{found.total:,} {named}"
    if found.matching != found.total:
        count = f"{found.matching:,} of {count}"
    links: list[Content] = []
    if found.pages > 1:
        if found.page > 1:
            links.append(h("a", "Previous", href=url(path, **query, page=found.page - 1), rel="prev"))
        links.append(h("span", f"page {found.page} of {found.pages}"))
        if found.page < found.pages:
            links.append(h("a", "Next", href=url(path, **query, page=found.page + 1), rel="next"))
    return h("nav", h("span", count), *links, class_="pager", aria_label=f"Pages of {noun}")


def badge(text: str, kind: str) -> Element:
    return h("span", text, class_=f"badge {kind}")


def state_badge(state: str) -> Element:
    return badge(state, f"s-{state.lower()}")


def reason_text(text: str) -> Content:
    """`Reason: sentence`, with the reason set off."""
    reason, colon, sentence = text.partition(": ")
    if not colon or not reason.isalnum():
        return text
    return [h("b", reason), " ", sentence]


def age(since: datetime | None, now: datetime) -> Content:
    if since is None:
        return "-"
    shown = f"{since:%Y-%m-%d %H:%M:%S} UTC"
    return h("time", human(now - since), datetime=since.isoformat(), title=shown)


def per_hour(exact: str) -> str:
    return str(UsdPerHour(exact))


def dollars(exact: str) -> str:
    return str(Usd.from_exact(exact))


def short_dollars(exact: str) -> str:
    """Dollars with cents, and without them from a thousand on."""
    amount = Usd.from_exact(exact).dollars
    return f"${float(amount):,.2f}" if amount < Fraction(1000) else f"${float(amount):,.0f}"
