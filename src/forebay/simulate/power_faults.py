"""How calls to a power switch, and the starts of machines, go wrong. Times in seconds."""

from collections.abc import Mapping

import msgspec


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one call instead of being done and answered with 200."""

    acts: bool = False
    #: Seconds until the answer, after it has acted or not.
    delay: float = 0.0
    #: None: no answer ever comes.
    status: int | None = 500
    headers: Mapping[str, str] = {}
    body: bytes = b""
    #: The connection breaks off in place of the answer.
    breaks: bool = False


def refuses(status: int, *, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Fault:
    return Fault(status=status, body=body, headers=headers or {})


def redirects(to: str, status: int = 301) -> Fault:
    return Fault(status=status, headers={"Location": to})


def fails_after_acting(status: int = 500) -> Fault:
    return Fault(acts=True, status=status)


def lies() -> Fault:
    """Says that it is done, and does nothing."""
    return Fault(status=200)


def slow(seconds: float) -> Fault:
    return Fault(acts=True, delay=seconds, status=200)


def silent(*, acts: bool) -> Fault:
    return Fault(acts=acts, status=None)


def breaks_off(*, acts: bool) -> Fault:
    return Fault(acts=acts, breaks=True)


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """How one start goes."""

    joins: bool = True
    #: The GPUs become allocatable.
    drives: bool = True
    #: Seconds instead of the machine's own.
    after: float | None = None
    #: Seconds after which it loses power by itself.
    lasts: float | None = None
