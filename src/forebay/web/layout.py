"""The frame of every page of the dashboard: head, navigation, and the headers that confine it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from forebay import __version__
from forebay.web.markup import Content, Element, Redact, h, render, url

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {"forebay.css": "text/css", "forebay.js": "text/javascript", "forebay.svg": "image/svg+xml"}
#: The files that pages refer to, by name.
FILES: Final[Mapping[str, bytes]] = {name: (_STATIC / name).read_bytes() for name in _TYPES}
#: Changes with the files: browsers keep them until it does.
_FILES_VERSION: Final = blake2b(b"".join(FILES.values()), digest_size=6).hexdigest()

#: Nothing is loaded from elsewhere, nothing inline runs, nobody may frame the page, and forms stay here.
SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NAVIGATION: Final = (
    ("", "Overview"),
    ("demand", "Demand"),
    ("machines", "Machines"),
    ("money", "Money"),
    ("budgets", "Budgets"),
    ("offers", "Offers"),
    ("decisions", "Decisions"),
)


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds the content of a page."""

    title: str
    #: First part of the path: which link of the navigation is the current one.
    current: str = ""
    #: When the snapshot was taken; None where there is none.
    at: datetime | None = None
    cluster: str = ""
    #: Figures beside links of the navigation, by the path.
    counts: Mapping[str, int] = {}


def document(frame: Frame, content: Sequence[Content], redact: Redact) -> bytes:
    """The whole page as bytes."""
    page = h(
        "html",
        h(
            "head",
            h("meta", charset="utf-8"),
            h("meta", name="viewport", content="width=device-width, initial-scale=1"),
            h("meta", name="color-scheme", content="light dark"),
            h("meta", name="robots", content="noindex"),
            h("title", f"{frame.title} · Forebay"),
            h("link", rel="stylesheet", href=url("static", "forebay.css", v=_FILES_VERSION)),
            h("link", rel="icon", href=url("static", "forebay.svg", v=_FILES_VERSION), type="image/svg+xml"),
            h("script", src=url("static", "forebay.js", v=_FILES_VERSION), defer=True),
            h("noscript", h("meta", http_equiv="refresh", content="15")),
        ),
        h(
            "body",
            h("a", "Skip to content", href="#content", class_="skip"),
            _header(frame),
            h("main", h("h1", frame.title), *content, id="content", tabindex=-1),
            h("footer", h("p", f"Forebay {__version__}. This page only shows: nothing can be changed here.")),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{render(page, redact)}\n".encode()


def static_file(name: str) -> tuple[bytes, str] | None:
    """The file and its content type."""
    return (FILES[name], f"{_TYPES[name]}; charset=utf-8") if name in FILES else None


def _header(frame: Frame) -> Element:
    links = (
        h(
            "li",
            h(
                "a",
                title,
                h("span", f"{frame.counts[path]:,}", class_="count") if frame.counts.get(path) else None,
                href=url(path),
                aria_current="page" if path == frame.current else None,
            ),
        )
        for path, title in NAVIGATION
    )
    seen = f"as of {frame.at:%H:%M:%S} UTC" if frame.at is not None else "no data"
    return h(
        "header",
        h("a", h("span", "Forebay", class_="brand"), href="/", class_="home"),
        h("nav", h("ul", *links), aria_label="Pages"),
        h(
            "div",
            h("span", seen, class_="seen", id="seen", title=f"cluster {frame.cluster}" if frame.cluster else None),
            h("span", id="live", role="status"),
            class_="status",
        ),
        id="top",
    )
