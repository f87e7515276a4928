"""Room for the pods of a node on the others: what pending pods and pods of draining nodes take of it is not free."""

from forebay.api.gpu_instance import InstanceState
from forebay.model.kept import KeptTuple
from forebay.model.quantities import Resources
from forebay.model.workloads import Phase
from forebay.reconcile.room_elsewhere import RoomElsewhere, movable_pods, without_nodes
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import GPU, NOW, node, pod, record, running

S = InstanceState
LEAVES = record("leaves")
MOVES = running("moves", "leaves", 2)


def seen(*records, nodes=(), pods=None, pending=()):
    pods = {"leaves": (MOVES,), **(pods or {})}
    used = {
        name: Resources({GPU: sum(each.shape.requests.amount(GPU) for each in there)}) for name, there in pods.items()
    }
    return Snapshot(
        now=NOW,
        records=KeptTuple((LEAVES, *records)),
        nodes={each.name: each for each in (node("leaves"), *nodes)},
        pods_by_node=pods,
        used=used,
        pending=tuple(pending),
    )


def left(snapshot, **options):
    room = RoomElsewhere(snapshot, [LEAVES], **options)
    return [each.name for each in room.left(movable_pods(snapshot, [LEAVES]))]


def test_pods_have_room_on_other_nodes_and_not_on_their_own():
    assert left(seen()) == ["moves"]
    roomy = seen(nodes=[node("b", gpus=2)])
    assert left(roomy) == []
    room = RoomElsewhere(roomy, [LEAVES])
    pods = movable_pods(roomy, [LEAVES])
    assert room.places(pods) == {MOVES.uid: "b"}
    assert room.nodes_of(pods) == ("b",)
    assert room.left(()) == ()
    assert left(seen(nodes=[node("b", gpus=1)])) == ["moves"]
    assert left(roomy, among=["c"]) == ["moves"]
    assert left(roomy, among=["b"]) == []


def test_a_pod_that_waits_takes_its_room_first_and_one_that_does_not_wait_takes_none():
    def with_pending(**fields):
        return left(seen(nodes=[node("b", gpus=2)], pending=[pod("waits", **fields)]))

    assert with_pending() == ["moves"]
    assert with_pending(scheduling_gates=("x/y",)) == []
    assert with_pending(deleted=NOW) == []
    assert with_pending(phase=Phase.FAILED) == []


def test_pods_of_another_node_that_is_drained_need_room_too():
    other = record("other", S.DRAINING)
    there = {"other": (running("too", "other", 1),)}

    assert left(seen(other, nodes=[node("other"), node("b", gpus=2)], pods=there)) == ["moves"]
    assert left(seen(other, nodes=[node("other"), node("b", gpus=3)], pods=there)) == []
    staying = record("other")
    assert left(seen(staying, nodes=[node("other", gpus=1), node("b", gpus=2)], pods=there)) == []


def test_a_node_that_launches_counts_only_where_it_is_meant():
    launching = record("new", S.LAUNCHED)

    assert left(seen(launching)) == ["moves"]
    assert left(seen(launching), launching=["new"]) == []


def test_only_pods_that_need_a_gpu_elsewhere_move_and_as_if_they_had_no_node():
    cpu_only, going = running("cpu", "leaves", 0), running("going", "leaves", deleted=NOW)
    snapshot = seen(pods={"leaves": (MOVES, cpu_only, going)})

    assert [(each.name, each.node, each.nominated_node) for each in movable_pods(snapshot, [LEAVES])] == [
        ("moves", None, None)
    ]
    assert movable_pods(snapshot, [record("elsewhere")]) == ()


def test_without_its_nodes_a_snapshot_has_neither_them_nor_their_pods():
    snapshot = without_nodes(seen(nodes=[node("b")], pods={"b": (running("stays", "b"),)}), [LEAVES])

    assert (set(snapshot.nodes), set(snapshot.pods_by_node)) == ({"b"}, {"b"})
