import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.values import LONGEST_DURATION, NotADuration, duration, duration_or_never


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("5m0s", 300)],
)
def test_durations_as_go_writes_them(text, seconds):
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "7d", "-5m", "5 m", "m", "1h30", "never", "\N{ARABIC-INDIC DIGIT ONE}s", "5m\n", "1e3s"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(NotADuration, match="is not a duration: write it like 30s, 5m or 1h30m"):
        duration(text)


def test_never_is_no_duration():
    assert duration_or_never("Never") is None
    assert duration_or_never("10m") == timedelta(minutes=10)


@pytest.mark.parametrize(("text", "days"), [("87648h", 3652), ("9999999h", 3652), ("87624h", 3651)])
def test_no_duration_is_longer_than_ten_years(text, days):
    assert duration(text) == timedelta(days=days)


@pytest.mark.law
@given(st.integers(0, 9_999_999), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_add_up(hours, minutes, seconds):
    total = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    assert duration(f"{hours}h{minutes}m{seconds}s") == min(total, LONGEST_DURATION)


@pytest.mark.law
@given(st.text("0123456789.hms", max_size=32))
def test_every_duration_the_api_server_accepts_can_be_parsed(text):
    """Admission and Forebay must not differ on a duration: what is stored has to mean something."""
    from forebay.api.values import _DURATION

    if re.search(f"^{_DURATION}$", text):
        assert timedelta() <= duration(text) <= LONGEST_DURATION
    else:
        with pytest.raises(NotADuration):
            duration(text)
