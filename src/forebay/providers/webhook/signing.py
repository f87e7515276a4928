"""Signatures as specified by Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, base64, version v1."""

import base64
import binascii
import hashlib
import hmac
from typing import Final

_PREFIX: Final = b"whsec_"


class BadSigningKey(ValueError):
    """A signing key is malformed. The text says why, and does not hold the key."""


def signing_keys(secret: bytes) -> tuple[bytes, ...]:
    """Keys in the value of a Secret: one or more of `whsec_` + base64, separated by blanks; or any other bytes as is.

    With several keys each call carries a signature by every key, so that keys can be rotated without a gap.
    """
    words = secret.split()
    if not words:
        raise BadSigningKey("it is empty")
    if not all(word.startswith(_PREFIX) for word in words):
        return (secret.strip(),)
    try:
        keys = tuple(base64.b64decode(word.removeprefix(_PREFIX), validate=True) for word in words)
    except binascii.Error:
        raise BadSigningKey("what follows whsec_ is not base64") from None
    if not all(keys):
        raise BadSigningKey("nothing follows whsec_")
    return keys


def signed(keys: tuple[bytes, ...], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of a signed message."""
    content = f"{message_id}.{timestamp}.".encode() + body
    signatures = (base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
