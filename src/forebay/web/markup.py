"""HTML as a tree of values. Text is escaped where the tree is written out: there is no way to write any that is not."""

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

from forebay.reporting.printable import printable

Redact: TypeAlias = Callable[[str], str]
Attribute: TypeAlias = str | int | float | bool | None
Content: TypeAlias = "Element | str | int | Iterable[Content] | None"

_VOID: Final = frozenset({"meta", "link", "input", "br", "hr"})
#: Shorter texts cannot hold a secret (`net.redaction.MIN_SECRET`).
_SHORT: Final = 6


class Element(NamedTuple):
    tag: str
    attributes: dict[str, Attribute]
    children: tuple[Content, ...]


def h(tag: str, /, *children: Content, **attributes: Attribute) -> Element:
    """An element. `class_` stands for `class`, and other underscores for hyphens; None and False leave one out."""
    return Element(tag, attributes, children)


def url(*parts: str, **query: str | int) -> str:
    """A path of this server with each part and each value quoted. Empty values are left out."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    kept = {name: value for name, value in query.items() if value not in {"", 0}}
    return f"{path}?{urlencode(kept)}" if kept else path


def render(content: Content, redact: Redact) -> str:
    """The tree as HTML, with every text and attribute redacted, made printable and escaped."""
    return "".join(_parts(content, redact))


def _parts(content: Content, redact: Redact) -> Iterator[str]:
    if content is None:
        return
    if isinstance(content, Element):
        yield f"<{content.tag}"
        for name, value in content.attributes.items():
            if value is None or value is False:
                continue
            written = name.rstrip("_").replace("_", "-")
            yield f" {written}" if value is True else f' {written}="{_text(str(value), redact)}"'
        yield ">"
        if content.tag not in _VOID:
            for child in content.children:
                yield from _parts(child, redact)
            yield f"</{content.tag}>"
    elif isinstance(content, str | int):
        yield _text(str(content), redact)
    else:
        for child in content:
            yield from _parts(child, redact)


def _text(text: str, redact: Redact) -> str:
    shown = redact(text) if len(text) >= _SHORT else text
    return escape(printable(shown))
