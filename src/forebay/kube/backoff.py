"""Exponential backoff with jitter, with the same steps as client-go's reflector."""

import random
from typing import Final

_INITIAL_WAIT: Final = 0.8
_MAX_WAIT: Final = 30.0
#: A server may ask for a longer wait than our own maximum, up to this.
_MAX_RETRY_AFTER: Final = 120.0


class Backoff:
    """Doubles from 0.8 s to 30 s. Jitter of up to 100 % spreads clients that failed together."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self._rng = rng or random.Random()  # noqa: S311 (spreads load, guards nothing)
        self.failures = 0

    def next_wait(self, retry_after: float | None = None) -> float:
        """Seconds until the next attempt, at least `retry_after`."""
        base = min(_INITIAL_WAIT * 2 ** min(self.failures, 16), _MAX_WAIT)
        self.failures += 1
        jittered = base * (1 + self._rng.random())
        # At the maximum, jitter only shortens the wait: otherwise all waits would be the maximum, and equal again.
        wait = jittered if jittered <= _MAX_WAIT else _MAX_WAIT * (0.5 + self._rng.random() / 2)
        return max(wait, min(retry_after or 0.0, _MAX_RETRY_AFTER))

    def reset(self) -> None:
        self.failures = 0

    def between(self, least: int, most: int) -> int:
        """A random whole number from `least` to `most`."""
        return self._rng.randint(least, most)
