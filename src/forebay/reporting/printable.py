"""Text that is safe on a terminal, which obeys escapes: others write the names and messages in a cluster."""

import re
import unicodedata
from typing import Final

#: Whole escape sequences, so that nothing of them is left to read: OSC, DCS and the like with their text, CSI, and the
#: short ones.
_ESCAPES: Final = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
#: Controls, format characters (which turn the direction of text, or hide in it), and what is no character at all.
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    """`text` in one line, without escape sequences and characters that a terminal acts on."""
    if text.isascii() and text.isprintable():
        return text
    spaced = "".join(" " if char in "\t\n\r\v\f\x85\u2028\u2029" else char for char in _ESCAPES.sub("", text))
    return "".join(char for char in spaced if unicodedata.category(char) not in _UNSAFE)
