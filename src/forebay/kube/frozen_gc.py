"""Garbage collection while a list is read: its many new objects would trigger it again and again."""

import gc
from typing import ClassVar


class FrozenGC:
    """Hides existing objects from the garbage collector between `freeze` and `unfreeze`."""

    #: Whether any instance has frozen the collector. `gc.get_freeze_count` would count all objects.
    _frozen: ClassVar[bool] = False

    def __init__(self) -> None:
        self._is_ours = False

    def freeze(self) -> None:
        # If something else has frozen the collector, leave that alone: `unfreeze` would undo it.
        self._is_ours = not FrozenGC._frozen and gc.get_freeze_count() == 0
        if self._is_ours:
            FrozenGC._frozen = True
            gc.freeze()

    def unfreeze(self) -> None:
        if self._is_ours:
            self._is_ours = FrozenGC._frozen = False
            gc.unfreeze()
