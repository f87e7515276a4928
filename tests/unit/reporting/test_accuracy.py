"""The usage of pods whose starts and ends are known, against what a budget says."""

from datetime import timedelta
from fractions import Fraction

import pytest

from forebay.model.quantities import Quantity
from forebay.reporting.accuracy import Accuracy, Load, reported_gpu_hours, summary

#: The predecessor's published run: 50 pods of 0.1 cores, 10 a second, for 30 s each.
PUBLISHED = Load(50, Fraction(10), timedelta(seconds=30), Quantity.parse("100m"), "cpu")


def reading(reported, *, at=45.0):
    return Accuracy(PUBLISHED, timedelta(seconds=at), reported_gpu_hours(reported), 50)


def test_the_predecessors_run_gives_the_figures_that_it_published():
    published = reading("40m").document()
    assert (published["expected_gpu_hours"], published["accuracy"]) == (0.041667, 0.96)
    assert published["difference_gpu_seconds"] == -6.0


def test_what_was_reported_is_written_to_a_millionth_of_an_hour():
    assert reading("41666667n").document()["reported_gpu_hours"] == 0.041667


@pytest.mark.parametrize(
    ("at", "seconds"),
    [
        (0, "0"),
        (0.05, "0.05"),
        # One second after the first pod: ten pods, of ages 0.1 to 1 s.
        (1, "5.5"),
        (45, "1500"),
        (10_000, "1500"),
    ],
)
def test_a_pod_counts_from_its_start_to_its_end_and_no_longer(at, seconds):
    expected = Fraction(seconds) / 10 / 3600
    assert PUBLISHED.expected(timedelta(seconds=at)) == expected


def test_more_than_expected_is_shown_as_a_difference_and_not_as_better_than_exact():
    over = reading("50m")
    assert over.ratio == 1
    assert over.difference == 30


def test_before_anything_could_be_used_nothing_is_wrong():
    assert reading(None, at=0).ratio == 1


def test_the_page_says_what_was_measured():
    page = summary("nightly", reading("40m"))
    assert page.startswith("# Accuracy of a budget: nightly\n")
    assert "50 pods of 100m cpu, 10 a second, each for 30 s" in page
    assert "| **Accuracy** | **0.96** |" in page
    assert "Too little was used" not in page


def test_the_page_says_where_too_little_was_used_for_a_status_in_thousandths():
    assert "**Too little was used for this accuracy to mean anything**" in summary("", reading("0", at=1))


def test_the_page_says_where_more_was_counted_than_the_pods_can_have_used():
    assert "**More was counted than these pods can have used**" in summary("", reading("50m"))
    assert "More was counted" not in summary("", reading("42m")), "rounded up"
