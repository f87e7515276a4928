"""Members of instance groups: their id is their group and name, from before the launch on."""

from msgspec.structs import replace

from forebay.api.gpu_instance import ProvisionerRef
from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec
from forebay.lifecycle.deliveries.group_member import GroupMemberNode
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.group_members import member_adoptions
from forebay.model.sources import Found, InstancePhase, Listing, Source, SourceKey
from tests.unit.lifecycle.builders import (
    NOW,
    RENTED,
    S,
    facts,
    instance,
    listed,
    minutes,
    next_step,
    node,
    record,
    rented_spec,
)

MEMBER = replace(rented_spec(), node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))


def member(spec=MEMBER, **status):
    return record(S.LAUNCHING, spec=spec, **{"instance_id": None, **status})


def test_a_member_is_known_by_group_and_name_before_its_launch_is_confirmed():
    policy = policy_of(member())
    assert isinstance(policy, GroupMemberNode)
    assert policy.instance_id(member()) == "near/pool-abc"
    assert policy.instance_id(member(instance_id="near/other")) == "near/other", "what was recorded counts"
    assert policy.instance_id(member(replace(MEMBER, node=None))) is None
    assert policy.instance_id(member(replace(MEMBER, provisioner_ref=None))) is None


def test_a_member_was_created_only_once_its_group_has_got_a_machine():
    policy = policy_of(member())
    assert not policy.was_created(member(), None)
    assert policy.was_created(member(provider_id="gce://p/z/pool-abc"), None)
    ended = Listing(asked=NOW, found=Found(ended={"near/pool-abc": NOW}))
    assert policy.was_created(member(), ended), "its end was told, so it was there"


def test_a_member_that_its_group_has_recreated_under_its_name_is_followed():
    ready = record(S.READY, spec=MEMBER, instance_id="near/pool-abc", provider_id="gce://1")

    def step(shown):
        there = instance("near/pool-abc", provider_id=shown)
        return next_step(facts(ready, node=node(), listing=listed(there)), NOW)

    followed = step("gce://2")
    assert (followed.status.state, followed.status.provider_id) == (S.READY, "gce://2")
    assert "has recreated" in followed.sentence
    assert "has recreated" not in step("gce://1").sentence


def test_members_without_a_record_are_adopted_under_the_name_of_their_node_or_of_their_id():
    groups = NodeProvisionerSpec(
        provider=GroupProvider(name="simulated"), existing_instance_group_names=("near",), min_unutilized_gpu_nodes=1
    )
    gpus = NodeProvisioner(metadata=ObjectMeta(name="gpus", creation_timestamp=NOW - minutes(9)), spec=groups)
    there = [
        instance("near/one", owner=None),
        instance("near/two", owner=None, node_name="node-two"),
        instance("near/pool-abc", owner=None),
        instance("near/going", InstancePhase.ENDING, owner=None),
        instance("of-no-group", owner=None),
    ]
    source = Source(key=SourceKey("", "simulated"), capabilities=RENTED, listing=listed(*there))
    known = record(S.READY, spec=MEMBER, instance_id="near/pool-abc")
    found = member_adoptions(gpus, source, {"pool-abc": known}, {"one": node("one")}, NOW)
    assert [(each.name, each.spec.node.name, each.status.state) for each in found] == [
        ("one", "one", S.JOINED),
        ("node-two", "node-two", S.LAUNCHED),
    ]
    assert {each.status.billed_from for each in found} == {NOW}
    assert member_adoptions(gpus, replace(source, listing=None), {}, {}, NOW) == (), "unknown is not empty"
