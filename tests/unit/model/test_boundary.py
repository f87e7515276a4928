"""Boundary between objects."""

import pytest

from forebay.model.boundary import Boundary


def test_an_object_that_fails_costs_itself_its_turn_and_nobody_else():
    boundary = Boundary()
    handled = []
    for number in (1, 0, 2):
        with boundary.of(number):
            handled.append(6 // number)
    assert handled == [6, 3]
    assert {key: type(error) for key, error in boundary.errors.items()} == {0: ZeroDivisionError}
    assert boundary.errors[0].__traceback__ is not None, "for the log"


def test_a_process_that_is_told_to_end_is_no_fault_of_the_object():
    boundary = Boundary()
    with pytest.raises(KeyboardInterrupt), boundary.of("pool"):
        raise KeyboardInterrupt
    assert boundary.errors == {}
