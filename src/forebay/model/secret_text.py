"""Text that is never stored or logged: boot payloads, passwords, tokens."""

from typing import NoReturn


class SecretText:
    """A secret in memory. Its text is only in `reveal()`: not in its repr, and no encoder or pickle accepts it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "SecretText(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not stored")
