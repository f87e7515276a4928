"""Numbers with their noun."""

import pytest

from forebay.model.counts import counted


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 pods wait"), (1, "1 pod waits"), (2, "2 pods wait"), (1_000, "1,000 pods wait")]
)
def test_a_number_takes_its_noun(number, text):
    assert counted(number, "pod waits", "pods wait") == text
    assert counted(number, "pod") == text.removesuffix(" waits").removesuffix(" wait")
