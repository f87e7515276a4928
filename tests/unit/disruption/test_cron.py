"""When a schedule struck last."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.disruption.cron import NotASchedule, parse_schedule

WEEK = timedelta(days=7)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "now", "latest"),
    [
        ("0 9 * * 1-5", "2026-03-02T12:00", "2026-03-02T09:00"),  # a Monday
        ("0 9 * * 1-5", "2026-03-02T08:59", "2026-02-27T09:00"),
        ("0 9 * * mon-FRI", "2026-03-01T23:59", "2026-02-27T09:00"),
        ("*/15 * * * *", "2026-03-02T12:44:59", "2026-03-02T12:30"),
        ("5/20 * * * *", "2026-03-02T12:44", "2026-03-02T12:25"),
        ("0 22,6 * * *", "2026-03-02T12:00", "2026-03-02T06:00"),
        ("0 0 * * 7", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("0 0 * * 0", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("0 0 * * 5-7", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("0 0 1 * *", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("0 0 1 * 1", "2026-03-02T12:00", "2026-03-02T00:00"),  # either day will do
        ("0 0 1 * ?", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("0 0 * mar *", "2026-03-02T12:00", "2026-03-02T00:00"),
        ("0 0 * jan *", "2026-03-02T12:00", None),
        ("0 0 31 * *", "2026-03-02T12:00", None),
        ("@hourly", "2026-03-02T12:59", "2026-03-02T12:00"),
        ("@daily", "2026-03-02T12:00", "2026-03-02T00:00"),
        ("@midnight", "2026-03-02T00:00", "2026-03-02T00:00"),
        ("@weekly", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("@monthly", "2026-03-02T12:00", "2026-03-01T00:00"),
        ("@yearly", "2026-01-03T12:00", "2026-01-01T00:00"),
        ("@annually", "2026-03-02T12:00", None),
    ],
)
def test_a_schedule_struck_last_when_cron_would_have(schedule, now, latest):
    assert parse_schedule(schedule).latest(at(now), WEEK) == (None if latest is None else at(latest))


def test_the_29th_of_february_is_found_two_years_later():
    assert parse_schedule("30 4 29 2 *").latest(at("2026-03-02"), timedelta(days=800)) == at("2024-02-29T04:30")


def test_times_are_utc_wherever_now_comes_from():
    now = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert parse_schedule("0 23 * * *").latest(now, WEEK) == at("2026-03-01T23:00")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", "4 fields instead of 5"),
        ("@fortnightly", "no such word"),
        ("60 * * * *", '"60" is no minute'),
        ("* 24 * * *", '"24" is no hour'),
        ("* * 0 * *", '"0" is no day of the month'),
        ("* * * 13 *", '"13" is no month'),
        ("* * * foo *", '"foo" is no month'),
        ("* * * * 8", '"8" is no day of the week'),
        ("*/0 * * * *", "no step above 0"),
        ("*/x * * * *", "no step above 0"),
        ("30-10 * * * *", "ends before it begins"),
        ("1- * * * *", '"" is no minute'),
        (", * * * *", '"" is no minute'),
        ("٣ * * * *", "is no minute"),
    ],
)
def test_what_is_no_schedule_is_refused_with_the_reason(text, why):
    with pytest.raises(NotASchedule, match=why):
        parse_schedule(text)


def field(least, most):
    numbers = st.integers(least, most)
    spans = st.tuples(numbers, numbers).map(lambda pair: f"{min(pair)}-{max(pair)}")
    steps = st.integers(1, 9).map(lambda step: f"*/{step}")
    return st.sampled_from(("*", "*")) | numbers.map(str) | spans | steps


@pytest.mark.law
@given(
    st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)),
    st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)).map(lambda when: when.replace(tzinfo=UTC)),  # noqa: DTZ001
)
def test_the_latest_strike_is_what_looking_at_every_minute_would_find(fields, now):
    schedule = parse_schedule(" ".join(fields))
    within = timedelta(days=2)

    def strikes(when):
        by_month, by_week = when.day in schedule.days, when.isoweekday() % 7 in schedule.weekdays
        return (
            when.minute in schedule.minutes
            and when.hour in schedule.hours
            and when.month in schedule.months
            and (by_month or by_week if schedule.either_day else by_month and by_week)
        )

    when = now.replace(second=0, microsecond=0)
    while when >= now - within and not strikes(when):
        when -= timedelta(minutes=1)
    assert schedule.latest(now, within) == (when if when >= now - within else None)
