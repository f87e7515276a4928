"""Cron schedules by the rules of Kubernetes' CronJobs (robfig/cron): five fields in UTC, or a word such as @daily.

Where day of the month and day of the week are both restricted, a day has to match only one of them. `*` and `?` do not
restrict; `*/2` does. Why no library: docs/decisions/0009-cron-parser.md.
"""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

_DESCRIPTORS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_WEEKDAYS: Final = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
#: Sunday may be written as 0 or as 7.
_SUNDAY: Final = 7


class InvalidSchedule(ValueError):
    def __init__(self, text: str, why: str) -> None:
        super().__init__(f'"{text}" is not a cron schedule: {why}. Write it like "0 9 * * 1-5", or @daily.')


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: dict[str, int]


_FIELDS: Final = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of the month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, _SUNDAY, _WEEKDAYS),
)


class Schedule(NamedTuple):
    """The minutes at which a schedule starts something."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    #: Sunday is 0.
    weekdays: frozenset[int]
    #: Both day fields are restricted: a day has to match only one of them.
    either_day: bool

    def latest(self, now: datetime, within: timedelta) -> datetime | None:
        """Last start at or before `now`, if it is not older than `within`; None otherwise."""
        now = now.astimezone(UTC)
        earliest = now - within
        day = now.replace(hour=0, minute=0, second=0, microsecond=0)
        while day > earliest - timedelta(days=1):
            if day.month not in self.months:
                # To the last day of the month before: a schedule may look back for years.
                day = day.replace(day=1) - timedelta(days=1)
                continue
            if self._matches(day):
                for hour in reversed(self.hours):
                    for minute in reversed(self.minutes):
                        at = day.replace(hour=hour, minute=minute)
                        if at <= now:
                            return at if at >= earliest else None
            day -= timedelta(days=1)
        return None

    def _matches(self, day: datetime) -> bool:
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either_day else by_month and by_week


@lru_cache(maxsize=256)
def parse_schedule(text: str) -> Schedule:
    """Raises `InvalidSchedule`."""
    fields = _DESCRIPTORS.get(text, text).split()
    if len(fields) != len(_FIELDS):
        why = f"{len(fields)} fields instead of 5" if not text.startswith("@") else "unknown descriptor"
        raise InvalidSchedule(text, why)
    minutes, hours, days, months, weekdays = (
        _values(text, written, field) for written, field in zip(fields, _FIELDS, strict=True)
    )
    return Schedule(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(day % _SUNDAY for day in weekdays),
        either_day=_restricts(fields[2]) and _restricts(fields[4]),
    )


def _restricts(written: str) -> bool:
    return not any(part in ("*", "?", "*/1", "?/1") for part in written.split(","))


def _values(text: str, written: str, field: _Field) -> set[int]:
    """The numbers that a field stands for: a list of numbers, names, ranges and steps."""
    found: set[int] = set()
    for part in written.split(","):
        span, slash, step = part.partition("/")
        if slash and (not step.isdecimal() or not step.isascii() or int(step) == 0):
            raise InvalidSchedule(text, f'"{part}" in the {field.name} has no step above 0')
        first, dash, last = span.partition("-")
        # An open range of weekdays ends with Saturday: with 7 in it, `5/2` would mean Friday and Sunday.
        end = field.most - 1 if field.most == _SUNDAY else field.most
        if span in ("*", "?"):
            least, most = field.least, end
        else:
            least = _number(text, first, field)
            most = _number(text, last, field) if dash else end if slash else least
        if least > most:
            raise InvalidSchedule(text, f'"{part}" in the {field.name} ends before it begins')
        found.update(range(least, most + 1, int(step) if slash else 1))
    return found


def _number(text: str, written: str, field: _Field) -> int:
    named = field.names.get(written.lower())
    if named is not None:
        return named
    if not (written.isdecimal() and written.isascii()) or not field.least <= int(written) <= field.most:
        why = f'"{written}" is not valid for the {field.name} ({field.least} to {field.most})'
        raise InvalidSchedule(text, why)
    return int(written)
