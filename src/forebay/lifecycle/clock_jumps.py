"""Times in records that were written by a clock which was ahead: it was set right since, or another replica leads."""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from forebay.lifecycle.facts import Facts

#: Clocks of two replicas may differ by so much.
CLOCKS_DIFFER: Final = timedelta(minutes=1)
#: No `notBefore` is further ahead when it is written: evictions of pods that come back wait longest.
_LONGEST_WAIT: Final = timedelta(minutes=10)


def by_this_clock(facts: Facts, now: datetime) -> Facts:
    """The facts without times of the record that this clock cannot reach in time: a termination is called again, and
    what was to be repeated in minutes is repeated now. Otherwise a machine would be billed until the hour comes that
    the wrong clock had.
    """
    status = facts.record.status
    if status is None:
        return facts
    late, accepted = status.not_before, status.termination_accepted_at
    if late is not None and late > now + _LONGEST_WAIT + CLOCKS_DIFFER:
        status = replace(status, not_before=None)
    if accepted is not None and accepted > now + CLOCKS_DIFFER:
        status = replace(status, termination_accepted_at=None, not_before=None)
    if status is facts.record.status:
        return facts
    return replace(facts, record=replace(facts.record, status=status))
