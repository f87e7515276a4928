"""What Lambda Cloud's error codes mean. Its documentation asks to go by the code, never by the message."""

from datetime import timedelta
from typing import Final

import msgspec

from forebay.model.sources import FailureScope
from forebay.net.json_body import decode_body
from forebay.providers.base import InstanceGone, NoCapacity, ProviderError, QuotaReached, Rejected, Unavailable
from forebay.providers.cloud_calls import CloudDialect, CloudRefusal
from forebay.providers.lambdalabs.wire import LambdaErrors

_SERVER_ERRORS: Final = 500
_UPSTREAM: Final = "provider/"


class ObjectMissing(Rejected):
    """The request names something that does not exist: an instance, an SSH key, an image."""


def read_error(body: bytes) -> tuple[str, str]:
    try:
        error = decode_body(body, LambdaErrors).error
    except msgspec.DecodeError:
        return "", ""
    return error.code, error.message


def meaning(refusal: CloudRefusal) -> ProviderError | None:
    fact = refusal.fact
    match refusal.code:
        case "instance-operations/launch/insufficient-capacity":
            return NoCapacity(f"{fact}: this type has no capacity in this region.")
        case "global/quota-exceeded":
            return QuotaReached(f"{fact}: the account may not have more. Ask Lambda to raise its quota.")
        case "global/account-inactive":
            return Rejected(f"{fact}. Activate the account at Lambda: email, payment.", scope=FailureScope.SOURCE)
        case "global/invalid-address":
            return Rejected(f"{fact}. Correct the billing address at Lambda.", scope=FailureScope.SOURCE)
        case "global/object-does-not-exist" | "global/not-found":
            return ObjectMissing(f"{fact}.")
    if refusal.code.startswith(_UPSTREAM) and refusal.status < _SERVER_ERRORS:
        return Unavailable(f"{fact}: an upstream service of Lambda failed.")
    return None


def gone(instance_id: str) -> InstanceGone:
    return InstanceGone(f"Lambda has no instance {instance_id} any more.")


#: A launch is allowed every twelve seconds; a 429 does not say how long to wait.
DIALECT: Final = CloudDialect(label="Lambda", read_error=read_error, meaning=meaning, usual_wait=timedelta(seconds=12))
