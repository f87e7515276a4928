"""Orphans: rented instances without a record are terminated, owned machines adopted."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.instance_order import BillingTerms
from forebay.lifecycle.orphans import Orphans, RecordedInstances, adoptions, orphans_seen
from forebay.lifecycle.steps import Drain
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import AMPLE, InstancePhase, Offer, Source, SourceKey
from tests.unit.lifecycle.builders import (
    NOW,
    OWNED,
    RENTED,
    R,
    S,
    facts,
    instance,
    listed,
    minutes,
    next_step,
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


def found(listings, records=(), nodes=(), make=cloud):
    """Adoptions after each of these listings, a minute and a second apart."""
    seen, answers = Orphans(), []
    by_name = {each.name: each for each in nodes}
    for count, instances in enumerate(listings):
        now = NOW + count * seconds(61)
        sources = [make(listed(*instances, asked=now) if isinstance(instances, list) else instances)]
        seen = orphans_seen(seen, sources, RecordedInstances(records))
        answers.append(adoptions(seen, sources, RecordedInstances(records), by_name, now))
    return answers


def test_an_instance_without_a_record_is_terminated_after_two_listings_and_a_minute():
    orphan = instance("i-7", owner="uid-lost", node_name="n7", created=NOW - minutes(9))

    first, second = found([[orphan], [orphan]])

    assert first == ()
    (adopt,) = second
    assert (adopt.status.state, adopt.reason) == (S.TERMINATING, R.LEFTOVER)
    assert (adopt.status.instance_id, adopt.status.node_name) == ("i-7", "n7")
    assert adopt.status.billed_from == NOW - minutes(9)
    assert adopt.spec.hourly_price == "1.29"
    assert adopt.spec.node_class_name == "cheap"
    assert adopt.name.startswith("leftover-simulated-")


def test_a_second_instance_of_one_launch_is_billed_by_the_terms_of_the_order():
    """An offer may have a minimum that its provider's other offers do not have."""
    terms = BillingTerms(minimum="60s", increment="10s")
    ordered = record(S.LAUNCHED, instance_id="i-1")
    ordered = replace(ordered, spec=replace(ordered.spec, billing=terms, hourly_price="4.80"))
    second = replace(instance("i-2", owner=ordered.uid), price=None)

    *_, (adopt,) = found([[instance("i-1", owner=ordered.uid), second]] * 2, [ordered])

    assert (adopt.reason, adopt.status.instance_id) == (R.DUPLICATE, "i-2")
    assert (adopt.spec.billing, adopt.spec.hourly_price, adopt.status.hourly_price) == (terms, "4.80", "4.80")


@pytest.mark.parametrize("provider_id", ["forebay://simulated/uid-lost", "simulated://i-7"])
def test_the_node_of_an_orphan_is_known_by_its_provider_id_where_listings_have_no_names(provider_id):
    orphan = instance("i-7", owner="uid-lost", provider_id="simulated://i-7")
    others = [node(name="n1"), node(name="n2", provider_id="forebay://simulated/uid-other")]

    *_, (adopt,) = found([[orphan], [orphan]], nodes=[*others, node(name="n7", provider_id=provider_id)])

    assert (adopt.status.node_name, adopt.status.provider_id) == ("n7", provider_id)


def test_a_leftover_of_a_source_in_the_environment_has_no_class_in_its_record():
    """The CRD refuses a class without a name: the record could not be created, and the instance would run on."""
    orphan = instance("i-7", owner="uid-lost")
    *_, (adopt,) = found([[orphan], [orphan]], make=lambda listing: cloud(listing, SourceKey("", "simulated")))
    assert adopt.spec.node_class_name is None


def test_the_same_listing_seen_twice_counts_once():
    old = listed(instance(owner="uid-lost"), asked=NOW)

    assert found([old, old, old]) == [(), (), ()]


def test_two_listings_in_quick_succession_are_not_enough():
    orphan = [instance(owner="uid-lost")]
    seen = Orphans()
    for count in (0, 1, 2):
        source = cloud(listed(*orphan, asked=NOW + seconds(count)))
        seen = orphans_seen(seen, [source], RecordedInstances([]))

    assert adoptions(seen, [source], RecordedInstances([]), {}, NOW + seconds(2)) == ()
    assert len(adoptions(seen, [source], RecordedInstances([]), {}, NOW + seconds(60))) == 1


