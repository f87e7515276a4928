"""Time that is paid already: a rented machine that is billed by the hour costs no less when it goes early."""

from datetime import datetime, timedelta
from typing import Final

from forebay.api.gpu_instance import GPUInstance

#: An idle machine goes this long before its paid time ends: for the drain, the call, and what the provider takes.
LEAD: Final = timedelta(minutes=3)
#: Shorter periods are not worth waiting for.
_LEAST: Final = 2 * LEAD


def paid_until(record: GPUInstance, at: datetime) -> datetime | None:
    """End of the time that is paid if the machine ends at `at`; None where that is too short to make a difference.

    The minimum comes first, then one increment after the other, all counted from when billing began.
    """
    began = record.status.billed_from if record.status is not None else None
    if began is None:
        return None
    billing, used = record.billing, at - began
    if used < billing.minimum:
        period, end = billing.minimum, began + billing.minimum
    else:
        period, end = billing.increment, began + -(-used // billing.increment) * billing.increment
    return end if period >= _LEAST else None


def goes_at(record: GPUInstance, idle_until: datetime, now: datetime) -> datetime:
    """From when on a machine goes that has been idle long enough at `idle_until`: near the end of its paid time.

    Where that end was missed, because something else kept the machine, the next period is paid, and its end counts.
    """
    end = paid_until(record, max(idle_until, now))
    return idle_until if end is None else max(idle_until, end - LEAD)
