"""Garbage collection while a long list is read: its many new objects would trigger it again and again."""

import gc
from typing import ClassVar

#: Objects of a list from which on the collector is frozen. What it costs to freeze and unfreeze it is more than a short
#: list saves: all objects, garbage too, are afterwards in the oldest generation, which is rarely collected.
MANY = 2_000


class FrozenGC:
    """Hides existing objects from the garbage collector from the time a list turns out to be long until `unfreeze`."""

    #: Whether any instance has frozen the collector. `gc.get_freeze_count` would count all objects.
    _frozen: ClassVar[bool] = False

    def __init__(self) -> None:
        self._is_ours = False
        self._read = 0

    def objects_read(self, count: int) -> None:
        """To be told of every part of a list."""
        before, self._read = self._read, self._read + count
        # If something else has frozen the collector, leave that alone: `unfreeze` would undo it.
        if before < MANY <= self._read and not FrozenGC._frozen and gc.get_freeze_count() == 0:
            self._is_ours = FrozenGC._frozen = True
            gc.freeze()

    def unfreeze(self) -> None:
        """At the end of the list."""
        self._read = 0
        if self._is_ours:
            self._is_ours = FrozenGC._frozen = False
            gc.unfreeze()
