"""Scripted faults of power calls and of boots. Times in seconds."""

from collections.abc import Mapping

import msgspec


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """How one call fails; without a fault, it takes effect and is answered with 200."""

    #: The call takes effect.
    acts: bool = False
    #: Seconds until the answer.
    delay: float = 0.0
    #: None: the call is never answered.
    status: int | None = 500
    headers: Mapping[str, str] = {}
    body: bytes = b""
    #: The connection is closed instead of an answer.
    breaks: bool = False


def refuses(status: int, *, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Fault:
    return Fault(status=status, body=body, headers=headers or {})


def redirects(to: str, status: int = 301) -> Fault:
    return Fault(status=status, headers={"Location": to})


def fails_after_acting(status: int = 500) -> Fault:
    return Fault(acts=True, status=status)


def lies() -> Fault:
    """Answers 200 although nothing is done."""
    return Fault(status=200)


def slow(seconds: float) -> Fault:
    return Fault(acts=True, delay=seconds, status=200)


def silent(*, acts: bool) -> Fault:
    return Fault(acts=acts, status=None)


def breaks_off(*, acts: bool) -> Fault:
    return Fault(acts=acts, breaks=True)


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """How one boot goes."""

    #: The machine becomes a node.
    joins: bool = True
    #: Without becoming a node, the machine runs: somebody has booted another system on it.
    runs_other_work: bool = False
    #: The GPUs of the node become allocatable.
    gpus_appear: bool = True
    #: Seconds until the node is Ready, instead of the machine's own `boot`.
    after: float | None = None
    #: Seconds after which the machine loses power.
    loses_power_after: float | None = None
