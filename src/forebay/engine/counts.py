"""What the operator counts while it runs; `metrics` shows it to Prometheus."""

from collections import Counter

import msgspec


class Counts(msgspec.Struct):
    """What has happened since this process began."""

    ticks: int = 0
    #: Seconds.
    thinking: float = 0.0
    #: Decisions by their type, and those that could not be carried out.
    decisions: Counter[str] = msgspec.field(default_factory=Counter)
    failed: int = 0
    #: Faults of ours.
    broken: int = 0
    #: Provider calls by provider, call and outcome.
    calls: Counter[tuple[str, str, str]] = msgspec.field(default_factory=Counter)
