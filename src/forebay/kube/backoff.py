"""How long to wait before the next attempt: the same rhythm as Kubernetes' own clients."""

import random
from typing import Final

_INITIAL_WAIT: Final = 0.8
_MAX_WAIT: Final = 30.0
#: A server may ask for more than our longest wait, within reason.
_MAX_RETRY_AFTER: Final = 120.0


class Backoff:
    """Doubles from 0.8 s to 30 s. Jitter spreads clients that failed together: up to twice the wait, below the cap."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()  # noqa: S311 (spreads load, guards nothing)
        self.failures = 0

    def next_wait(self, retry_after: float | None = None) -> float:
        base = min(_INITIAL_WAIT * 2 ** min(self.failures, 16), _MAX_WAIT)
        self.failures += 1
        spread = base * (1 + self._dice.random())
        # At the cap the jitter goes downwards, or all waits would be the cap and equal again.
        wait = spread if spread <= _MAX_WAIT else _MAX_WAIT * (0.5 + self._dice.random() / 2)
        return max(wait, min(retry_after or 0.0, _MAX_RETRY_AFTER))

    def reset(self) -> None:
        self.failures = 0

    def between(self, least: int, most: int) -> int:
        return self._dice.randint(least, most)
