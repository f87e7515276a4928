"""A market's own codes beside the table of `providers.cloud_calls`: gone, sold out, over the quota."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from forebay.api.parts import SecretKeyRef
from forebay.model.sources import FailureScope
from forebay.net.json_body import decode_body
from forebay.net.transport import Transport
from forebay.providers.base import InstanceGone, NoCapacity, ProviderError, QuotaReached, Rejected
from forebay.providers.cloud_calls import CloudCalls, CloudDialect, CloudRefusal
from forebay.providers.secrets import Secrets
from forebay.providers.simulated.wire import GROUPS, INSTANCES, MarketRefusal, RefusalCode

#: Seconds for a call.
CALL_SECONDS: Final = 5.0
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


def market_calls(
    base: str, transport: Transport, secrets: Secrets, key: SecretKeyRef | None, clock: Callable[[], datetime]
) -> CloudCalls:
    """Calls to the market at `base`. `key` names the Secret with its API key; None: it needs none."""
    return CloudCalls(_DIALECT, base, transport, secrets, key, clock)


def _read_error(body: bytes) -> tuple[str, str]:
    try:
        refusal = decode_body(body, MarketRefusal)
    except msgspec.DecodeError:
        return "", ""
    return refusal.code, refusal.message


def _meaning(refusal: CloudRefusal) -> ProviderError | None:
    if refusal.status == _NOT_FOUND and refusal.path.startswith(f"{INSTANCES}/"):
        return InstanceGone("The market has nothing of that id any more.")
    if refusal.status == _NOT_FOUND and refusal.path.startswith(f"{GROUPS}/"):
        return Rejected("The market has no such instance group. Correct existingInstanceGroupNames.")
    if not refusal.acts or refusal.status != _CONFLICT:
        return None
    match refusal.code:
        case RefusalCode.NO_CAPACITY:
            return NoCapacity(f"{refusal.fact}: it has no such machine left.")
        case RefusalCode.ZONE_FULL:
            return NoCapacity(f"{refusal.fact}: its zone has none left.", scope=FailureScope.ZONE)
        case RefusalCode.QUOTA:
            return QuotaReached(f"{refusal.fact}: the account may not have more. Raise its quota.")
        case _:
            return None


_DIALECT: Final = CloudDialect(
    label="the market", needs_key=False, read_error=_read_error, meaning=_meaning, timeout=CALL_SECONDS
)
