"""Crusoe's signature of a request: HMAC-SHA256 over path, query, method and time. The body is not signed."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, quote_plus, urlsplit

_VERSION: Final = "1.0"


class UnusableKey(ValueError):
    """The secret key is not base64."""


def signed_headers(key_id: str, secret: str, method: str, url: str, now: datetime) -> Mapping[str, str]:
    """The headers that authorize a request. Raises `UnusableKey`."""
    parts = urlsplit(url)
    timestamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"{parts.path}\n{canonical_query(parts.query)}\n{method}\n{timestamp}\n"
    try:
        key = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    except (binascii.Error, ValueError):
        raise UnusableKey("the secret key is not base64") from None
    digest = hmac.digest(key, message.encode(), hashlib.sha256)
    signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return {"X-Crusoe-Timestamp": timestamp, "Authorization": f"Bearer {_VERSION}:{key_id}:{signature}"}


def canonical_query(query: str) -> str:
    """The query with its keys sorted, and the values of one key in their order."""
    pairs = sorted(parse_qsl(query, keep_blank_values=True), key=lambda pair: pair[0])
    return "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, value in pairs)
