"""Defragmentation as a dry run: which nodes would be freed, one after the other, and why none would."""

from msgspec.structs import replace

from forebay.demand.reservation import Reservations
from forebay.model.quantities import Resources
from forebay.reporting.defragmentation import planned_moves, unmoved_notes
from tests.unit.demand.builders import node
from tests.unit.reconcile.test_defragmenting import Halves, service
from tests.unit.reconcile.test_group_growth import member, provisioner


class Full(Halves):
    """As the cluster counts it: what pods request of their node is used."""

    def __init__(self, *more, **fields):
        super().__init__(*more, **fields)
        there = self.snapshot.pods_by_node
        used = {name: sum((pod.shape.requests for pod in pods), Resources()) for name, pods in there.items()}
        self.snapshot = replace(self.snapshot, used=used)


def moves(halves):
    found = planned_moves(halves.snapshot, Reservations())
    return [(each.node, each.pods, each.to) for each in found]


def notes(halves):
    return unmoved_notes(halves.snapshot, planned_moves(halves.snapshot, Reservations()))


def test_a_node_whose_pods_fit_elsewhere_would_be_freed():
    halves = Halves()
    (move,) = planned_moves(halves.snapshot, Reservations())
    assert (move.provisioner, move.node, move.pods, move.to) == ("gpus", "x", ["default/web-x"], ["y"])
    assert move.sentence.endswith("The pods move, and the node is deleted.")
    assert notes(halves) == []


def test_nodes_are_freed_one_after_the_other_with_the_pods_where_they_have_moved_to():
    three = Full(member("z"), pods={"z": (service("z", gpus=3),)})
    assert moves(three) == [("x", ["default/web-x"], ["z"]), ("y", ["default/web-y"], ["z"])]
    full = Full(
        member("z"), pods={"y": (service("y", gpus=5),), "z": (service("z", gpus=3),), "x": (service("x", gpus=2),)}
    )
    assert [node for node, _, _ in moves(full)] == ["x"], "the others have no room for all of another node then"


def test_where_nobody_asked_for_it_the_sentence_says_what_would_switch_it_on():
    (move,) = planned_moves(Halves(defragment=False).snapshot, Reservations())
    assert move.sentence.endswith("With defragment: true the pods move, and the node is deleted.")
    assert notes(Halves(defragment=False, max_gpu_utilization_percent=50)) == [], "nor that nothing moves"


def test_every_provisioner_is_looked_at_in_the_order_of_their_names():
    halves = Halves()
    other = provisioner("another", groups=("c",), min_unutilized_gpu_nodes=0, defragment=True)
    halves.snapshot = replace(halves.snapshot, provisioners=(*halves.snapshot.provisioners, other))
    found = planned_moves(halves.snapshot, Reservations())
    assert [each.provisioner for each in found] == ["gpus"]
    assert unmoved_notes(halves.snapshot, found) == [
        "NodeProvisioner another is to be defragmented, and no node can be freed: 0 of its nodes are in use."
    ]


def test_why_no_node_can_be_freed_is_said_with_a_few_of_them():
    told = "NodeProvisioner gpus is to be defragmented, and no node can be freed: "
    crowd = [member(name) for name in ("v", "w", "z")]
    full = {name: (service(name, gpus=8),) for name in ("v", "w", "x", "y", "z")}
    assert notes(Full(*crowd, pods=full)) == [
        f"{told}"
        + "; ".join(f"{name}: its pods have no room on other nodes in use" for name in ("x", "y", "v"))
        + "; and 2 more."
    ]
    alone = {"x": (service("x", owner=None),), "y": (service("y", gpus=8),)}
    (note,) = notes(Full(pods=alone))
    assert note.startswith(f"{told}x: ")
    assert note.endswith("; y: its pods have no room on other nodes in use.")
    assert notes(Halves(pods={"x": ()})) == [f"{told}1 of its nodes are in use."]
    assert notes(Halves(ready=0, max_gpu_utilization_percent=50)) == [f"{told}its groups would not need fewer nodes."]


def test_nodes_that_are_not_of_the_group_are_not_looked_at():
    halves = Halves(nodes=[node("x"), node("y"), node("stranger")])
    assert moves(halves) == [("x", ["default/web-x"], ["y"])]
