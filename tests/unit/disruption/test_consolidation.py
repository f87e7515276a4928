"""Scale-down: which nodes are drained, in which order, and how many at a time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.gpu_instance import Purpose, Transition
from forebay.api.gpu_node_pool import ConsolidationPolicy, Disruption, DisruptionBudget
from forebay.api.parts import Condition, Truth
from forebay.disruption.consolidation import (
    ScaleDownRules,
    idle_ends,
    kept_idle,
    must_stay,
    next_scale_down,
    scale_down,
    still_unreplaced,
    taken_back,
)
from forebay.disruption.machine_use import MachineUse, idle_updates
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery
from forebay.model.workloads import Owner
from tests.unit.demand.builders import NOW, ago, node, record, running

POOL = ("team", "pool")
AT_ONCE = ScaleDownRules(pools={POOL: Disruption(consolidate_after="0s", budgets=())})


def machine(name="n1", state=State.READY, *, gpus=8, pods=(), awaited_by=None, refused=None, up=True, **fields):
    return MachineUse(
        record=record(name, state, gpus=gpus, **{"pool": "pool", **fields}),
        node=node(name, gpus, ready=up),
        pods=tuple(pods),
        awaited_by=awaited_by,
        refused=refused,
    )


def idle_since(when):
    return (Condition(type="Idle", status=Truth.TRUE, reason="Idle", last_transition_time=when),)


def rented(name="r1", state=State.READY, *, idle_for=timedelta(hours=1), **fields):
    conditions = idle_since(NOW - idle_for)
    return machine(name, state, delivers=Delivery.NODE, pool="pool", conditions=conditions, **fields)


def pool_rules(**disruption):
    everybody = (DisruptionBudget(nodes="100%"),)
    return ScaleDownRules(pools={POOL: Disruption(**{"budgets": everybody, **disruption})})


def names(found):
    return [each.record.metadata.name for each in found]


def drained(when, name="gone", state=State.GONE):
    return machine(name, state, transitions=(Transition(state=State.DRAINING, at=when, reason="Idle"),), up=False)


def test_an_idle_owned_machine_is_powered_off_at_once_and_the_sentence_says_why():
    (found,) = scale_down([machine()], NOW, AT_ONCE)
    assert found.reason is Reason.IDLE
    assert found.sentence == "Node n1 has run nothing but DaemonSet pods; powering it off."


def test_the_largest_idle_machine_goes_first_and_only_one_in_a_cycle():
    machines = [machine("small", gpus=1), machine("b", gpus=8), machine("a", gpus=8), machine("mid", gpus=4)]
    assert names(scale_down(machines, NOW, AT_ONCE)) == ["a"]


def test_the_next_goes_when_the_cycle_is_over_counted_from_the_records():
    machines = [machine("next"), drained(ago(seconds=9))]
    assert scale_down(machines, NOW, AT_ONCE) == ()
    assert names(scale_down(machines, NOW + timedelta(seconds=1), AT_ONCE)) == ["next"]


def test_an_owned_machine_that_has_to_wait_for_its_turn_keeps_no_smaller_rented_one():
    machines = [machine("owned"), rented("rented", gpus=4), machine("small", gpus=1), drained(ago(seconds=5))]
    assert names(scale_down(machines, NOW, AT_ONCE)) == ["rented"], "nor does that one end the wait of another"


def test_a_machine_that_is_already_off_does_not_block_a_smaller_one():
    machines = [drained(ago(hours=1), "large"), machine("small", gpus=1)]
    assert names(scale_down(machines, NOW, AT_ONCE)) == ["small"]


@pytest.mark.parametrize(
    "used",
    [
        machine(pods=[running()]),
        machine(awaited_by="default/train"),
        machine(up=False),
        machine(state=State.JOINED),
        machine(state=State.LAUNCHED),
        machine(state=State.DRAINING),
        machine(deleted=NOW),
    ],
)
def test_a_machine_that_is_used_awaited_or_not_in_service_is_kept(used):
    assert scale_down([used], NOW, AT_ONCE) == ()


def test_with_consolidate_after_a_machine_must_have_been_idle_for_so_long():
    rules = pool_rules(consolidate_after="5m")
    assert scale_down([machine()], NOW, rules) == ()
    assert scale_down([machine(conditions=idle_since(ago(minutes=4)))], NOW, rules) == ()
    (found,) = scale_down([machine(conditions=idle_since(ago(minutes=5)))], NOW, rules)
    assert "for 5m" in found.sentence


def test_a_machine_that_the_scheduler_does_not_use_goes_once_the_pod_says_so():
    unused = machine(refused="default/train")
    assert scale_down([replace(unused, refusal_recorded=False)], NOW, AT_ONCE) == ()
    (found,) = scale_down([unused], NOW, AT_ONCE)
    assert "default/train" in found.sentence


def test_an_idle_node_of_a_pool_goes_after_consolidate_after():
    rules = pool_rules(consolidate_after="10m")
    assert scale_down([rented(idle_for=timedelta(minutes=9))], NOW, rules) == ()
    assert names(scale_down([rented(idle_for=timedelta(minutes=10))], NOW, rules)) == ["r1"]


@pytest.mark.parametrize(
    "disruption", [{"consolidation_policy": ConsolidationPolicy.NEVER}, {"consolidate_after": "Never"}]
)
def test_a_pool_may_keep_its_idle_nodes(disruption):
    assert scale_down([rented()], NOW, pool_rules(**disruption)) == ()


def test_when_underutilized_covers_only_idle_nodes_for_now():
    rules = pool_rules(consolidation_policy=ConsolidationPolicy.WHEN_UNDERUTILIZED)
    assert names(scale_down([rented(), rented("r2", pods=[running()])], NOW, rules)) == ["r1"]


def of_class(use):
    return replace(use, record=replace(use.record, spec=replace(use.record.spec, node_class_name="rack")))


def test_a_machine_of_a_class_that_no_pool_uses_is_kept():
    assert scale_down([of_class(machine(pool=None))], NOW, AT_ONCE) == ()


def test_a_machine_found_on_is_kept_for_the_adoption_grace():
    rules = replace(AT_ONCE, adoption_grace=timedelta(minutes=10))
    assert scale_down([machine(born=ago(minutes=9))], NOW, rules) == ()
    assert names(scale_down([machine(born=ago(minutes=10))], NOW, rules)) == ["n1"]
    bought = machine(born=ago(minutes=1))
    bought = replace(bought, record=record(pods=[running()], born=ago(minutes=1), pool="pool"))
    assert names(scale_down([bought], NOW, rules)) == ["n1"]


def test_nodes_of_an_unknown_pool_are_kept():
    assert scale_down([rented()], NOW, ScaleDownRules()) == ()


def test_rented_machines_without_a_pool_are_kept():
    assert scale_down([machine(delivers=Delivery.NODE, pool=None)], NOW, AT_ONCE) == ()


def expired(name, state=State.READY, **fields):
    """A node past its pool's expireAfter; where it is leaving, for that reason."""
    return rented(name, state, pods=[running()], born=ago(hours=30), **fields)


