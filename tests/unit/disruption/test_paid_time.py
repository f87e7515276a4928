"""Idle machines whose time is paid: they go near its end."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_pool import Disruption, DisruptionBudget
from forebay.api.instance_order import BillingTerms
from forebay.disruption.consolidation import ScaleDownRules, kept_idle, next_scale_down, scale_down
from forebay.disruption.machine_use import idle_updates
from forebay.model.reasons import Reason
from tests.unit.demand.builders import NOW
from tests.unit.disruption.test_consolidation import POOL, names, rented

LEAD = timedelta(minutes=3)
MINUTE = timedelta(minutes=1)


def billed(*, since, idle_for=10 * MINUTE, refused=None, **terms):
    """A rented machine whose billing began so long ago."""
    machine = rented(idle_for=idle_for, refused=refused)
    found = machine.record
    status = replace(found.status, billed_from=NOW - since)
    spec = replace(found.spec, billing=BillingTerms(**terms))
    return replace(machine, record=replace(found, spec=spec, status=status))


def rules(after="5m"):
    return ScaleDownRules(pools={POOL: Disruption(consolidate_after=after, budgets=(DisruptionBudget(nodes="100%"),))})


@pytest.mark.parametrize(
    ("since", "terms", "goes"),
    [
        # By the hour: in the first, the second, and at the very ends.
        (20 * MINUTE, {"increment": "1h"}, False),
        (56 * MINUTE, {"increment": "1h"}, False),
        (57 * MINUTE, {"increment": "1h"}, True),
        (60 * MINUTE, {"increment": "1h"}, True),
        (61 * MINUTE, {"increment": "1h"}, False),
        (118 * MINUTE, {"increment": "1h"}, True),
        # A minimum, then by the second.
        (20 * MINUTE, {"minimum": "1h"}, False),
        (58 * MINUTE, {"minimum": "1h"}, True),
        (61 * MINUTE, {"minimum": "1h"}, True),
        (300 * MINUTE, {"minimum": "1h"}, True),
        # A minimum, then by the hour.
        (130 * MINUTE, {"minimum": "2h", "increment": "1h"}, False),
        (178 * MINUTE, {"minimum": "2h", "increment": "1h"}, True),
        # Too short to wait for.
        (20 * MINUTE + timedelta(seconds=5), {"increment": "5m"}, True),
        (20 * MINUTE + timedelta(seconds=5), {"increment": "6m"}, False),
        (20 * MINUTE, {}, True),
    ],
)
def test_an_idle_machine_goes_near_the_end_of_the_time_that_is_paid(since, terms, goes):
    machine = billed(since=since, **terms)
    assert names(scale_down([machine], NOW, rules())) == (["r1"] if goes else [])


def test_the_loop_wakes_when_the_paid_time_is_nearly_over():
    machine = billed(since=20 * MINUTE, increment="1h")
    assert next_scale_down([machine], NOW, rules()) == NOW + 40 * MINUTE - LEAD


def test_a_machine_that_is_not_idle_long_enough_by_then_is_kept_for_the_next_period():
    machine = billed(since=58 * MINUTE, idle_for=MINUTE, increment="1h")
    assert scale_down([machine], NOW, rules()) == ()
    # Idle long enough two minutes into the second hour.
    assert next_scale_down([machine], NOW, rules()) == NOW + 62 * MINUTE - LEAD


def test_zero_seconds_means_at_once_whatever_is_paid():
    machine = billed(since=20 * MINUTE, increment="1h")
    assert names(scale_down([machine], NOW, rules("0s"))) == ["r1"]
    assert kept_idle([machine], NOW, rules("0s")) == {}


def test_a_machine_that_the_scheduler_refuses_goes_though_it_is_paid():
    machine = billed(since=20 * MINUTE, increment="1h", refused="default/train")
    assert names(scale_down([machine], NOW, rules())) == ["r1"]
    assert kept_idle([machine], NOW, rules()) == {}


def test_the_idle_condition_says_until_when_the_machine_is_kept():
    machine = billed(since=20 * MINUTE, increment="1h")
    fresh = replace(machine, record=replace(machine.record, status=replace(machine.record.status, conditions=())))
    (update,) = idle_updates([fresh], NOW, kept_idle([fresh], NOW, rules()))
    end = NOW + 40 * MINUTE
    assert update.reason is Reason.IDLE
    assert update.sentence.endswith(f"It is paid until {end:%H:%M} UTC and kept to near that time, as pods may come.")


def test_a_machine_that_is_about_to_go_is_not_called_kept():
    assert kept_idle([billed(since=58 * MINUTE, increment="1h")], NOW, rules()) == {}
    assert kept_idle([billed(since=20 * MINUTE)], NOW, rules()) == {}


def test_a_machine_whose_billing_has_not_begun_waits_for_nothing():
    machine = billed(since=20 * MINUTE, increment="1h")
    unbilled = replace(machine.record, status=replace(machine.record.status, billed_from=None))
    assert names(scale_down([replace(machine, record=unbilled)], NOW, rules())) == ["r1"]
