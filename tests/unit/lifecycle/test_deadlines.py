"""Deadlines of a launch."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus
from forebay.lifecycle.deadlines import deadline
from tests.unit.lifecycle.builders import NOW, OWNED, RENTED, S, minutes, owned_spec, record, seconds


@pytest.mark.parametrize("state", [S.REQUESTED, S.READY, S.DRAINING, S.TERMINATING, S.GONE])
def test_only_what_is_on_its_way_has_a_deadline(state):
    of = record(state)
    assert deadline(of, of.status, RENTED) is None


@pytest.mark.parametrize(
    ("state", "limit"),
    [(S.LAUNCHING, RENTED.launch_deadline), (S.LAUNCHED, RENTED.launch_deadline), (S.JOINED, RENTED.gpu_deadline)],
)
def test_each_state_of_a_rented_machine_has_its_own_time_from_when_it_was_entered(state, limit):
    of = record(state)
    assert deadline(of, replace(of.status, since=NOW + seconds(5)), RENTED) == NOW + seconds(5) + limit
    assert deadline(of, replace(of.status, since=None), RENTED) == NOW + limit, "from the creation"


def test_a_machine_with_a_limit_of_its_own_has_it_from_the_call_on_and_without_one_from_its_state_on():
    own = record(S.JOINED, owned=True, since=NOW, attempted_at=NOW - minutes(1))
    assert deadline(own, own.status, OWNED) == NOW + minutes(14)
    found = record(S.JOINED, owned=True, attempted_at=None)
    assert deadline(found, found.status, OWNED) == NOW + minutes(15)
    launching = record(S.LAUNCHING, owned=True)
    assert deadline(launching, launching.status, OWNED) == NOW + OWNED.launch_deadline
    usual = record(S.LAUNCHED, owned=True, spec=owned_spec(boot_deadline=None))
    assert deadline(usual, usual.status, OWNED) == NOW + OWNED.join_deadline


def test_a_status_that_was_never_entered_has_no_deadline():
    bare = record(S.LAUNCHED)
    bare = replace(bare, metadata=replace(bare.metadata, creation_timestamp=None))
    assert deadline(bare, GPUInstanceStatus(state=S.LAUNCHED), RENTED) is None
