import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.providers.webhook.power_state import PowerState, power_state


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (b'{"on": true}', PowerState.ON),
        (b'{"on": false}', PowerState.OFF),
        (b'{"state": "on"}', PowerState.ON),
        (b'{"state": "off", "name": "gpu-1"}', PowerState.OFF),
        (b'{"power": "ON"}', PowerState.ON),
        (b'{"Id": "1", "PowerState": "PoweringOn"}', PowerState.STARTING),
        (b'{"PowerState": "Off"}', PowerState.OFF),
        (b'{"state": "booting"}', PowerState.STARTING),
        (b'{"state": "stopping"}', PowerState.STOPPING),
        (b'"off"', PowerState.OFF),
        (b"true", PowerState.ON),
        (b" Off\n", PowerState.OFF),
        (b"on", PowerState.ON),
    ],
)
def test_forms_that_are_understood(body, state):
    assert power_state(body) is state


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"OK",
        b"{}",
        b"[]",
        b"null",
        b"0",
        b'{"status": "off-ish"}',
        b'{"state": null}',
        b'{"state": ["off"]}',
        b'{"on": true, "state": "off"}',
        b"\xff\xfe",
        b"<html>off</html>",
    ],
)
def test_anything_else_is_unknown_and_never_off(body):
    assert power_state(body) is None


@pytest.mark.law
@given(st.binary())
def test_any_body_has_a_state_or_is_unknown(body):
    assert power_state(body) in {None, *PowerState}


def test_the_docs_page_lists_the_words_that_are_understood():
    page = (Path(__file__).parents[3] / "docs/providers/webhook.md").read_text()
    section = page.partition("the word alone")[2].partition("\n## ")[0]
    listed = re.findall(r"`([A-Za-z]+)`", section)
    assert [power_state(word.encode()) for word in listed] == [
        *[PowerState.ON] * 4,
        *[PowerState.STARTING] * 3,
        *[PowerState.STOPPING] * 2,
        *[PowerState.OFF] * 4,
    ]
