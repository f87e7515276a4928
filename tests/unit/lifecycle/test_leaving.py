"""On the way out: pods that keep a node, nodes that recover, reclaims that are announced, members of groups."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, ProvisionerRef
from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeClassRef, NodeProvisioner, NodeProvisionerSpec
from forebay.api.parts import Truth
from forebay.lifecycle.call_outcomes import launch_failed, termination_failed
from forebay.lifecycle.draining import PODS_LOST_AFTER
from forebay.lifecycle.facts import Facts
from forebay.lifecycle.group_members import left_in_group, member_adoptions, members_of, unrecorded_members
from forebay.lifecycle.moving import MOVE_TIMEOUT
from forebay.lifecycle.reclaim import TIME_TO_DRAIN
from forebay.lifecycle.steps import Drain, Terminate, Uncordon
from forebay.model.sources import (
    Failure,
    FailureKind,
    FailureScope,
    Found,
    InstancePhase,
    ListedGroup,
    Listing,
    Source,
    SourceKey,
)
from forebay.model.workloads import Owner
from tests.unit.lifecycle.builders import (
    NOW,
    RENTED,
    R,
    S,
    after,
    condition_of,
    facts,
    instance,
    listed,
    minutes,
    next_step,
    node,
    pod,
    record,
    rented_spec,
    requeue_at,
    seconds,
)

MEMBER = rented_spec(node_class_name=None, provisioner_ref=ProvisionerRef(name="gpus", group="near"))
SERVICE = replace(pod(), owner=Owner("ReplicaSet", "serve", "uid-set"))


def drained(why=R.UNDERUTILIZED, since=NOW, pool=None, **fields):
    made = record(S.DRAINING, because=why, since=since)
    if pool is not None:
        made = replace(made, spec=replace(made.spec, pool_ref=PoolRef(namespace="team", name=pool)))
    return facts(made, **{"node": node(), "pods": (SERVICE,), **fields})


def test_a_node_that_is_drained_to_save_cost_stays_if_its_pods_have_no_room_elsewhere():
    step = next_step(drained(room_elsewhere=False), NOW)

    assert (step.status.state, step.status.reason) == (S.READY, R.BACK_IN_USE)
    assert step.sentence == "Keeping node pool-abc: its pods have no room on other nodes any more."
    assert isinstance(next_step(drained(), NOW), Drain)


def test_a_node_that_is_drained_to_save_cost_stays_if_its_pods_cannot_be_evicted_in_time():
    early, late = NOW + MOVE_TIMEOUT - seconds(1), NOW + MOVE_TIMEOUT

    assert isinstance(next_step(drained(), early), Drain)
    step = next_step(drained(), late)
    assert step.sentence == (
        "Keeping node pool-abc: team/train could not be evicted within 10m, as by a PodDisruptionBudget; Forebay does "
        "not try again within 60m."
    )
    assert isinstance(next_step(drained(pods=()), late), Drain), "nothing is left to evict"


def test_a_pod_that_must_stay_keeps_a_node_that_is_drained_to_save_cost():
    step = next_step(drained(pods=(pod(),)), NOW)
    assert step.sentence == "Keeping node pool-abc: team/train is there and must not be moved."


@pytest.mark.parametrize(("pool", "kept"), [("pool", True), (None, False)])
def test_expiry_waits_for_pods_that_must_stay_only_where_a_pool_sets_it(pool, kept):
    stays = replace(pod(), annotations={"forebay.dev/do-not-disrupt": "true"})
    step = next_step(drained(R.EXPIRED, pool=pool, pods=(stays,)), NOW)
    assert isinstance(step, Drain) is not kept


@pytest.mark.parametrize("why", [R.UNHEALTHY, R.JOIN_TIMEOUT, R.GPUS_MISSING])
def test_a_node_that_recovers_after_its_class_was_deleted_goes_all_the_same(why):
    assert isinstance(next_step(drained(why, class_exists=False), NOW), Drain)
    assert next_step(drained(why), NOW).status.state is S.READY


def test_a_node_whose_pool_is_back_is_kept_unless_something_else_revokes_it():
    assert next_step(drained(R.POOL_GONE), NOW).sentence.endswith("its GPUNodePool exists again.")
    assert isinstance(next_step(drained(R.POOL_GONE, class_exists=False), NOW), Drain)
    assert isinstance(next_step(drained(R.POOL_GONE, node=node(gpus=0), pods=()), NOW), Drain)


def test_an_idle_node_whose_gpus_others_wait_for_is_kept_while_other_pods_are_on_it():
    plain = pod(gpus=0)
    waited_for = next_step(drained(R.IDLE, pods=(plain,), needed=True), NOW)

    assert (waited_for.status.state, waited_for.status.reason) == (S.READY, R.BACK_IN_USE)
    assert "GPU pods wait for it, and other pods have not left it" in waited_for.sentence
    assert isinstance(next_step(drained(R.IDLE, pods=(plain,)), NOW), Drain)
    assert isinstance(next_step(drained(R.IDLE, pods=(), needed=True), NOW), Drain)


def test_an_idle_machine_with_a_gpu_pod_is_kept_also_while_its_node_object_is_missing():
    step = next_step(drained(R.IDLE, node=None, pods=(pod(),)), NOW)
    assert (step.status.state, step.status.reason) == (S.READY, R.BACK_IN_USE)


def test_an_idle_node_whose_class_is_deleted_meanwhile_is_drained_for_that():
    step = next_step(drained(R.IDLE, class_exists=False), NOW)
    assert (step.status.state, step.status.reason) == (S.DRAINING, R.POOL_GONE)


@pytest.mark.parametrize("unready", [None, NOW + minutes(4)])
def test_pods_of_a_lost_node_count_as_lost_after_the_drain_began_or_the_node_was_lost_if_that_is_later(unready):
    lost = drained(R.DELETED, node=node(ready=False, cordoned=NOW, unready_since=unready))
    at = (unready or NOW) + PODS_LOST_AFTER

    assert isinstance(next_step(lost, at - seconds(1)), Drain)
    step = next_step(lost, at)
    assert step.status.state is S.TERMINATING
    assert step.given_up == {"uid-train"}
    assert "team/train cannot be seen to end, because node pool-abc is NotReady" in step.sentence


def test_the_time_of_lost_pods_begins_with_the_drain_and_not_with_a_later_reason_for_it():
    first = drained(R.DELETED, since=NOW - minutes(9), node=None)
    status = first.record.status
    again = replace(status, since=NOW, transitions=(*status.transitions, replace(status.transitions[-1], at=NOW)))
    moved = replace(first, record=replace(first.record, status=again))

    assert requeue_at(moved, NOW) == NOW - minutes(9) + PODS_LOST_AFTER
    step = next_step(moved, NOW - minutes(9) + PODS_LOST_AFTER)
    assert "because node pool-abc is missing" in step.sentence


def test_a_termination_without_effect_says_which_sign_of_life_there_is():
    def again(listing=None, **fields):
        going = record(S.TERMINATING, owned="node" in fields, termination_accepted_at=NOW, termination_attempts=1)
        return next_step(facts(going, listing=listing, **fields), NOW + minutes(3))

    rented = again(listed(instance(), asked=NOW + minutes(2)))
    assert isinstance(rented, Terminate)
    assert rented.sentence == (
        "Termination of a100x2 in us-east at simulated was accepted 3m ago, but it is still listed. Trying again; if "
        "this goes on, terminate it by hand."
    )
    owned = again(node=node("gpu-1", cordoned=NOW))
    assert "but node gpu-1 is still Ready. Trying again; if this goes on, power it off by hand." in owned.sentence
    off = again(listed(instance("gpu-1"), asked=NOW + minutes(2)), node=node("gpu-1", ready=False))
    assert "but it is still listed" in off.sentence
    assert again(listed(instance(), asked=NOW)) is None, "that listing is older than the call"


def test_a_power_off_that_is_answered_with_gone_is_believed_from_the_first_second():
    """The name of an owned machine is configured: its endpoint knows it however new the record is."""
    gone = Failure(kind=FailureKind.GONE, sentence="no such machine.")
    assert termination_failed(record(S.TERMINATING, owned=True), gone, NOW, RENTED).termination_accepted_at == NOW
    rented = record(S.TERMINATING, because=R.LAUNCH_TIMEOUT)
    assert termination_failed(rented, gone, NOW, RENTED).termination_accepted_at is None
    assert termination_failed(record(S.TERMINATING), gone, NOW).termination_accepted_at == NOW


@pytest.mark.parametrize("scope", list(FailureScope))
def test_a_refusal_is_recorded_with_what_it_speaks_against_and_the_versions_of_its_configuration(scope):
    failure = Failure(kind=FailureKind.REJECTED, sentence="no.", scope=scope)
    versions = {f"Secret {count:02}": "1" for count in range(70)}
    status = launch_failed(record(S.LAUNCHING), failure, NOW, versions)

    assert status.failure_scope is (None if scope is FailureScope.OFFER else scope)
    assert list(status.failure_revision) == [f"Secret {count:02}" for count in range(64)], "as many as the API stores"
    assert launch_failed(record(S.LAUNCHING), failure, NOW).failure_revision == {}


def test_after_its_attempts_a_transient_failure_says_how_many_there_were():
    busy = Failure(kind=FailureKind.UNAVAILABLE, sentence="Busy.")
    refused = Failure(kind=FailureKind.REJECTED, sentence="No.")

    assert " failed after 3 attempts: Busy." in launch_failed(record(S.LAUNCHING, attempt=3), busy, NOW).message
    assert " failed: No." in launch_failed(record(S.LAUNCHING, attempt=3), refused, NOW).message


@pytest.mark.parametrize("owned", [True, False])
def test_a_refused_power_on_call_ends_in_a_power_off_where_the_call_before_it_was_lost(owned):
    lost = record(S.LAUNCHING, owned=owned, attempt=2)
    steps = lost.status.transitions
    lost = replace(lost, status=replace(lost.status, transitions=(*steps, steps[-1])))
    refused = Failure(kind=FailureKind.REJECTED, sentence="No.")
    busy = Failure(kind=FailureKind.UNAVAILABLE, sentence="Busy.")

    status, again = launch_failed(lost, refused, NOW), launch_failed(lost, busy, NOW)

    if owned:
        assert (status.state, status.reason, status.failures) == (S.TERMINATING, R.LAUNCH_FAILED, 1)
        assert status.message == (
            "Power-on of gpu-1 failed: No. An earlier power-on call may have succeeded. Powering off gpu-1."
        )
        assert (again.state, again.reason, again.not_before) == (S.LAUNCHING, R.PROVIDER_UNAVAILABLE, NOW + seconds(10))
    else:
        assert (status.state, again.state) == (S.GONE, S.REQUESTED), "each rented one is a machine of its own"


# Reclaims


def notice(of, at, now, **fields):
    return facts(of, listing=listed(instance(reclaim_at=at), asked=now), node=node(), **fields)


def test_a_reclaim_that_is_announced_early_is_noted_once_and_the_node_drained_in_time():
    at = NOW + minutes(30)
    step = next_step(notice(record(S.READY), at, NOW), NOW)

    told = condition_of(step.status, "Replacement")
    assert (told.status, told.reason) == (Truth.TRUE, R.RECLAIMED)
    assert step.sentence == (
        "simulated takes a100x2 in us-east at simulated back at 12:30:00 UTC. Its node is drained when a replacement "
        "is Ready, or at 12:28:00 UTC."
    )
    noted = after(next_step(notice(after(step), at, NOW), NOW))
    assert next_step(notice(noted, at, NOW), NOW + minutes(1)) is None, "once"
    assert requeue_at(notice(noted, at, NOW), NOW + minutes(1)) == at - TIME_TO_DRAIN
    drain = next_step(notice(noted, at, at), at - TIME_TO_DRAIN)
    assert (drain.status.state, drain.status.reason) == (S.DRAINING, R.RECLAIMED)


def test_a_member_that_is_reclaimed_is_drained_at_once_since_its_group_replaces_it():
    member = record(S.READY, spec=MEMBER, instance_id="i-1", provider_id=None)
    step = next_step(notice(member, NOW + minutes(30), NOW), NOW)
    assert (step.status.state, step.status.reason) == (S.DRAINING, R.RECLAIMED)


@pytest.mark.parametrize(
    ("group", "name", "scope", "told"),
    [
        ("near", "pool-abc", FailureScope.ZONE, FailureScope.ZONE),
        ("near", "pool-abc", FailureScope.OFFER, None),
        ("near", "other", FailureScope.ZONE, None),
        ("far", "pool-abc", FailureScope.ZONE, None),
    ],
)
def test_a_member_that_failed_cools_down_what_its_group_says(group, name, scope, told):
    failure = Failure(kind=FailureKind.NO_CAPACITY, sentence="none.", scope=scope)
    groups = (ListedGroup(name=group, target=1, failures={name: failure}),)
    failed = instance("near/pool-abc", InstancePhase.FAILED)
    listing = Listing(asked=NOW, found=Found(instances=(failed,), groups=groups))

    step = next_step(facts(record(S.LAUNCHED, spec=MEMBER, instance_id="near/pool-abc"), listing=listing), NOW)

    assert (step.status.state, step.status.reason) == (S.TERMINATING, R.LAUNCH_FAILED)
    assert step.status.failure_scope is told


# Members of groups


def provisioner(**fields):
    spec = {"provider": GroupProvider(name="simulated"), "existing_instance_group_names": ("near",), **fields}
    return NodeProvisioner(
        metadata=ObjectMeta(name="gpus", creation_timestamp=NOW - minutes(9)),
        spec=NodeProvisionerSpec(min_unutilized_gpu_nodes=1, **spec),
    )


def source(*there):
    return Source(key=SourceKey("", "simulated"), capabilities=RENTED, listing=listed(*there))


def test_the_members_of_a_provisioner_are_its_records_that_are_not_gone():
    own = record(S.READY, spec=MEMBER, name="own")
    gone = record(S.GONE, spec=MEMBER, name="gone")
    others = record(S.READY, spec=replace(MEMBER, provisioner_ref=ProvisionerRef(name="other")), name="others")

    assert list(members_of("gpus", [record(S.READY), own, gone, others])) == [own]


def test_a_member_whose_record_is_gone_is_adopted_anew_under_another_name():
    gone = record(S.GONE, spec=MEMBER, name="one", instance_id="near/one")

    (adopt,) = member_adoptions(provisioner(), source(instance("near/one")), {"one": gone}, {}, NOW)

    assert adopt.name.startswith("one-")
    assert len(adopt.name) == len("one-") + 10


@pytest.mark.parametrize(
    ("fields", "up"),
    [({}, True), ({"ready": False}, False), ({"deleted": NOW}, False)],
    ids=["Ready", "NotReady", "being deleted"],
)
def test_a_member_has_joined_where_its_node_is_ready_and_is_billed_from_when_its_provisioner_knew_it(fields, up):
    made = NOW - minutes(5)
    (adopt,) = member_adoptions(
        provisioner(), source(instance("near/one", created=made)), {}, {"one": node("one", **fields)}, NOW
    )
    assert adopt.status.state is (S.JOINED if up else S.LAUNCHED)
    assert adopt.status.billed_from == made

    (older,) = member_adoptions(provisioner(), source(instance("near/one", created=NOW - minutes(60))), {}, {}, NOW)
    assert older.status.billed_from == NOW - minutes(9)
    (ahead,) = member_adoptions(provisioner(), source(instance("near/one", created=NOW + minutes(1))), {}, {}, NOW)
    assert ahead.status.billed_from == NOW, "a clock that is ahead"


def test_members_of_a_provisioner_that_launches_from_a_class_are_not_looked_for():
    own = provisioner(node_class_ref=NodeClassRef(name="cheap"), existing_instance_group_names=())
    assert unrecorded_members(own, source(instance("near/one")), []) == ()


def test_the_first_listing_of_a_launched_member_tells_its_machine_and_since_when_it_is_billed():
    launched = record(S.LAUNCHED, spec=MEMBER, instance_id="near/pool-abc", provider_id=None)

    def told(of=launched, **fields):
        there = instance("near/pool-abc", **fields)
        return next_step(facts(of, listing=listed(there)), NOW)

    step = told(provider_id="gce://1", created=NOW - seconds(7))
    assert (step.status.provider_id, step.status.billed_from) == ("gce://1", NOW - seconds(7))
    assert step.sentence.endswith(" is gce://1.")
    assert told(provider_id="gce://1").status.billed_from == NOW, "as it was"
    going = record(S.TERMINATING, spec=MEMBER, instance_id="near/pool-abc", provider_id="gce://1")
    assert "recreated" not in told(going, provider_id="gce://2").sentence
    rented = record(S.LAUNCHED, provider_id="sim://1", instance_id="near/pool-abc")
    assert "recreated" not in told(rented, provider_id="sim://2").sentence


def test_a_member_whose_provisioner_was_deleted_is_uncordoned_and_left_where_it_is():
    ready = record(S.READY, spec=MEMBER)

    def left(of=ready, **fields):
        return left_in_group(Facts(record=of, capabilities=RENTED, **fields), NOW)

    cordoned = left(node=node(cordoned=NOW))
    assert isinstance(cordoned, Uncordon)
    for there in (None, node(), node(users_cordon=True)):
        step = left(node=there)
        assert (step.status.state, step.status.reason) == (S.GONE, R.LEFT_IN_GROUP)
        assert step.status.billed_until == NOW
        assert step.sentence.startswith("NodeProvisioner gpus was deleted. pool-abc of instance group near")
    assert left(record(S.READY, spec=MEMBER, billed_from=None)).status.billed_until is None
