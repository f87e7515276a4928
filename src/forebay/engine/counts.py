"""Counters of a running operator; `metrics` exports them to Prometheus."""

from collections import Counter

import msgspec


class Counts(msgspec.Struct):
    """Totals since this process started."""

    ticks: int = 0
    #: Seconds spent observing and deciding, without applying decisions.
    tick_seconds: float = 0.0
    #: Decisions by type name.
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    #: Decisions that could not be applied.
    failed: int = 0
    #: Bugs of Forebay that were caught and logged.
    internal_errors: int = 0
    #: Provider calls by provider, call and outcome.
    calls: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
