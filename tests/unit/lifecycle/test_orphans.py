"""What runs without a record: rented instances are given back, owned machines taken over."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.lifecycle.next_step import next_step
from forebay.lifecycle.orphans import Orphans, adoptions, orphans_seen
from forebay.lifecycle.steps import Drain
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import AMPLE, InstancePhase, Offer, Source, SourceKey
from tests.unit.lifecycle.scenes import (
    NOW,
    OWNED,
    RENTED,
    R,
    S,
    facts,
    instance,
    listed,
    minutes,
    node,
    pod,
    record,
    seconds,
)

CLOUD = SourceKey("cheap", "simulated")
POWER = SourceKey("", "webhook")
MACHINE = Offer(
    provider="webhook",
    instance_type="gpu-1",
    node_name="gpu-1",
    gpu_count=2,
    price=UsdPerHour("0.4"),
    allocatable=Resources({"cpu": 4000, "memory": AMPLE, "nvidia.com/gpu": 2}),
    boot_deadline=minutes(3),
)


def cloud(listing, key=CLOUD):
    return Source(key=key, capabilities=RENTED, listing=listing)


def power(listing, offers=(MACHINE,)):
    return Source(key=POWER, capabilities=OWNED, listing=listing, offers=offers)


def found(lists, records=(), nodes=(), make=cloud):
    """What is adopted after each of these lists, a minute and a second apart."""
    seen, answers = Orphans(), []
    by_name = {each.name: each for each in nodes}
    for count, instances in enumerate(lists):
        now = NOW + count * seconds(61)
        sources = [make(listed(*instances, asked=now) if isinstance(instances, list) else instances)]
        seen = orphans_seen(seen, sources, records)
        answers.append(adoptions(seen, sources, records, by_name, now))
    return answers


def test_an_instance_nobody_knows_is_given_back_after_two_lists_and_a_minute():
    stranger = instance("i-7", owner="uid-lost", node_name="n7", created=NOW - minutes(9))

    first, second = found([[stranger], [stranger]])

    assert first == ()
    (adopt,) = second
    assert (adopt.status.state, adopt.reason) == (S.TERMINATING, R.LEFTOVER)
    assert (adopt.status.instance_id, adopt.status.node_name) == ("i-7", "n7")
    assert adopt.status.billed_from == NOW - minutes(9)
    assert adopt.spec.hourly_price == "1.29"
    assert adopt.spec.node_class_name == "cheap"
    assert adopt.name.startswith("leftover-simulated-")


def test_the_same_list_seen_twice_counts_once():
    old = listed(instance(owner="uid-lost"), asked=NOW)

    assert found([old, old, old]) == [(), (), ()]


def test_two_lists_in_quick_succession_are_not_enough():
    stranger = [instance(owner="uid-lost")]
    seen = Orphans()
    for count in (0, 1, 2):
        source = cloud(listed(*stranger, asked=NOW + seconds(count)))
        seen = orphans_seen(seen, [source], [])

    assert adoptions(seen, [source], [], {}, NOW + seconds(2)) == ()
    assert len(adoptions(seen, [source], [], {}, NOW + seconds(60))) == 1


def test_an_instance_that_goes_by_itself_is_forgotten():
    stranger = instance(owner="uid-lost")

    assert found([[stranger], [], [stranger]]) == [(), (), ()]


@pytest.mark.parametrize("state", [S.REQUESTED, S.LAUNCHING, S.LAUNCHED, S.READY, S.TERMINATING])
def test_what_a_record_stands_for_is_no_leftover(state):
    assert found([[instance()], [instance()]], [record(state)]) == [(), ()]


def test_what_a_gone_record_stood_for_is_a_leftover():
    """The provider was slow to show it, or showed it again."""
    _, (adopt,) = found([[instance()], [instance()]], [record(S.GONE)])

    assert adopt.reason is R.LEFTOVER


def test_the_second_one_for_the_same_need_is_given_back():
    two = [instance("i-1"), instance("i-2")]

    _, (adopt,) = found([two, two], [record(S.LAUNCHED)])

    assert adopt.reason is R.DUPLICATE
    assert adopt.status.instance_id == "i-2"
    assert found([two, two], [record(S.LAUNCHING)]) == [(), ()], "until one is chosen, both are wanted"


def test_an_instance_that_does_not_say_for_whom_it_is_may_be_the_launch_that_is_being_found_out_about():
    nameless = [instance("i-3", owner=None)]

    assert found([nameless, nameless], [record(S.LAUNCHING)]) == [(), ()]
    assert len(found([nameless, nameless], [record(S.READY)])[1]) == 1


def test_an_account_that_two_classes_share_gives_each_leftover_once():
    stranger = instance(owner="uid-lost")
    seen = Orphans()
    for count in (0, 61):
        now = NOW + seconds(count)
        sources = [
            cloud(listed(stranger, asked=now)),
            cloud(listed(stranger, asked=now), SourceKey("dear", "simulated")),
        ]
        seen = orphans_seen(seen, sources, [])

    assert len(adoptions(seen, sources, [], {}, now)) == 1


def test_a_leftover_that_comes_back_gets_a_name_of_its_own():
    stranger = [instance(owner="uid-lost")]
    _, (first,) = found([stranger, stranger])
    gone = record(S.GONE, name=first.name)

    _, (second,) = found([stranger, stranger], [gone])

    assert second.name != first.name
    assert found([stranger, stranger])[1][0].name == first.name, "names follow from what they are for"


def test_pods_on_a_leftover_are_given_time_to_leave():
    stranger = [instance("i-7", owner="uid-lost", node_name="n7")]
    _, (adopt,) = found([stranger, stranger])
    of = record(S.TERMINATING, because=R.LEFTOVER, name=adopt.name, spec=adopt.spec)
    of.status = adopt.status

    assert isinstance(next_step(facts(of, node=node("n7"), pods=(pod(),)), NOW + minutes(2)), Drain)


def test_an_unknown_provider_state_is_not_an_empty_one():
    stranger = instance(owner="uid-lost")

    assert found([[stranger], None, [stranger]]) == [(), (), ()], "what was not listed begins anew"


def test_a_machine_that_is_on_is_taken_over_so_that_it_goes_off_when_idle():
    blind = listed(unknown=["gpu-1"])

    ((adopt,),) = found([blind], nodes=[node("gpu-1")], make=power)

    assert (adopt.name, adopt.reason) == ("gpu-1", R.ADOPTED)
    assert (adopt.status.state, adopt.status.instance_id, adopt.status.node_name) == (S.JOINED, "gpu-1", "gpu-1")
    assert adopt.spec.offer.boot_deadline == "180s"
    assert adopt.spec.node.allocatable == {"cpu": "4000m", "nvidia.com/gpu": "2"}, "what nobody stated is left out"
    of = record(S.JOINED, owned=True, spec=adopt.spec)
    of.status = adopt.status
    assert next_step(facts(of, node=node("gpu-1")), NOW).status.state is S.READY


@pytest.mark.parametrize(
    ("listing", "seen"),
    [
        pytest.param(listed(unknown=["gpu-1"]), node("gpu-1", ready=False), id="its node is not ready"),
        pytest.param(listed(), node("gpu-1"), id="its list says that it is off"),
        pytest.param(None, node("gpu-1"), id="nothing is known yet"),
        pytest.param(listed(unknown=["gpu-1"]), node("gpu-1", deleted=NOW), id="its node is being removed"),
    ],
)
def test_a_machine_is_not_taken_over_on_a_guess(listing, seen):
    assert found([listing], nodes=[seen], make=power) == [()]


@pytest.mark.parametrize("state", [S.REQUESTED, S.LAUNCHED, S.READY, S.DRAINING, S.TERMINATING, S.GONE])
def test_there_is_one_record_for_one_machine(state):
    blind = listed(unknown=["gpu-1"])

    assert found([blind], [record(state, owned=True)], [node("gpu-1")], make=power) == [()]


def test_a_machine_that_is_on_without_becoming_a_node_is_taken_over_with_a_deadline():
    on = [instance("gpu-1", owner=None)]

    first, (adopt,) = found([on, on], nodes=[node("gpu-1", ready=False)], make=power)

    assert first == ()
    assert (adopt.status.state, adopt.reason) == (S.LAUNCHED, R.ADOPTED)
    of = record(S.LAUNCHED, owned=True, spec=adopt.spec)
    of.status = adopt.status
    late = adopt.status.since + minutes(3)
    gone = next_step(facts(of, node=node("gpu-1", ready=False)), late)
    assert gone.status.reason == R.JOIN_TIMEOUT


def test_a_machine_on_its_way_off_or_up_is_left_to_itself():
    for phase in (InstancePhase.ENDING, InstancePhase.STARTING, InstancePhase.STOPPED):
        moving = [instance("gpu-1", phase, owner=None)]
        assert found([moving, moving, moving], make=power) == [(), (), ()]


def test_an_old_list_is_no_sign_that_a_machine_is_on():
    stale = replace(listed(instance("gpu-1", owner=None)), asked=NOW - timedelta(hours=1))

    assert found([stale], nodes=[node("gpu-1")], make=power) == [()]
