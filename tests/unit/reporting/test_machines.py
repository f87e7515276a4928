"""The cost of a GPUInstance."""

from datetime import timedelta
from fractions import Fraction

import pytest
from msgspec.structs import replace

from forebay.model.sources import Delivery
from forebay.reporting.machines import cost, decimal, is_terminating, machine_view
from tests.unit.reporting.objects import NOW, S, before, record, running


def test_the_cost_of_an_instance_is_exact_to_the_second():
    on = record(billed_from=before(seconds=100))
    off = record(state=S.GONE, billed_from=before(hours=2), billed_until=before(hours=2) + timedelta(seconds=7))
    never = record(state=S.REQUESTED, billed_from=None)

    assert cost(on, NOW).dollars == Fraction(180, 3600)
    assert cost(off, NOW).dollars == Fraction("1.80") * 7 / 3600
    assert cost(never, NOW).dollars == 0


def test_a_machine_without_a_price_costs_nothing():
    assert cost(record(price=None, billed_from=before(hours=1)), NOW).dollars == 0
    assert cost(replace(record(), status=None), NOW).dollars == 0


@pytest.mark.parametrize("state", sorted(set(S) - {S.GONE}))
def test_the_pods_of_a_machine_are_those_on_its_node(state):
    assert machine_view(record(state=state, pods=("train",)), {"m1": [running("other")]}, NOW).pods == ["team/other"]


def test_the_billed_price_overrides_the_price_of_the_offer():
    assert cost(record(hourly_price="3.60", billed_from=before(seconds=1)), NOW).dollars == Fraction(1, 1000)


def test_decimals_are_rounded_to_a_millionth_and_keep_their_sign():
    assert decimal(Fraction(1, 3)) == "0.333333"
    assert decimal(Fraction(-5, 2)) == "-2.500000"
    assert decimal(Fraction(12345678)) == "12345678.000000"


def test_a_clock_that_went_back_costs_nothing():
    assert cost(record(billed_from=NOW + timedelta(minutes=1)), NOW).dollars == 0


def test_a_view_has_the_name_of_everything_or_an_empty_text():
    view = machine_view(record(), {"m1": [running("b"), running("a")]}, NOW)
    assert (view.pool, view.node_class, view.type, view.gpus, view.gpu_type) == ("team/lab", "owned", "m1", 4, "L40S")
    assert (view.pods, view.launched_for, view.node) == (["team/a", "team/b"], ["team/train"], "m1")
    assert (view.state, view.reason, view.message) == ("Ready", "NodeReady", "It came.")
    assert (view.price_per_hour, view.hourly, view.since) == ("1.8", "1.8", before(minutes=1))

    bare = record(pool=None, price=None, pods=())
    bare = replace(bare, spec=replace(bare.spec, offer=None, node_class_name=None, node=None, why=None), status=None)
    view = machine_view(bare, {"": [running()]}, NOW)
    assert (view.pool, view.node_class, view.type, view.gpus, view.gpu_type) == ("", "", "", 0, "")
    assert (view.reason, view.message, view.why, view.price_per_hour) == ("", "", "", "0")
    assert view.since == before(minutes=2), "since it was created"


def test_a_machine_that_is_gone_has_no_pods_though_another_has_its_node_now():
    assert machine_view(record(state=S.GONE), {"m1": [running()]}, NOW).pods == []


def test_a_machine_is_on_its_way_out_when_it_is_deleted_too():
    deleted = replace(record(), metadata=replace(record().metadata, deletion_timestamp=NOW))

    assert is_terminating(deleted)
    assert is_terminating(record(state=S.FINISHED))
    assert not is_terminating(record())


def test_an_amount_below_half_a_millionth_has_no_sign():
    assert decimal(Fraction(-1, 10**7)) == "0.000000"
    assert decimal(Fraction(-1, 10**6)) == "-0.000001"


def test_a_container_shows_the_pod_that_it_runs_until_that_has_ended():
    def shown(state):
        found = record(state=state)
        return machine_view(replace(found, spec=replace(found.spec, delivers=Delivery.CONTAINER)), {}, NOW).pods

    assert shown(S.REQUESTED) == shown(S.TERMINATING) == shown(S.GONE) == []
    assert shown(S.LAUNCHED) == shown(S.RUNNING) == ["team/train"]