def test_nodes_of_an_unknown_pool_do_not_expire():
    assert scale_down([expired("r1")], NOW, ScaleDownRules()) == ()


@pytest.mark.parametrize(("served", "goes"), [(9, False), (10, True)])
def test_a_node_that_took_longer_to_boot_than_its_pool_lets_it_live_serves_for_a_while(served, goes):
    """Otherwise it would be replaced before its pods have come, and so would the one after it."""
    ready = Transition(state=State.READY, at=ago(minutes=served), reason=Reason.NODE_READY, message="")
    old = rented(born=ago(minutes=30), pods=[running()], transitions=(ready,))
    rules = pool_rules(expire_after="0s", budgets=(DisruptionBudget(nodes=1),))
    assert names(scale_down([old], NOW, rules)) == ([old.name] if goes else [])
    due = next_scale_down([old], NOW, rules)
    assert due == (None if goes else NOW + timedelta(minutes=10 - served))


def test_a_second_without_pods_is_told_and_less_is_not():
    spans = {timedelta(seconds=1): "pods for 1s;", timedelta(seconds=0.9): "pods;"}
    for span, told in spans.items():
        (found,) = scale_down([rented(idle_for=span)], NOW, pool_rules(consolidate_after="0s"))
        assert told in found.sentence


def leaving(reason):
    return {"transitions": (Transition(state=State.DRAINING, at=ago(hours=1), reason=reason, message=""),)}


