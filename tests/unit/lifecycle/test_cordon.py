"""Cordons of Forebay's."""

import pytest
from msgspec.structs import replace

from forebay.api.names import CORDONED_ANNOTATION
from tests.unit.lifecycle.builders import NOW, S, facts, minutes, next_step, node, record, seconds


@pytest.mark.parametrize("written", ["", "yesterday", "2030-01-01T12:00:00"])
def test_a_cordon_with_an_unreadable_time_counts_from_the_start_of_the_drain(written):
    cordoned = replace(node(cordoned=NOW), annotations={CORDONED_ANNOTATION: written})
    draining = record(S.DRAINING, since=NOW)

    assert next_step(facts(draining, node=cordoned), NOW + seconds(2)) is None
    assert next_step(facts(draining, node=cordoned), NOW + minutes(1)).status.state is S.TERMINATING
