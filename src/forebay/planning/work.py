"""Work: what the search may still do, in seconds of a usual machine that has nothing else to do.

Work is counted, not timed, so that equal input gives an equal plan on a busy machine too. The clock is only a last
resort.
"""

from collections.abc import Callable
from typing import Final, Optional

#: The clock ends the search after so many times the seconds that it should take.
_PATIENCE: Final = 5.0


class Work:
    """Seconds of work that are left, of which parts can be handed out."""

    def __init__(
        self, seconds: float, is_late: Callable[[], bool], whole: Optional["Work"] = None, kept: float = 0.0
    ) -> None:
        self._left = seconds
        self._is_late = is_late
        self._whole = whole
        #: Seconds of the whole that are not for this part, whoever spends the others.
        self._kept = kept

    @classmethod
    def within(cls, seconds: float, clock: Callable[[], float]) -> "Work":
        end = clock() + seconds * _PATIENCE
        return cls(seconds, lambda: clock() >= end)

    def spend(self, seconds: float) -> None:
        self._left -= seconds
        if self._whole is not None:
            self._whole.spend(seconds)

    def left(self) -> float:
        """Seconds that are left; 0 or less: stop."""
        left = self._left if self._whole is None else min(self._left, self._whole.left() - self._kept)
        return min(left, 0.0) if self._is_late() else left

    def is_late(self) -> bool:
        """Whether the clock ends the search."""
        return self._is_late()

    def part(self, share: float) -> "Work":
        """A share of what is left. What is spent of it is spent here too."""
        left = self.left()
        return Work(left * share, self._is_late, self, left * (1 - share))

    def keeping(self, seconds: float) -> "Work":
        """All that is left but so many seconds."""
        return Work(self.left() - seconds, self._is_late, self, seconds)