@pytest.mark.parametrize(("age", "terminated"), [(61, True), (50, False), (-600, False)])
def test_the_minute_of_an_instance_begins_when_the_provider_made_it_so_that_restarts_do_not_put_it_off(age, terminated):
    """An operator that is killed every few seconds sees nothing for a minute. A record is older than its instance."""
    orphan = instance(owner="uid-lost", created=NOW - seconds(age))
    seen = Orphans()
    for count in (0, 5):
        source = cloud(listed(orphan, asked=NOW + seconds(count)))
        seen = orphans_seen(seen, [source], RecordedInstances([]))
        adopted = adoptions(seen, [source], RecordedInstances([]), {}, NOW + seconds(count))
        assert len(adopted) == (terminated and count == 5)


def test_an_orphan_that_is_no_longer_listed_is_dropped():
    orphan = instance(owner="uid-lost")

    assert found([[orphan], [], [orphan]]) == [(), (), ()]


@pytest.mark.parametrize("state", [S.REQUESTED, S.LAUNCHING, S.LAUNCHED, S.READY, S.TERMINATING])
def test_an_instance_with_a_record_is_no_leftover(state):
    assert found([[instance()], [instance()]], [record(state)]) == [(), ()]


def test_the_instance_of_a_gone_record_is_a_leftover():
    """The provider was slow to show it, or showed it again."""
    _, (adopt,) = found([[instance()], [instance()]], [record(S.GONE)])

    assert adopt.reason is R.LEFTOVER


def test_the_second_instance_of_a_record_is_terminated():
    two = [instance("i-1"), instance("i-2")]

    _, (adopt,) = found([two, two], [record(S.LAUNCHED)])

    assert adopt.reason is R.DUPLICATE
    assert "is a second instance of the same GPUInstance. Terminating it." in adopt.sentence
    assert adopt.status.instance_id == "i-2"
    assert found([two, two], [record(S.LAUNCHING)]) == [(), ()], "until one is adopted, either may be"


def test_an_instance_without_an_owner_may_be_the_result_of_a_launch_with_an_unknown_outcome():
    ownerless = [instance("i-3", owner=None)]

    assert found([ownerless, ownerless], [record(S.LAUNCHING)]) == [(), ()]
    assert len(found([ownerless, ownerless], [record(S.READY)])[1]) == 1


def test_an_account_that_two_classes_share_yields_each_leftover_once():
    orphan = instance(owner="uid-lost")
    seen = Orphans()
    for count in (0, 61):
        now = NOW + seconds(count)
        sources = [
            cloud(listed(orphan, asked=now)),
            cloud(listed(orphan, asked=now), SourceKey("dear", "simulated")),
        ]
        seen = orphans_seen(seen, sources, RecordedInstances([]))

    assert len(adoptions(seen, sources, RecordedInstances([]), {}, now)) == 1


def test_a_leftover_that_comes_back_gets_another_record_name():
    orphan = [instance(owner="uid-lost")]
    _, (first,) = found([orphan, orphan])
    gone = record(S.GONE, name=first.name)

    _, (second,) = found([orphan, orphan], [gone])

    assert second.name != first.name
    _, (third,) = found([orphan, orphan], [gone, record(S.GONE, name=second.name)])
    assert third.name not in {first.name, second.name}
    assert found([orphan, orphan])[1][0].name == first.name, "names are derived from the instance"


def test_a_leftover_whose_record_has_no_status_yet_gets_no_second_record():
    orphan = [instance(owner="uid-lost")]
    _, (first,) = found([orphan, orphan])
    created = replace(record(S.TERMINATING, name=first.name), status=None)

    assert found([orphan, orphan], [created])[1] == ()
    other = [*orphan, instance("i-2", owner="uid-lost")]
    (second,) = found([other, other], [created])[1]
    assert second.status.instance_id == "i-2", "others wait for nothing"
    assert "carries this cluster's tag but has no GPUInstance. Terminating it." in second.sentence


def test_pods_on_a_leftover_are_drained():
    orphan = [instance("i-7", owner="uid-lost", node_name="n7")]
    _, (adopt,) = found([orphan, orphan])
    of = record(S.TERMINATING, because=R.LEFTOVER, name=adopt.name, spec=adopt.spec)
    of = replace(of, status=adopt.status)

    assert isinstance(next_step(facts(of, node=node("n7"), pods=(pod(),)), NOW + minutes(2)), Drain)


