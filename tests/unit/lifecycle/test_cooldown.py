"""Offers that failed cool down, also after a restart."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, ProvisionerRef
from forebay.lifecycle.cooldown import (
    cooldown_end,
    cooldowns,
    failures_so_far,
    offer_key,
    order_cooldown,
    without_usable_nodes,
)
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.sources import FailureScope, OfferKey, SourceKey, SourcePoolKey, ZoneKey
from tests.unit.lifecycle.builders import (
    NOW,
    R,
    S,
    facts,
    fresh_record,
    minutes,
    next_step,
    record,
    rented_spec,
    seconds,
)

SOURCE = SourceKey("cheap", "simulated")
KEY = OfferKey("simulated", "a100x2", "us-east", "", False)
OTHER = OfferKey("simulated", "h100x8", "eu-north", "", False)


def failed(failures, because=R.LAUNCH_REJECTED, state=S.GONE, **fields):
    return record(state, because=because, failures=failures, **fields)


@pytest.mark.parametrize(("failures", "wait"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 60), (40, 60)])
def test_the_cooldown_doubles_with_each_failure_up_to_an_hour(failures, wait):
    one = [failed(failures)]

    assert cooldowns(one, NOW)[KEY].until == NOW + minutes(wait)
    assert KEY in cooldowns(one, NOW + minutes(wait) - seconds(1))
    assert cooldowns(one, NOW + minutes(wait)) == {}


@pytest.mark.parametrize("because", [R.NO_CAPACITY, R.PROVIDER_QUOTA, R.LAUNCH_REJECTED])
def test_every_failure_makes_the_cooldown_grow(because):
    assert cooldowns([failed(3, because)], NOW)[KEY].until == NOW + minutes(20)


def test_the_cooldown_begins_with_the_failure_and_not_with_the_proof_of_absence():
    terminating = failed(1, R.JOIN_TIMEOUT, S.TERMINATING)

    assert cooldowns([terminating], NOW + minutes(4))[KEY].until == NOW + minutes(5)


def test_the_sentence_says_what_failed_when_and_when_the_next_attempt_is():
    sentence = cooldowns([failed(1)], NOW + minutes(2))[KEY].sentence

    assert sentence == "pool-abc failed at 12:00:00 UTC (LaunchRejected); next attempt at 12:05:00 UTC."


@pytest.mark.parametrize(
    "fine",
    [record(S.READY), record(S.GONE), record(S.LAUNCHING, failures=3), record(S.GONE, failures=2)],
    ids=["ready", "terminated when idle", "launching", "gone for another reason"],
)
def test_an_offer_that_has_not_failed_does_not_cool_down(fine):
    assert cooldowns([fine], NOW) == {}


def test_of_several_cooldowns_the_latest_end_counts():
    both = [failed(1, name="a"), failed(2, name="b")]

    assert cooldowns(both, NOW)[KEY].until == cooldowns(both[::-1], NOW)[KEY].until == NOW + minutes(10)


def test_each_machine_cools_down_by_itself():
    owned = failed(1, owned=True)

    assert set(cooldowns([owned], NOW)) == {OfferKey("webhook", "gpu-1", "", "", False)}


def test_a_new_record_starts_with_the_failures_of_the_last_one():
    first, second = failed(1, since=NOW - minutes(20), name="a"), failed(2, name="b")

    assert failures_so_far([first, second], SOURCE, KEY) == 2
    assert failures_so_far([first, second, record(S.READY, since=NOW + minutes(1), name="c")], SOURCE, KEY) == 0
    assert failures_so_far([], SOURCE, KEY) == 0
    assert offer_key(first) == KEY


def test_a_failure_of_the_source_cools_down_all_of_it_and_nothing_else():
    refused = failed(1, R.BAD_CREDENTIALS, failure_scope=FailureScope.SOURCE)

    assert set(cooldowns([refused], NOW)) == {SOURCE}
    assert failures_so_far([refused], SOURCE, OTHER) == 1, "the next record of any offer starts with it"
    assert failures_so_far([refused], SourceKey("dear", "simulated"), OTHER) == 0, "another class has other credentials"


def test_a_failure_of_a_zone_cools_down_its_offers_only():
    refused = failed(2, R.NO_CAPACITY, failure_scope=FailureScope.ZONE)

    assert set(cooldowns([refused], NOW)) == {ZoneKey("cheap", "simulated", "us-east")}
    assert failures_so_far([refused], SOURCE, OTHER._replace(region="us-east")) == 2
    assert failures_so_far([refused], SOURCE, OTHER) == 0


def test_a_failure_of_one_offer_says_nothing_about_its_source():
    alone = failed(4, R.NO_CAPACITY)
    assert failures_so_far([alone], SOURCE, OTHER) == 0


def test_a_success_ends_the_row_of_failures_of_a_source():
    refused = failed(3, R.BAD_CREDENTIALS, failure_scope=FailureScope.SOURCE)
    fine = record(S.READY, since=NOW + minutes(9), name="fine")

    assert failures_so_far([refused, fine], SOURCE, OTHER) == 0


@pytest.mark.parametrize(
    ("now", "ended"),
    [
        ({SOURCE: {"configuration": "a", "Secret f/key": "7"}}, False),
        ({SOURCE: {"configuration": "b", "Secret f/key": "7"}}, True),
        ({SOURCE: {"configuration": "a", "Secret f/key": "8"}}, True),
        ({SOURCE: {"configuration": "a"}}, False),
        ({}, False),
    ],
    ids=["as it was", "the class was edited", "the Secret was edited", "not read since a restart", "no source yet"],
)
def test_a_cooldown_ends_early_when_its_cause_may_be_mended(now, ended):
    revision = {"configuration": "a", "Secret f/key": "7"}
    refused = failed(1, R.BAD_CREDENTIALS, failure_scope=FailureScope.SOURCE, failure_revision=revision)

    assert (cooldowns([refused], NOW, now) == {}) is ended


def test_missing_stock_is_not_mended_by_another_configuration():
    none = failed(1, R.NO_CAPACITY, failure_revision={"configuration": "a"})
    assert set(cooldowns([none], NOW, {SOURCE: {"configuration": "b"}})) == {KEY}


def test_a_failed_record_is_kept_until_an_hour_after_its_cooldown_so_that_the_next_one_grows():
    third = failed(3, R.NO_CAPACITY)

    assert next_step(facts(third), NOW + minutes(79)) is None
    assert isinstance(next_step(facts(third), NOW + minutes(80)), DeleteRecord)


def test_of_the_failures_of_an_offer_and_of_its_source_the_most_count():
    refused = failed(1, R.BAD_CREDENTIALS, failure_scope=FailureScope.SOURCE, since=NOW - minutes(20), name="a")
    sold_out = failed(4, R.NO_CAPACITY, name="b")

    assert failures_so_far([refused, sold_out], SOURCE, KEY) == 4
    assert failures_so_far([refused, sold_out], SOURCE, OTHER) == 1


def test_an_order_that_was_refused_cools_down_for_its_own_pod_only():
    refused = [failed(1, failure_scope=FailureScope.ORDER, name=name) for name in ("a", "b")]

    assert cooldowns(refused, NOW) == {}
    assert failures_so_far(refused, SOURCE, KEY) == 0
    assert order_cooldown(refused[:1], KEY).until == NOW + minutes(5)
    assert order_cooldown(refused, KEY).until == NOW + minutes(10), "twice for this pod"
    assert order_cooldown(refused, OTHER) is None
    assert order_cooldown([failed(1)], KEY) is None, "that speaks against the offer itself"


def test_refused_orders_are_counted_from_the_last_one_whatever_their_order():
    first = failed(1, failure_scope=FailureScope.ORDER, since=NOW - minutes(3), name="a")
    last = failed(1, failure_scope=FailureScope.ORDER, name="b")

    for refused in ([first, last], [last, first]):
        found = order_cooldown(refused, KEY)
        assert (found.until, found.failure) == (NOW + minutes(10), last.status.transitions[-1])


def test_an_order_that_has_not_failed_yet_cools_nothing_down():
    assert order_cooldown([record(S.LAUNCHING, failure_scope=FailureScope.ORDER, failures=1)], KEY) is None


def test_of_two_cooldowns_that_end_at_once_the_first_is_told():
    both = [failed(1, name="a"), failed(1, name="b")]
    assert cooldowns(both, NOW)[KEY].sentence.startswith("a failed")


def test_a_record_without_an_offer_cools_nothing_down_and_says_nothing_about_the_next():
    found = failed(2, spec=rented_spec(offer=None, pods=()))

    assert cooldowns([found], NOW) == {}
    assert failures_so_far([found, failed(1, name="b")], SOURCE, KEY) == 1


def test_a_record_that_has_no_history_says_nothing_about_the_next():
    assert failures_so_far([fresh_record(), record(S.LAUNCHING, transitions=()), failed(3)], SOURCE, KEY) == 3


def test_of_the_failures_of_one_offer_the_latest_counts_in_any_order():
    early, late = failed(4, since=NOW - minutes(9), name="a"), failed(1, name="b")

    assert failures_so_far([early, late], SOURCE, KEY) == failures_so_far([late, early], SOURCE, KEY) == 1


def test_a_member_whose_group_could_not_create_it_cools_down_from_the_failure_on():
    """Its group went on trying, so nobody waited for the answer of the first call."""
    lost = {"because": R.LAUNCH_FAILED, "failures": 1, "failure_scope": FailureScope.SOURCE}
    member = rented_spec(node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))

    def until(spec, scope=FailureScope.SOURCE):
        made = record(S.TERMINATING, since=NOW, spec=spec, **{**lost, "failure_scope": scope})
        steps = tuple(
            replace(each, at=NOW - minutes(4)) if each.state is S.LAUNCHING else each
            for each in made.status.transitions
        )
        (only,) = cooldowns([replace(made, status=replace(made.status, transitions=steps))], NOW).values()
        return only.until

    assert until(rented_spec()) == NOW + minutes(1), "from the first call"
    assert until(rented_spec(), None) == NOW + minutes(5)
    assert until(member) == NOW + minutes(5)


@pytest.mark.parametrize("scope", [FailureScope.ZONE, FailureScope.SOURCE])
def test_any_failure_that_is_wider_than_its_offer_may_be_mended_by_another_configuration(scope):
    none = failed(1, R.NO_CAPACITY, failure_scope=scope, failure_revision={"configuration": "a"})

    assert cooldowns([none], NOW, {SOURCE: {"configuration": "b"}}) == {}
    assert cooldowns([none], NOW) != {}


def test_a_failed_launch_cools_down_also_while_its_node_drains_and_after_it_is_gone():
    drained = record(S.GONE, because=R.TERMINATED, failures=1, since=NOW)
    steps = tuple(
        replace(each, reason=R.GPUS_MISSING) if each.state is S.DRAINING else each
        for each in drained.status.transitions
    )
    gone = replace(drained, status=replace(drained.status, transitions=steps))

    assert cooldowns([gone], NOW)[KEY].failure.state is S.DRAINING
    assert cooldown_end(gone) == NOW + minutes(5)
    assert cooldown_end(record(S.GONE)) is None


POOLED = rented_spec(pool_ref=PoolRef(namespace="team", name="gpus"))
POOL = SourcePoolKey("team", "gpus", "cheap", "simulated")


def unusable(name, ordered, ended, because=R.JOIN_TIMEOUT, spec=POOLED, **fields):
    """One that was ordered and failed so many minutes after NOW."""
    made = failed(
        1,
        because,
        S.GONE if because is R.NO_CAPACITY else S.TERMINATING,
        since=NOW + minutes(ended),
        name=name,
        spec=spec,
        **fields,
    )
    return replace(made, metadata=replace(made.metadata, creation_timestamp=NOW + minutes(ordered)))


ROW = (unusable("a", 0, 15), unusable("b", 15, 30))


def test_the_third_machine_in_a_row_that_is_of_no_use_speaks_against_more_than_its_offer():
    assert without_usable_nodes(ROW) == {POOL}
    assert without_usable_nodes(ROW[:1]) == frozenset()


@pytest.mark.parametrize(
    "others",
    [
        (ROW[0], unusable("b", 14, 29)),
        (*ROW, record(S.READY, since=NOW + minutes(31), name="fine", spec=POOLED)),
        (ROW[0], unusable("b", 15, 30, R.NO_CAPACITY)),
        (ROW[0], unusable("b", 15, 30, spec=replace(POOLED, pool_ref=PoolRef(namespace="team", name="others")))),
        (ROW[0], unusable("b", 15, 30, spec=replace(POOLED, node_class_name="dear"))),
    ],
    ids=["launched beside one another", "one is Ready since", "no capacity", "another pool", "another class"],
)
def test_machines_of_no_use_that_are_no_row_speak_against_their_offers_only(others):
    assert without_usable_nodes(others) == frozenset()


def test_after_a_pool_has_cooled_down_as_a_whole_the_next_failure_does_so_longer():
    """The records of the failures before it may be gone by then."""
    third = unusable("c", 30, 45, failure_scope=FailureScope.POOL)
    assert set(cooldowns([third], NOW + minutes(46))) == {POOL}
    assert without_usable_nodes([third]) == {POOL}
    assert failures_so_far([third], SOURCE, OTHER, ("team", "gpus")) == 1
    assert failures_so_far([third], SOURCE, OTHER, ("team", "others")) == 0


def test_machines_that_a_node_provisioner_keeps_are_a_row_too_and_members_of_instance_groups_are_not():
    def row(**fields):
        spec = rented_spec(provisioner_ref=ProvisionerRef(name="gpus"), **fields)
        return unusable("a", 0, 15, spec=spec), unusable("b", 15, 30, spec=spec)

    assert without_usable_nodes(row()) == {SourcePoolKey("", "gpus", "cheap", "simulated")}
    assert without_usable_nodes(row(node_class_name=None)) == frozenset()


def test_a_changed_class_ends_the_cooldown_of_a_pool():
    third = unusable("c", 30, 45, failure_scope=FailureScope.POOL, failure_revision={"joining": "a"})
    assert set(cooldowns([third], NOW + minutes(46), {SOURCE: {"joining": "a"}})) == {POOL}
    assert cooldowns([third], NOW + minutes(46), {SOURCE: {"joining": "b"}}) == {}
