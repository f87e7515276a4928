"""What Paperspace's error codes mean."""

from datetime import timedelta
from typing import Final

import msgspec

from forebay.net.json_body import decode_body
from forebay.providers.base import ProviderError, Rejected
from forebay.providers.cloud_calls import CloudDialect, CloudRefusal
from forebay.providers.paperspace.wire import PaperspaceError


class NothingThere(Rejected):
    """The request names something that does not exist."""


def read_error(body: bytes) -> tuple[str, str]:
    try:
        error = decode_body(body, PaperspaceError)
    except msgspec.DecodeError:
        return "", ""
    return error.code, error.message


def meaning(refusal: CloudRefusal) -> ProviderError | None:
    match refusal.code:
        case "NOT_FOUND":
            return NothingThere(f"{refusal.fact}.")
        case "FORBIDDEN" if refusal.acts:
            # H100 and the like need approval; a key that may do nothing at all fails the check too.
            return Rejected(
                f"{refusal.fact}: the account may not have such a machine. Ask Paperspace to approve it, or name other "
                "GPU types."
            )
    return None


#: The limits are not published, and a 429 does not say how long to wait.
DIALECT: Final = CloudDialect(
    label="Paperspace", read_error=read_error, meaning=meaning, usual_wait=timedelta(seconds=30)
)
