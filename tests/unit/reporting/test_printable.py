"""Text on a terminal: what others wrote cannot move the cursor, set the title or the clipboard, or hide."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.reporting.printable import printable


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("gpu-7", "gpu-7"),
        ("x\x1b[2Jy", "xy"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("a\x1b]52;c;cm0gLXJmIC8=\x07b", "ab"),
        ("a\x1b]0;title\x1b\\b", "ab"),
        ("a\x9b2Jb", "ab"),
        ("a\x9d52;c;eA==\x9cb", "ab"),
        ("a\x1bPdevice\x1b\\b", "ab"),
        ("no end \x1b]52;c;eA==", "no end "),
        ("a\x1bcb", "ab"),
        ("bell\x07 back\x08space", "bell backspace"),
        ("two\nlines\tand\rmore", "two lines and more"),
        ("abc\u202ecba\u2066", "abccba"),
        ("zero\u200bwidth", "zerowidth"),
        ("[red]markup stays as it is[/red]", "[red]markup stays as it is[/red]"),
        ("Zürich 東京 ▁▂▃█", "Zürich 東京 ▁▂▃█"),
        ("lone \ud800 surrogate", "lone  surrogate"),
    ],
)
def test_escapes_and_controls_are_stripped_and_the_rest_stays(written, shown):
    assert printable(written) == shown


@pytest.mark.law
@given(st.text(st.characters(), max_size=40))
def test_no_control_is_left_whatever_is_written(text):
    shown = printable(text)

    assert not [char for char in shown if unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    assert printable(shown) == shown
