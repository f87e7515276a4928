"""Cron schedules, by the rules of Kubernetes' CronJobs."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.disruption.cron import InvalidSchedule, parse_schedule

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
def test_the_latest_start_of_a_schedule(schedule, now, latest):
    assert parse_schedule(schedule).latest(at(now), WEEK) == (None if latest is None else at(latest))


#: From robfig/cron's own tests (spec_test.go, TestActivation): what Kubernetes reads.
ROBFIG = [
    ("2012-07-09T15:00", "0/15 * * * *", True),
    ("2012-07-09T15:45", "0/15 * * * *", True),
    ("2012-07-09T15:40", "0/15 * * * *", False),
    ("2012-07-09T15:50", "5/15 * * * *", True),
    ("2012-07-15T15:00", "0/15 * * Jul *", True),
    ("2012-07-15T15:00", "0/15 * * Jun *", False),
    ("2012-07-15T08:30", "30 08 ? Jul Sun", True),
    ("2012-07-15T08:30", "30 08 15 Jul ?", True),
    ("2012-07-16T08:30", "30 08 ? Jul Sun", False),
    ("2012-07-16T08:30", "30 08 15 Jul ?", False),
    ("2012-07-09T15:04", "@hourly", False),
    ("2012-07-09T00:00", "@daily", True),
    ("2012-07-08T00:00", "@weekly", True),
    ("2012-07-08T01:00", "@weekly", False),
    ("2012-07-08T00:00", "@monthly", False),
    ("2012-07-01T00:00", "@monthly", True),
    ("2012-07-15T00:00", "* * 1,15 * Sun", True),
    ("2012-06-15T00:00", "* * 1,15 * Sun", True),
    ("2012-08-01T00:00", "* * 1,15 * Sun", True),
    ("2012-07-15T00:00", "* * */10 * Sun", True),
    ("2012-07-15T00:00", "* * * * Mon", False),
    ("2012-07-09T00:00", "* * 1,15 * *", False),
    ("2012-07-15T00:00", "* * */2 * Sun", True),
    # Of ours: an open range with a step ends with the last value, of weekdays with Saturday.
    ("2012-07-31T00:00", "* * 25/2 * ?", True),
    ("2012-07-13T00:00", "* * ? * 5/2", True),
    ("2012-07-15T00:00", "* * ? * 5/2", False),
    ("2012-07-14T23:59", "59/7 * ? * 6/2", True),
]


@pytest.mark.parametrize(("moment", "schedule", "starts"), ROBFIG)
def test_a_schedule_starts_when_it_would_in_kubernetes(moment, schedule, starts):
    latest = parse_schedule(schedule).latest(at(moment), timedelta(0))

    assert (latest == at(moment)) is starts


def test_the_29th_of_february_is_found_two_years_later():
    assert parse_schedule("30 4 29 2 *").latest(at("2026-03-02"), timedelta(days=800)) == at("2024-02-29T04:30")


def test_times_are_utc_wherever_now_comes_from():
    now = datetime(2026, 3, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert parse_schedule("0 23 * * *").latest(now, WEEK) == at("2026-03-01T23:00")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", "4 fields instead of 5"),
        ("@fortnightly", "unknown descriptor"),
        ("60 * * * *", '"60" is not valid for the minute'),
        ("* 24 * * *", '"24" is not valid for the hour'),
        ("* * 0 * *", '"0" is not valid for the day of the month'),
        ("* * 32 * *", '"32" is not valid for the day of the month'),
        ("* * * 13 *", '"13" is not valid for the month'),
        ("* * * foo *", '"foo" is not valid for the month'),
        ("* * * * 8", '"8" is not valid for the day of the week'),
        ("*/0 * * * *", "no step above 0"),
        ("*/x * * * *", "no step above 0"),
        ("30-10 * * * *", "ends before it begins"),
        ("1- * * * *", '"" is not valid for the minute'),
        (", * * * *", '"" is not valid for the minute'),
        ("٣ * * * *", "is not valid for the minute"),
    ],
)
def test_an_invalid_schedule_is_refused_with_the_reason(text, why):
    with pytest.raises(InvalidSchedule, match=why):
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
def test_the_latest_start_is_the_one_that_trying_every_minute_finds(fields, now):
    schedule = parse_schedule(" ".join(fields))
    within = timedelta(days=2)

    def matches(when):
        by_month, by_week = when.day in schedule.days, when.isoweekday() % 7 in schedule.weekdays
        return (
            when.minute in schedule.minutes
            and when.hour in schedule.hours
            and when.month in schedule.months
            and (by_month or by_week if schedule.either_day else by_month and by_week)
        )

    when = now.replace(second=0, microsecond=0)
    while when >= now - within and not matches(when):
        when -= timedelta(minutes=1)
    assert schedule.latest(now, within) == (when if when >= now - within else None)
