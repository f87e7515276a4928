"""Instance groups grow for waiting pods: the cheapest that fits, within limits and cooldowns, and for gangs whole."""

from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState, ProvisionerRef, Transition
from forebay.api.instance_order import OfferRecord
from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.demand.reservation import Reservation
from forebay.lifecycle.steps import Launch
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import Taint
from forebay.model.sources import (
    Capabilities,
    Delivery,
    Found,
    Instance,
    InstancePhase,
    ListedGroup,
    Listing,
    Offer,
    Source,
    SourceKey,
)
from forebay.model.workloads import Owner
from forebay.planning.gangs import GANG
from forebay.reconcile.group_growth import grow_for_pods, sized_provisioners
from forebay.reconcile.member_claims import claim_members
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.what_runs import NO_RESERVATIONS
from tests.unit.demand.builders import NOW, ago, node, pod, record

S = InstanceState
KEY = SourceKey.of_provisioner("gpus", "simulated")


def provisioner(name="gpus", groups=("a", "b"), **spec):
    return NodeProvisioner(
        metadata=ObjectMeta(name=name),
        spec=NodeProvisionerSpec(
            existing_instance_group_names=groups, provider=GroupProvider(name="simulated"), **spec
        ),
    )


def offer(price, gpus=4):
    return Offer(
        provider="simulated",
        instance_type=f"t{gpus}",
        gpu_count=gpus,
        price=UsdPerHour(price),
        allocatable=Resources({"cpu": 64_000, "memory": 2**38, "nvidia.com/gpu": gpus, "pods": 110}),
    )


def source(instances=(), asked=NOW, *, names=False, **offers):
    groups = tuple(ListedGroup(name=name, target=0, offer=each, chooses_names=names) for name, each in offers.items())
    return Source(
        key=KEY,
        capabilities=Capabilities(deliveries=(Delivery.NODE,)),
        listing=Listing(asked=asked, found=Found(instances=tuple(instances), groups=groups)),
    )


def member(name, state=S.READY, group="a", **status):
    made = record(name, state, delivers=Delivery.NODE, **status)
    reference = ProvisionerRef(name="gpus", group=group)
    return replace(made, spec=replace(made.spec, provider="simulated", provisioner_ref=reference))


TWO = {"a": offer("2.00"), "b": offer("1.00", 1)}


def seen(*records, provisioners=None, found=None, **fields):
    return Snapshot(
        now=NOW,
        records=records,
        provisioners=(provisioner(),) if provisioners is None else provisioners,
        sources={KEY: source(**TWO) if found is None else found},
        **fields,
    )


def grown(snapshot, *pods, reserved=NO_RESERVATIONS):
    return grow_for_pods(snapshot, tuple(pods), None, sized_provisioners(snapshot), reserved)


def nodes(found):
    return {name: dict(growth.nodes) for name, growth in found.by_provisioner.items()}


def test_the_cheapest_group_that_fits_a_pod_grows_for_it():
    found = grown(seen(), pod("small"), pod("large", 4), pod("giant", 9))

    assert nodes(found) == {"gpus": {"b": 1, "a": 1}}
    assert found.by_provisioner["gpus"].count == 2
    assert [each.name for each in found.left] == ["giant"]
    assert (found.held, found.notes) == ((), {})


def test_nothing_is_decided_about_groups_that_are_not_wholly_known():
    strange = Instance(id="a/x", phase=InstancePhase.RUNNING)
    deleted = replace(provisioner(), metadata=ObjectMeta(name="gpus", deletion_timestamp=NOW))

    assert len(sized_provisioners(seen())) == 1
    assert sized_provisioners(seen(found=source([strange], **TWO))) == (), "a member without a record"
    assert sized_provisioners(seen(found=replace(source(), listing=None))) == ()
    assert sized_provisioners(seen(provisioners=(deleted,))) == ()
    assert sized_provisioners(seen(unreadable_records={"odd": "no"})) == ()
    assert sized_provisioners(replace(seen(), sources={})) == ()
    assert sized_provisioners(seen(provisioners=())) == ()


def test_a_provisioner_keeps_to_its_most_nodes_and_the_pod_is_told():
    pods = [pod(f"p{number}", 4) for number in range(3)]
    limited = seen(member("m1"), member("old", S.TERMINATING), provisioners=(provisioner(max_nodes=3),))

    found = grown(limited, *pods)
    assert nodes(found) == {"gpus": {"a": 2}}
    assert [each.name for each in found.left] == ["p2"]
    assert found.notes == {}, "there was room when it was looked at"
    full = grown(seen(member("m1"), provisioners=(provisioner(max_nodes=1),)), pods[0], pod("giant", 9))
    assert nodes(full) == {}
    assert full.notes == {"uid-p0": "NodeProvisioner gpus has reached its maxNodes of 1"}


def test_a_group_that_is_cooling_down_does_not_grow_and_the_pod_is_told_until_when():
    step = Transition(state=S.GONE, at=ago(seconds=1), reason=Reason.NO_CAPACITY, message="None left.")
    failed = member("bad", S.GONE, failures=1, transitions=(step,), since=step.at)
    failed = replace(failed, spec=replace(failed.spec, offer=OfferRecord(instance_type="t4", gpu_count=4)))

    found = grown(seen(failed), pod("large", 4), pod("small"))

    assert nodes(found) == {"gpus": {"b": 1}}
    assert found.notes["uid-large"].startswith("instance group a of NodeProvisioner gpus is cooling down: bad failed")


