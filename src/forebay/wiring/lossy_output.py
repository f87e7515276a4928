"""Standard error of a process that must go on where its lines cannot be written: its log is on a full disk."""

import errno
from typing import Final, TextIO

#: A disk, or a user's share of it, is full, or cannot be written; or the terminal is gone.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})


def no_room(error: OSError) -> bool:
    """Whether output failed for a reason that the reader of the output is to blame for, and not the program."""
    return error.errno in _NO_ROOM


class LossyOutput:
    """A text stream whose lines are lost while there is no room for them.

    An operator that ends because of its log leaves machines running that nobody terminates.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            if not no_room(error):
                raise
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            if not no_room(error):
                raise
