"""Replacements: who takes whose place, and the room that is kept for pods which have not moved yet."""

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import InstanceState as State
from forebay.api.gpu_instance import ReplacedInstance
from forebay.api.parts import Condition, Truth
from forebay.demand.free_capacity import FreeNode
from forebay.demand.replacements import (
    REPLACEMENT,
    UNDERUTILIZED,
    expected_pods,
    moved_at,
    replaced,
    succeeds,
    without_promised,
)
from forebay.model.quantities import Resources
from forebay.model.workloads import Owner
from tests.unit.demand.builders import GPU, ago, node, pod, record, running


def told(kind, truth=Truth.TRUE):
    return (Condition(type=kind, status=truth, reason="Expired", last_transition_time=ago(minutes=1)),)


def in_place_of(*names, name="new", state=State.LAUNCHED, pods=(), **fields):
    made = record(name, state, pods=pods, **fields)
    references = tuple(ReplacedInstance(name=each, uid=f"uid-of-{each}") for each in names)
    return replace(made, spec=replace(made.spec, replaces=references))


def pairs(*records):
    return [(old.metadata.name, new.metadata.name) for old, new in replaced(records)]


@pytest.mark.parametrize(
    ("old", "goes"),
    [
        (record("old", conditions=told(REPLACEMENT)), True),
        (record("old", conditions=told(UNDERUTILIZED)), True),
        (record("old", State.DRAINING), True),
        (record("old", conditions=told(REPLACEMENT, Truth.FALSE)), False),
        (record("old", State.JOINED, conditions=told(REPLACEMENT)), False),
        (record("old"), False),
    ],
    ids=["to be replaced", "under-utilized", "draining", "no longer", "not ready", "nothing said"],
)
def test_a_machine_is_replaced_while_it_is_still_to_go(old, goes):
    assert pairs(old, in_place_of("old")) == ([("old", "new")] if goes else [])


@pytest.mark.parametrize("state", [State.GONE, State.DRAINING, State.TERMINATING])
def test_a_replacement_that_ends_replaces_nobody(state):
    assert pairs(record("old", State.DRAINING), in_place_of("old", state=state)) == []


def test_a_machine_whose_record_is_no_longer_there_is_not_replaced_and_the_others_are():
    old = record("old", State.DRAINING)

    assert pairs(old, in_place_of("deleted", "old")) == [("old", "new")]
    assert pairs(old) == []


def test_room_for_pods_that_have_not_moved_yet_is_not_free_for_others():
    moves, stays = running("moves", "old", gpus=2), running("stays", "old", gpus=4)
    old, new = record("old", State.DRAINING), in_place_of("old", state=State.READY, pods=[moves])
    free = [FreeNode(node=node(name), free=Resources({GPU: 8})) for name in ("new", "other")]

    def gpus(**fields):
        found = without_promised(free, [old, new], {"old": (moves, stays)}, **fields)
        return {each.node.name: each.free.amount(GPU) for each in found}

    assert gpus() == {"new": 6, "other": 8}
    assert gpus(leaving=frozenset({old.uid})) == {"new": 8, "other": 8}


def test_no_room_is_kept_for_a_pod_that_is_ending_once_the_pod_in_its_place_has_come():
    owner = Owner(kind="ReplicaSet", name="serve", uid="rs")
    first, second = (
        replace(running(f"serve-7c9f8-{end}", "old", gpus=2), owner=owner, deleted=ago(seconds=5))
        for end in ("aaaaa", "bbbbb")
    )
    old, new = record("old", State.DRAINING), in_place_of("old", state=State.READY, pods=[first, second])
    free = [FreeNode(node=node("new"), free=Resources({GPU: 8}))]
    waits = replace(pod("serve-7c9f8-ccccc"), owner=owner)
    bound = replace(running("serve-7c9f8-ddddd", "new", gpus=2), owner=owner)

    def gpus(*on_old, on_new=(), pending=()):
        (found,) = without_promised(free, [old, new], {"old": on_old, "new": tuple(on_new)}, pending=pending)
        return found.free.amount(GPU)

    assert gpus(first, second) == 4, "nobody has come for them yet"
    assert gpus(first, second, pending=[waits]) == 6
    assert gpus(first, second, pending=[waits], on_new=[bound]) == 8
    assert gpus(replace(first, deleted=None), second, pending=[waits], on_new=[bound]) == 6, "one is to move yet"
    assert gpus(first, second, pending=[replace(waits, owner=replace(owner, uid="another"))]) == 4


def test_a_replacement_expects_the_pods_that_it_was_launched_for_until_they_have_left():
    moves, stays = running("moves", "old"), running("stays", "old")
    old, new = record("old", State.DRAINING), in_place_of("old", state=State.READY, pods=[moves])
    assert expected_pods([old, new], {"old": (moves, stays)}) == {new.uid: (moves,)}
    assert expected_pods([old, new], {"old": (stays,)}) == {new.uid: ()}, "they have just left, and come in a moment"
    gone = record("old", State.TERMINATING)
    assert expected_pods([gone, new], {"old": (moves,)}) == {}


def test_a_replacement_knows_when_the_last_of_its_pods_has_left():
    new = in_place_of("one", "two", state=State.READY)
    one, two = (record(name, State.GONE, since=ago(minutes=at)) for name, at in (("one", 5), ("two", 3)))
    assert moved_at(new, {each.uid: each for each in (one, two)}) == ago(minutes=3)
    assert moved_at(new, {"uid-of-one": record("one", State.DRAINING)}) is None
    assert moved_at(record("alone"), {one.uid: one}) is None


@pytest.mark.parametrize(
    ("name", "namespace", "owned", "comes_after"),
    [
        ("serve-7c9f8-zz9zz", "default", True, True),
        ("web-0", "default", True, True),
        ("serve-7c9f8-zz9zz", "other", True, False),
        ("serve-7c9f8-zz9zz", "default", False, False),
        ("serve-66666-zz9zz", "default", True, False),
        ("web-1", "default", True, False),
    ],
    ids=["of the same ReplicaSet", "of the same name", "elsewhere", "nobody's", "of another", "a sibling"],
)
def test_a_pod_that_its_controller_creates_again_takes_the_place_of_the_one_that_left(
    name, namespace, owned, comes_after
):
    new = in_place_of("old", pods=[running("serve-7c9f8-abcde", "old"), running("web-0", "old")])
    owner = Owner(kind="ReplicaSet", name="any", uid="any") if owned else None
    later = replace(pod(name), namespace=namespace, owner=owner)
    assert succeeds(later, new) is comes_after
    assert not succeeds(later, replace(new, spec=replace(new.spec, replaces=())))