def of_gang(name, gpus=4, gang="true"):
    return pod(name, gpus, owner=Owner("Job", "train", "u"), annotations={GANG: gang})


def test_a_gang_gets_all_its_nodes_or_none():
    gang = [of_gang(f"g{number}") for number in range(3)]
    two = seen(provisioners=(provisioner(max_nodes=2),))

    found = grown(two, *gang, pod("alone", 4))
    assert nodes(found) == {"gpus": {"a": 1}}, "for the pod that is alone"
    assert found.notes["uid-g0"] == "NodeProvisioner gpus has no room for the whole gang now"
    assert nodes(grown(seen(provisioners=(provisioner(max_nodes=3),)), *gang)) == {"gpus": {"a": 3}}
    assert nodes(grown(two, *(of_gang(f"g{number}", gang="2") for number in range(3)))) == {"gpus": {"a": 2}}
    elsewhere = replace(two, pending=(*gang,))
    room = Reservation(node="n1", launching=None, reason=Reason.FITS_EXISTING, sentence="")
    assert nodes(grown(elsewhere, *gang[:2], reserved={"uid-g2": room})) == {"gpus": {"a": 2}}
    assert nodes(grown(elsewhere, *gang[:2])) == {}, "the third has no place yet"


def test_a_new_node_is_like_the_newest_ready_one_of_its_group_without_what_passes():
    mine = member("m1")
    small = node("m1", gpus=2, taints=(Taint("node.kubernetes.io/unreachable", "", "NoExecute"),), unschedulable=True)

    assert nodes(grown(seen(mine, nodes={"m1": small}), pod("large", 4))) == {}
    assert nodes(grown(seen(mine, nodes={"m1": small}), pod("two", 2))) == {"gpus": {"a": 1}}
    lasting = replace(small, taints=(Taint("dedicated", "ml"),))
    assert nodes(grown(seen(mine, nodes={"m1": lasting}), pod("two", 2))) == {}
    unready = replace(small, ready=False)
    assert nodes(grown(seen(mine, nodes={"m1": unready}), pod("large", 4))) == {"gpus": {"a": 1}}
    newer = replace(node("m2", gpus=4), created=NOW)
    both = seen(mine, member("m2"), nodes={"m1": small, "m2": newer})
    assert nodes(grown(both, pod("large", 4))) == {"gpus": {"a": 1}}


def test_a_group_that_two_provisioners_name_is_sized_by_the_older_one():
    older = provisioner("others", ("a",))
    older = replace(older, metadata=replace(older.metadata, creation_timestamp=ago(days=1)))

    (found,) = sized_provisioners(seen(provisioners=(provisioner(), older)))
    assert (found.name, found.groups) == ("gpus", ("b",))


# Members that their group names itself


def launching(name, group="a"):
    return member(name, S.LAUNCHING, group, attempted_at=ago(seconds=10), instance_id=None, node_name=None)


def instances(*ids):
    return [Instance(id=each, phase=InstancePhase.RUNNING, node_name=each.rpartition("/")[2]) for each in ids]


def test_a_new_member_belongs_to_the_record_whose_call_asked_for_it():
    listing = source(instances("a/x2", "a/x1", "b/y1"), names=True, **TWO)
    one, two, far = launching("r1"), launching("r2"), launching("r3", group="c")

    found = claim_members(seen(two, one, far, found=listing))

    told = [(each.record.metadata.name, each.status.instance_id, each.sentence) for each in found.claims]
    assert told == [
        ("r1", "a/x1", "Instance group a has named the new member x1."),
        ("r2", "a/x2", "Instance group a has named the new member x2."),
    ]
    assert (found.members, found.on_hold) == ({"a/x1", "a/x2"}, {"r1", "r2"})
    known = replace(one, status=replace(one.status, instance_id="a/x1"))
    assert claim_members(seen(known, found=listing)).claims == (), "its answer came"
    busy = claim_members(seen(one, found=listing, calls_in_flight=frozenset({"r1"})))
    assert (busy.claims, busy.members) == ((), {"a/x1"}), "its answer may come"
    assert claim_members(seen(one, found=source(instances("a/x1"), **TWO))).claims == (), "Forebay names the members"


def test_a_call_is_not_repeated_before_a_newer_listing_shows_what_became_of_it():
    made = launching("r1")
    step = Launch(record=made, reason=Reason.LAUNCH_STARTED, sentence="s", status=made.status)

    def held(**fields):
        found = claim_members(seen(made, found=source(names=True, **{**TWO, **fields})))
        return found.without((step,)) == ()

    assert held(asked=ago(seconds=11))
    assert held(asked=ago(seconds=10))
    assert not held(asked=ago(seconds=9))
    unknown = claim_members(replace(seen(made), sources={}))
    assert unknown.on_hold == {"r1"}
    assert claim_members(seen(member("m1"))).on_hold == frozenset()
