"""JSON that a server sent, decoded so that one kind of error covers whatever is wrong with it."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def decode_body(body: bytes, kind: type[T]) -> T:
    """As `msgspec.json.decode`. Brackets without end are a `msgspec.DecodeError` too, and no `RecursionError`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is not UTF-8: {error.reason}") from None