def test_the_pools_budget_limits_disruptions_of_running_pods_and_counts_those_under_way():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=3),))
    machines = [expired(f"r{number}") for number in range(5)]
    assert names(scale_down(machines, NOW, rules)) == ["r0", "r1", "r2"]
    under_way = [
        expired("x", State.DRAINING, **leaving(Reason.EXPIRED)),
        expired("y", State.TERMINATING, **leaving(Reason.EXPIRED)),
    ]
    assert names(scale_down([*machines, *under_way], NOW, rules)) == ["r0"]


def test_empty_nodes_spend_no_budget_and_what_cannot_go_holds_none_of_them():
    rules = pool_rules(budgets=(DisruptionBudget(nodes=1),))
    machines = [rented(f"r{number}") for number in range(3)]
    stuck = [
        rented("blocked", State.DRAINING, pods=[running()], **leaving(Reason.EXPIRED)),
        rented("failing", State.TERMINATING, **leaving(Reason.IDLE)),
    ]
    assert names(scale_down([*machines, *stuck], NOW, rules)) == ["r0", "r1", "r2"]


def test_a_blocked_drain_and_a_failed_power_off_keep_no_idle_node_with_pods_on_either():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    cpu_only = rented("idle", pods=[running(gpus=0)])
    failing = rented(
        "failing", State.TERMINATING, reason=Reason.TERMINATION_FAILED, since=ago(hours=1), **leaving(Reason.EXPIRED)
    )

    def drains(since):
        return rented("blocked", State.DRAINING, pods=[running()], since=since, **leaving(Reason.EXPIRED))

    assert names(scale_down([cpu_only, drains(ago(minutes=4))], NOW, rules)) == []
    assert names(scale_down([cpu_only, drains(ago(minutes=5)), failing], NOW, rules)) == ["idle"]
    assert names(scale_down([expired("old"), failing], NOW, rules)) == ["old"]
    assert names(scale_down([expired("old"), drains(ago(minutes=5))], NOW, rules)) == [], "or all would be cordoned"


def test_nodes_that_leave_count_for_a_budget_in_percent():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes="50%"),))
    staying = [expired(f"r{number}") for number in range(3)]
    under_way = expired("x", State.DRAINING, **leaving(Reason.EXPIRED))
    assert names(scale_down([*staying, under_way], NOW, rules)) == ["r0"], "two of four"


def test_machines_without_a_pool_do_not_hide_those_of_a_pool_from_its_budget():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    under_way = expired("x", State.DRAINING, **leaving(Reason.EXPIRED))
    alone = machine("alone", delivers=Delivery.NODE, pool=None, pods=(running(),))
    assert scale_down([alone, expired("r1"), under_way], NOW, rules) == ()


def test_a_record_without_a_status_holds_nobody_back():
    requested = [machine("new", None), rented("other", None)]
    assert names(scale_down([*requested, machine("idle")], NOW, AT_ONCE)) == ["idle"]
    assert names(scale_down([*requested, rented("r1")], NOW, pool_rules())) == ["r1"]


def test_a_budget_of_none_keeps_empty_nodes_too():
    assert scale_down([rented()], NOW, pool_rules(budgets=(DisruptionBudget(nodes=0),))) == ()


def test_a_launch_that_never_registered_is_not_counted_by_a_budget():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    failed = rented("failed", State.TERMINATING, node_name=None, **leaving(Reason.JOIN_TIMEOUT))
    assert names(scale_down([expired("r1"), failed], NOW, rules)) == ["r1"]


def test_an_owned_machine_of_a_pool_obeys_the_pool_and_the_cycle():
    rules = pool_rules(consolidate_after="10m")
    owned = [machine(name, pool="pool", conditions=idle_since(ago(minutes=10))) for name in "ab"]
    assert names(scale_down(owned, NOW, rules)) == ["a"]
    assert scale_down([machine(pool="pool", conditions=idle_since(ago(minutes=9)))], NOW, rules) == ()


