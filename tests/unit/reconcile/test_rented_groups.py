"""What a rented group may rent, machines of it that have lost their record, and those of deleted provisioners."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import (
    GPUInstanceSpec,
    GPUInstanceStatus,
    InstanceState,
    ProvisionerRef,
    Purpose,
)
from forebay.api.parts import Condition, Truth
from forebay.lifecycle.member_names import new_member_name
from forebay.lifecycle.steps import Adopt
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import (
    Delivery,
)
from forebay.planning.plan import Cap
from forebay.reconcile.rented_groups import RentedGroup, into_groups, leave_deleted, next_leave, rented_group
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, ago, node, record, running
from tests.unit.reconcile.test_group_reports import A100, CLASS_KEY, node_class, provisioner, source

S = InstanceState


def rents(*offers, of=None, classes=None):
    seen = Snapshot(now=NOW, classes=(node_class(),) if classes is None else classes)
    return rented_group(of or provisioner(rented=True), source(key=CLASS_KEY, offers=offers), seen)


def test_a_rented_group_has_one_candidate_for_each_place_that_offers_its_machine_type():
    offers = (
        replace(A100, region="us"),
        replace(A100, region="us", zone="us-a"),
        A100,
        replace(A100, instance_type="h100", region="us", zone="us-b"),
    )
    assert set(rents(*offers).candidates) == {"us", "us-a", "simulated"}
    assert set(rents(*offers, of=provisioner(rented=True, location="us")).candidates) == {"us", "us-a"}
    assert set(rents(*offers, of=provisioner(rented=True, location="us-a")).candidates) == {"us-a"}
    spot = rents(replace(A100, spot=True))
    assert spot.candidates == {}
    assert "does not allow spot" in spot.refused[0]


@pytest.mark.parametrize("classes", [(), (node_class(deleted=NOW),)])
def test_nothing_is_rented_from_a_class_that_is_not_there_or_going(classes):
    found = rents(A100, classes=classes)
    assert (found.candidates, found.template_hash) == ({}, None)


def test_the_room_of_a_place_is_the_least_of_its_stock_and_the_limits_of_its_class():
    found = rents(replace(A100, region="us", stock=5), replace(A100, region="eu", price=UsdPerHour("4")))

    def room(*caps, taken=None, place="us"):
        return replace(found, caps=caps).room(place, taken or {})

    nodes = Cap(name="n", pools=frozenset(), nodes=3)
    money = Cap(name="m", pools=frozenset(), hourly_cost=UsdPerHour("9"))
    cpus = Cap(name="c", pools=frozenset(), resources=Resources({"cpu": 4000, "nvidia.com/gpu": 1}))
    assert (room(), room(place="eu")) == (5, None)
    assert room(taken={"us": 2}) == 3
    assert (room(nodes), room(nodes, taken={"eu": 1}), room(nodes, taken={"eu": 9})) == (3, 2, 0)
    assert (room(money), room(money, place="eu"), room(money, taken={"eu": 1})) == (4, 2, 2)
    assert (room(cpus), room(cpus, taken={"us": 1}), room(cpus, taken={"us": 2, "eu": 1})) == (4, 3, 1)
    assert replace(found, caps=(nodes, money)).limit("us") is None
    assert replace(found, caps=(replace(nodes, nodes=0), money)).limit("us") == "n"
    assert replace(found, caps=(nodes, replace(money, hourly_cost=UsdPerHour("1")))).limit("us") == "m"


@pytest.mark.parametrize(
    ("made_of", "now", "drifted"), [("1", "2", True), ("1", "1", False), (None, "2", False), ("1", None, False)]
)
def test_a_machine_has_drifted_where_both_hashes_are_known_and_differ(made_of, now, drifted):
    made = record()
    made = replace(made, spec=replace(made.spec, template_hash=made_of))
    assert RentedGroup(template_hash=now).drifted(made) is drifted


def lost(name="n1", since=None, state=S.READY, *, group_class="cloud", owner="gone"):
    """A machine of a NodeProvisioner that was deleted then."""
    condition = Condition(
        type="PoolExists", status=Truth.FALSE, reason="PoolGone", last_transition_time=since or ago(minutes=5)
    )
    made = record(name, state, delivers=Delivery.NODE, conditions=(condition,))
    reference = ProvisionerRef(name=owner)
    return replace(made, spec=replace(made.spec, node_class_name=group_class, provisioner_ref=reference))


def leaving(*records, excluded=(), **fields):
    seen = Snapshot(now=NOW, records=records, **fields)
    return [each.record.metadata.name for each in leave_deleted(seen, excluded)], next_leave(seen)


def test_an_empty_machine_of_a_deleted_provisioner_is_drained_after_five_minutes():
    assert leaving(lost()) == (["n1"], None)
    assert leaving(lost(since=ago(minutes=4))) == ([], NOW + timedelta(minutes=1))
    assert leaving(lost(since=ago(minutes=4)), lost("n2", since=ago(minutes=3)))[1] == NOW + timedelta(minutes=1)
    assert leaving(lost(state=S.JOINED))[0] == []
    assert leaving(lost(group_class=None))[0] == [], "a member of a group that is the user's stays in it"
    assert leaving(lost(), excluded={"n1"})[0] == []
    assert leaving(lost(), pods_by_node={"n1": (running(),)}, nodes={"n1": node()})[0] == []
    assert leaving(lost(owner="gpus"), provisioners=(provisioner(rented=True),))[0] == [], "it is back"
    assert leaving(lost(), unreadable_provisioners=frozenset({"gone"}))[0] == []


# Machines of a rented group that have lost their record


def leftover(name, price=None, node_name=None, reason=Reason.LEFTOVER, provider="simulated"):
    status = GPUInstanceStatus(
        state=S.TERMINATING,
        instance_id="i-1",
        provider_id="sim://i-1",
        node_name=name if node_name is None else node_name,
        hourly_price=price,
        billed_from=ago(hours=1),
    )
    spec = GPUInstanceSpec(purpose=Purpose.ADOPTED, provider=provider, delivers=Delivery.NODE, hourly_price=price)
    return Adopt(name="leftover-1", spec=spec, status=status, reason=reason, sentence="A leftover.")


def taken_in(adopt, *, of=None, nodes=(), records=(), offers=(A100,), listed=True):
    owner = of or provisioner(rented=True)
    found = source(key=CLASS_KEY, offers=offers)
    seen = Snapshot(
        now=NOW,
        provisioners=(owner,),
        classes=(node_class(),),
        sources={CLASS_KEY: found} if listed else {},
        nodes={each.name: each for each in nodes},
        records=records,
    )
    return list(into_groups(seen, [adopt]))


NAME = new_member_name(provisioner(rented=True), 0, set())


def test_a_machine_that_a_provisioner_named_is_its_member_again_at_the_price_that_is_billed():
    (member,) = taken_in(leftover(NAME, "1.75"))

    assert (member.name, member.reason, member.status.state) == (NAME, Reason.ADOPTED, S.LAUNCHED)
    assert member.spec.provisioner_ref == ProvisionerRef(name="gpus", group="simulated")
    assert member.spec.hourly_price == "1.75"
    assert (member.status.instance_id, member.status.billed_from) == ("i-1", ago(hours=1))
    (offered,) = taken_in(leftover(NAME))
    assert offered.spec.hourly_price == "2", "as it is offered"
    (unknown,) = taken_in(leftover(NAME, "1.75"), offers=())
    assert unknown.spec.provisioner_ref == ProvisionerRef(name="gpus", group=None), "where it is nobody knows"
    assert unknown.spec.node_class_name == "cloud"


@pytest.mark.parametrize(
    ("fields", "state"),
    [({}, S.JOINED), ({"ready": False}, S.LAUNCHED), ({"deleted": NOW}, S.LAUNCHED)],
    ids=["Ready", "NotReady", "being deleted"],
)
def test_a_machine_that_is_found_again_has_joined_where_its_node_is_ready(fields, state):
    (member,) = taken_in(leftover(NAME), nodes=[node(NAME, **fields)])
    assert member.status.state is state


def test_a_machine_that_is_found_again_is_where_its_node_says():
    offers = (replace(A100, region="eu"), replace(A100, region="us"))
    there = node(NAME, labels={"topology.kubernetes.io/region": "us", "team": "eu"})
    assert taken_in(leftover(NAME), nodes=[there], offers=offers)[0].spec.provisioner_ref.group == "us"
    assert taken_in(leftover(NAME), offers=offers)[0].spec.provisioner_ref.group == "eu", "the first place"


@pytest.mark.parametrize(
    "fields",
    [
        {"adopt": leftover("somebody-elses")},
        {"adopt": leftover(NAME, reason=Reason.DUPLICATE)},
        {"adopt": leftover(NAME, provider="lambda")},
        {"adopt": leftover(NAME, node_name="")},
        {"adopt": leftover(NAME), "of": provisioner(rented=True, deleted=NOW)},
        {"adopt": leftover(NAME), "listed": False},
        {"adopt": leftover(NAME), "records": (record(NAME),)},
    ],
    ids=["another name", "a duplicate", "another provider", "no name", "deleted", "no source", "a record has the name"],
)
def test_any_other_leftover_is_terminated(fields):
    adopt = fields.pop("adopt")
    assert taken_in(adopt, **fields) == [adopt]