def test_a_missing_listing_is_not_an_empty_one():
    orphan = instance(owner="uid-lost")

    assert found([[orphan], None, [orphan]]) == [(), (), ()], "sightings start over after a missing listing"


def test_a_source_that_cannot_be_listed_hides_no_leftover_of_another():
    seen, silent = Orphans(), cloud(None, SourceKey("away", "simulated"))
    for count in range(2):
        now = NOW + count * seconds(61)
        sources = [silent, cloud(listed(instance(owner="nobody"), asked=now))]
        seen = orphans_seen(seen, sources, RecordedInstances(()))
    (leftover,) = adoptions(seen, sources, RecordedInstances(()), {}, now)
    assert leftover.status.state is S.TERMINATING


def test_a_machine_that_is_on_is_adopted():
    unknown = listed(unknown=["gpu-1"])

    ((adopt,),) = found([unknown], nodes=[node("gpu-1")], make=power)

    assert (adopt.name, adopt.reason) == ("gpu-1", R.ADOPTED)
    assert (adopt.status.state, adopt.status.instance_id, adopt.status.node_name) == (S.JOINED, "gpu-1", "gpu-1")
    assert adopt.spec.offer.boot_deadline == "180s"
    assert adopt.spec.node.allocatable == {"cpu": "4000m", "nvidia.com/gpu": "2"}, "unstated resources are left out"
    of = record(S.JOINED, owned=True, spec=adopt.spec)
    of = replace(of, status=adopt.status)
    assert next_step(facts(of, node=node("gpu-1")), NOW).status.state is S.READY


@pytest.mark.parametrize(
    ("listing", "seen"),
    [
        pytest.param(listed(unknown=["gpu-1"]), node("gpu-1", ready=False), id="its node is not ready"),
        pytest.param(listed(), node("gpu-1"), id="its listing says that it is off"),
        pytest.param(None, node("gpu-1"), id="nothing is known yet"),
        pytest.param(listed(unknown=["gpu-1"]), node("gpu-1", deleted=NOW), id="its node is being deleted"),
    ],
)
def test_a_machine_is_not_adopted_on_a_guess(listing, seen):
    assert found([listing], nodes=[seen], make=power) == [()]


@pytest.mark.parametrize("state", [S.REQUESTED, S.LAUNCHED, S.READY, S.DRAINING, S.TERMINATING, S.GONE])
def test_a_machine_has_one_record_at_a_time(state):
    unknown = listed(unknown=["gpu-1"])

    assert found([unknown], [record(state, owned=True)], [node("gpu-1")], make=power) == [()]


def test_a_machine_that_is_on_without_registering_is_adopted_with_a_deadline():
    on = [instance("gpu-1", owner=None)]

    first, (adopt,) = found([on, on], nodes=[node("gpu-1", ready=False)], make=power)

    assert first == ()
    assert (adopt.status.state, adopt.reason) == (S.LAUNCHED, R.ADOPTED)
    of = record(S.LAUNCHED, owned=True, spec=adopt.spec)
    of = replace(of, status=adopt.status)
    late = adopt.status.since + minutes(3)
    gone = next_step(facts(of, node=node("gpu-1", ready=False)), late)
    assert gone.status.reason == R.JOIN_TIMEOUT


def test_a_machine_that_is_powering_on_or_off_is_not_adopted():
    for phase in (InstancePhase.ENDING, InstancePhase.STARTING, InstancePhase.STOPPED):
        moving = [instance("gpu-1", phase, owner=None)]
        for there in ((), (node("gpu-1"),)):
            assert found([moving, moving, moving], nodes=there, make=power) == [(), (), ()]


def test_an_old_listing_does_not_show_that_a_machine_is_on():
    stale = replace(listed(instance("gpu-1", owner=None)), asked=NOW - timedelta(hours=1))

    assert found([stale], nodes=[node("gpu-1")], make=power) == [()]


def test_each_orphan_is_judged_by_itself():
    fresh, old = instance("i-1", owner="uid-lost"), instance("i-2", owner="uid-lost")
    _, adopted = found([[old], [fresh, old]])
    assert [each.status.instance_id for each in adopted] == ["i-2"], "the first was seen only once"