def test_an_expired_node_is_drained_whatever_runs_on_it():
    rules = pool_rules(expire_after="24h")
    busy = [running()]
    machines = [
        rented("young", pods=busy, born=ago(hours=23)),
        rented("older", pods=busy, born=ago(hours=26)),
        rented("old", pods=busy, born=ago(hours=25)),
    ]
    found = scale_down(machines, NOW, rules)
    assert names(found) == ["older", "old"]
    assert found[0].reason is Reason.EXPIRED
    assert "26h old, past its pool's expireAfter of 24h" in found[0].sentence


def test_an_idle_node_that_has_also_expired_goes_once_and_as_idle():
    rules = pool_rules(consolidate_after="0s", expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    idle = rented("idle", born=ago(hours=30))
    (found,) = scale_down([idle], NOW, rules)
    assert found.reason is Reason.IDLE
    assert names(scale_down([idle, expired("used")], NOW, rules)) == ["idle", "used"], "an empty node spends no budget"


@pytest.mark.parametrize(
    ("message", "said"), [("It is reclaimed at 12:10 UTC.", None), ("", "Its provider takes the machine back.")]
)
def test_a_node_that_is_taken_back_goes_with_the_providers_notice_unless_people_hold_it(message, said):
    notice = Condition(
        type="Replacement", status=Truth.TRUE, reason=Reason.RECLAIMED, message=message, last_transition_time=NOW
    )
    reclaimed = machine("spot", delivers=Delivery.NODE, pods=[running()], conditions=(notice,))
    (found,) = taken_back([reclaimed, rented("other")])
    assert (found.record, found.reason, found.sentence) == (reclaimed.record, Reason.RECLAIMED, said or message)
    assert taken_back([replace(reclaimed, node=node(annotations={"forebay.dev/do-not-disrupt": "true"}))]) == ()


def unneeded(idle_for, **fields):
    """A rented machine that boots, and that nobody needs any more."""
    conditions = idle_since(NOW - idle_for)
    booting = record("r1", State.LAUNCHED, delivers=Delivery.NODE, pool="pool", conditions=conditions, **fields)
    booting = replace(booting, spec=replace(booting.spec, purpose=Purpose.PODS))
    return MachineUse(record=booting, node=None, wanted=False)


def test_a_machine_that_boots_for_nobody_goes_after_consolidate_after():
    rules = pool_rules(consolidate_after="5m")

    assert scale_down([unneeded(timedelta(minutes=4))], NOW, rules) == ()
    assert next_scale_down([unneeded(timedelta(minutes=4))], NOW, rules) == NOW + timedelta(minutes=1)
    (found,) = scale_down([unneeded(timedelta(minutes=6))], NOW, rules)
    assert "still boots, but none of its pods has been pending for 6m, and no pod needs it" in found.sentence
    (found,) = scale_down([unneeded(timedelta(0))], NOW, pool_rules(consolidate_after="0s"))
    assert "none of its pods has been pending, and no pod needs it" in found.sentence


def test_idle_nodes_go_beside_expired_ones():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    assert names(scale_down([expired("old"), rented("idle")], NOW, rules)) == ["idle", "old"]


def test_an_owned_machine_does_not_expire():
    old = machine(pool="pool", pods=[running()], born=ago(days=900))
    assert scale_down([old], NOW, pool_rules(expire_after="24h")) == ()


@pytest.mark.parametrize(
    "annotation",
    [
        {"karpenter.sh/do-not-disrupt": "true"},
        {"forebay.dev/do-not-disrupt": "true"},
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
    ],
)
def test_a_pod_that_must_not_be_evicted_keeps_its_node_from_expiring(annotation):
    stays = running(annotations=annotation)
    assert must_stay(stays)
    old = rented(pods=[stays], born=ago(days=9))
    assert scale_down([old], NOW, pool_rules(expire_after="24h")) == ()


def test_a_node_that_people_hold_does_not_expire():
    old = replace(rented(born=ago(days=9)), node=node("r1", annotations={"forebay.dev/maintenance": "true"}))
    assert old.held is not None
    assert scale_down([old], NOW, pool_rules(expire_after="24h", consolidate_after="Never")) == ()


@pytest.mark.parametrize(
    "annotation",
    [{"karpenter.sh/do-not-disrupt": "false"}, {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, {}],
)
def test_other_values_keep_nothing(annotation):
    assert not must_stay(running(annotations=annotation))


def test_an_idle_node_with_do_not_disrupt_is_kept():
    kept = machine()
    kept = replace(kept, node=node(annotations={"forebay.dev/do-not-disrupt": "true"}))
    assert scale_down([kept], NOW, AT_ONCE) == ()


machines = st.builds(
    machine,
    st.sampled_from("abcdefgh"),
    st.sampled_from([state for state in State if state not in (State.RUNNING, State.FINISHED)]),
    gpus=st.integers(1, 8),
    pods=st.sampled_from(((), (), (running(),), (running(owner=Owner("Job", "j", "u")),))),
    awaited_by=st.sampled_from((None, None, "default/train")),
    up=st.booleans(),
    delivers=st.sampled_from((Delivery.POWER, Delivery.NODE)),
    pool=st.sampled_from((None, "pool")),
    born=st.sampled_from((ago(minutes=5), ago(days=3))),
    conditions=st.sampled_from(((), idle_since(ago(hours=1)))),
)


@pytest.mark.law
@given(
    st.lists(machines, max_size=8, unique_by=lambda each: each.name),
    st.sampled_from(("Never", "1h")),
    st.integers(0, 3),
    st.sampled_from(("0s", "1m")),
)
def test_no_machine_with_pods_counts_as_idle_and_neither_budget_nor_cycle_is_exceeded(
    there, expire_after, budget, idle_delay
):
    budgets = (DisruptionBudget(nodes=budget),)
    disruption = Disruption(expire_after=expire_after, consolidate_after=idle_delay, budgets=budgets)
    found = scale_down(there, NOW, ScaleDownRules(pools={POOL: disruption}))
    by_name = {each.name: each for each in there}
    assert len({each.record.metadata.name for each in found}) == len(found)
    for each in found:
        chosen = by_name[each.record.metadata.name]
        assert chosen.state is State.READY
        assert each.sentence
        if each.reason is Reason.IDLE:
            assert not chosen.pods
            assert chosen.awaited_by is None
    owned = [each for each in found if each.record.spec.delivers is Delivery.POWER]
    assert len(owned) <= 1
    of_pool = [each for each in found if each.record.spec.pool_ref is not None]
    drained = [each for each in of_pool if each.reason is not Reason.IDLE]
    under_way = [
        each
        for each in there
        if each.record.spec.pool_ref is not None and each.state in (State.DRAINING, State.TERMINATING)
    ]
    assert not of_pool or budget > 0
    assert not drained or len(drained) + len(under_way) <= budget


@pytest.mark.law
@given(st.lists(machines, max_size=6, unique_by=lambda each: each.name))
def test_once_the_idle_conditions_are_written_there_is_none_to_write(there):
    written = {each.record.metadata.name: each.status for each in idle_updates(there, NOW)}
    there = [
        replace(each, record=replace(each.record, status=written.get(each.name, each.record.status))) for each in there
    ]
    assert idle_updates(there, NOW + timedelta(hours=1)) == ()


def test_the_next_look_is_when_the_first_idle_node_may_go():
    rules = pool_rules(consolidate_after="2h")
    machines = [rented("r1", idle_for=timedelta(minutes=90)), rented("r2", idle_for=timedelta(hours=1))]

    assert next_scale_down(machines, NOW, rules) == NOW + timedelta(minutes=30)
    assert next_scale_down([rented(pods=(running(),))], NOW, rules) is None, "only its pod's end can bring a change"
    assert next_scale_down(machines, NOW, pool_rules(consolidation_policy=ConsolidationPolicy.NEVER)) is None


def test_while_the_cycle_lasts_the_next_look_is_at_its_end():
    assert next_scale_down([machine("next"), drained(ago(seconds=9))], NOW, AT_ONCE) == NOW + timedelta(seconds=1)
    # One goes now, and the other a cycle later.
    assert next_scale_down([machine("a"), machine("b")], NOW, AT_ONCE) == NOW + timedelta(seconds=10)


def test_without_a_cycle_nobody_looks_again_at_the_same_moment():
    assert next_scale_down([machine("a")], NOW, replace(AT_ONCE, cycle=timedelta(0))) is None


def test_a_node_that_will_expire_is_looked_at_then():
    rules = pool_rules(consolidation_policy=ConsolidationPolicy.NEVER, expire_after="720h")
    used = rented(pods=(running(),))
    created = used.record.metadata.creation_timestamp

    assert next_scale_down([used], created + timedelta(hours=1), rules) == created + timedelta(hours=720)
    assert names(scale_down([used], created + timedelta(hours=720), rules)) == ["r1"]


@given(idle_for=st.integers(0, 7200), after=st.integers(0, 7200), cycle=st.integers(1, 60))
def test_nothing_goes_between_now_and_the_next_look(idle_for, after, cycle):
    rules = replace(pool_rules(consolidate_after=f"{after}s"), cycle=timedelta(seconds=cycle))
    machines = [rented(idle_for=timedelta(seconds=idle_for))]
    if scale_down(machines, NOW, rules):
        return
    due = next_scale_down(machines, NOW, rules)
    assert scale_down(machines, due - timedelta(seconds=1), rules) == ()
    assert names(scale_down(machines, due, rules)) == ["r1"]


def with_spec(machine, **fields):
    return replace(machine, record=replace(machine.record, spec=replace(machine.record.spec, **fields)))


def test_an_expired_node_that_has_lost_its_pods_still_counts_as_disrupted_and_an_idle_one_does_not():
    rules = pool_rules(expire_after="24h", budgets=(DisruptionBudget(nodes=1),))
    for reason, goes in ((Reason.EXPIRED, []), (Reason.IDLE, ["old"])):
        empty = rented("leaving", State.TERMINATING, **leaving(reason))
        assert names(scale_down([empty, expired("old")], NOW, rules)) == goes
    taken = rented("leaving", State.DRAINING, pods=[running()], **leaving(Reason.IDLE))
    assert names(scale_down([taken, expired("old")], NOW, rules)) == [], "pods have arrived meanwhile"


def test_a_machine_that_somebody_sizes_stays_though_no_pod_uses_it():
    sized = with_spec(machine(), purpose=Purpose.GROUP)
    assert scale_down([sized], NOW, AT_ONCE) == ()
    assert next_scale_down([sized], NOW, AT_ONCE) is None
    assert names(scale_down([with_spec(machine(), purpose=Purpose.PODS)], NOW, AT_ONCE)) == ["n1"]


def test_idle_nodes_go_down_to_the_min_nodes_of_their_pool_whoever_they_were_launched_for():
    rules = replace(AT_ONCE, min_nodes={POOL: 2}, cycle=timedelta(0))
    three = [
        with_spec(rented(name), purpose=purpose)
        for name, purpose in (("a", Purpose.STATIC), ("b", Purpose.PODS), ("c", Purpose.STATIC))
    ]
    assert names(scale_down(three, NOW, rules)) == ["a"]
    assert scale_down(three[:2], NOW, rules) == ()
    assert next_scale_down(three[:2], NOW, rules) is None
    assert kept_idle(three[:2], NOW, rules).keys() == {"a", "b"}
    leaving_one = [*three[:2], rented("d", State.DRAINING)]
    assert scale_down(leaving_one, NOW, rules) == (), "one that leaves does not count"
    assert names(scale_down(three, NOW, AT_ONCE)) == ["a", "b", "c"]


def test_the_min_nodes_of_one_pool_keep_no_node_of_another_and_bring_no_look_in_vain():
    later = replace(pool_rules(consolidate_after="2h"), min_nodes={POOL: 1})
    kept, other = rented("kept"), machine("other", delivers=Delivery.NODE, pool="other")
    both = ScaleDownRules(pools={POOL: AT_ONCE.pools[POOL], ("team", "other"): AT_ONCE.pools[POOL]})
    assert names(scale_down([kept, other], NOW, replace(both, min_nodes={POOL: 1}))) == ["other"]
    assert next_scale_down([kept], NOW, later) is None, "no time lets it go"
    assert next_scale_down([kept, rented("spare")], NOW, later) == NOW + timedelta(hours=1)


def test_a_machine_of_unknown_size_goes_after_one_with_a_gpu():
    unknown = with_spec(machine("a"), offer=None)
    assert names(scale_down([unknown, machine("b", gpus=1)], NOW, AT_ONCE)) == ["b"]


def test_a_machine_found_on_whose_age_is_not_known_has_no_grace():
    rules = ScaleDownRules(pools=AT_ONCE.pools, adoption_grace=timedelta(hours=9))
    found = with_spec(machine(), purpose=Purpose.ADOPTED)
    assert scale_down([found], NOW, rules) == ()
    metadata = replace(found.record.metadata, creation_timestamp=None)
    assert names(scale_down([replace(found, record=replace(found.record, metadata=metadata))], NOW, rules)) == ["n1"]


def test_a_machine_whose_provider_is_not_configured_is_not_in_service():
    lost = machine(reason=Reason.PROVIDER_NOT_CONFIGURED)
    assert not lost.in_service
    assert scale_down([lost], NOW, AT_ONCE) == ()
    assert idle_updates([lost], NOW) == ()


def test_the_next_look_is_a_cycle_later_where_the_last_cycle_ends_now():
    cycle = AT_ONCE.cycle
    assert next_scale_down([machine(), drained(NOW - cycle)], NOW, AT_ONCE) == NOW + cycle
    assert next_scale_down([machine(), drained(NOW - cycle / 2)], NOW, AT_ONCE) == NOW + cycle / 2


def test_an_idle_condition_of_the_same_reason_but_another_truth_is_written_again():
    wrong = (Condition(type="Idle", status=Truth.FALSE, reason="Idle", last_transition_time=ago(hours=1)),)
    (update,) = idle_updates([machine(conditions=wrong)], NOW)
    (written,) = update.status.conditions
    assert (written.status, written.last_transition_time) == (Truth.TRUE, NOW)


def test_it_is_known_from_when_nodes_without_gpu_pods_go_and_which_of_them_stay():
    pool = Disruption(consolidate_after="5m", budgets=())
    rules = ScaleDownRules(pools={POOL: pool})
    idle = rented("idle", idle_for=timedelta(minutes=1))
    awaited = rented("awaited", idle_for=timedelta(minutes=2), awaited_by="team/p")
    used = rented("used", pods=[running("p", "used", 1)])
    down = rented("down", up=False)

    found = idle_ends([idle, awaited, used, down], NOW, rules)

    assert found == {"idle": NOW + timedelta(minutes=4), "awaited": NOW + timedelta(minutes=3)}
    assert idle_ends([idle], NOW, ScaleDownRules()) == {}, "its pool is not known"
    assert idle_ends([idle], NOW, replace(rules, min_nodes={POOL: 1})) == {}


def unreplaceable():
    return (
        Condition(
            type="Replacement", status=Truth.FALSE, reason=Reason.REPLACEMENT_UNAVAILABLE, last_transition_time=NOW
        ),
    )


def test_expired_nodes_that_nothing_can_replace_come_last_and_are_remembered():
    rules = pool_rules(expire_after="1h", consolidation_policy="Never", budgets=(DisruptionBudget(nodes=1),))
    pods = (running("web", "x", 1, owner=Owner("ReplicaSet", "web", "u")),)
    stuck = machine("old", delivers=Delivery.NODE, born=ago(hours=9), pods=pods, conditions=unreplaceable())
    other = machine("new", delivers=Delivery.NODE, born=ago(hours=2), pods=pods)
    young = machine("young", delivers=Delivery.NODE, born=ago(minutes=2), pods=pods, conditions=unreplaceable())

    assert names(scale_down([stuck, other, young], NOW, rules)) == ["new"]
    assert names(scale_down([stuck, young], NOW, rules)) == ["old"]
    assert still_unreplaced([stuck, other, young], NOW, rules) == {stuck.record.uid}


def test_the_cycle_counts_from_the_last_of_several_machines_that_were_powered_off():
    before = [drained(ago(hours=1), "first"), drained(ago(seconds=5), "second"), drained(ago(hours=2), "third")]
    assert scale_down([machine("next"), *before], NOW, AT_ONCE) == ()
    assert next_scale_down([machine("next"), *before], NOW, AT_ONCE) == NOW + timedelta(seconds=5)
