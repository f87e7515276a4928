"""NodeProvisioners in `forebay status`: sizes, and what asks for attention before why the target is what it is."""

from datetime import UTC, datetime

from msgspec.structs import replace

from forebay.api.meta import ObjectMeta
from forebay.api.node_provisioner import GroupProvider, NodeProvisioner, NodeProvisionerSpec, NodeProvisionerStatus
from forebay.api.parts import Condition, NodeClassRef, Truth
from forebay.reporting.cluster_view import ClusterView
from forebay.reporting.explanations import explain_provisioner
from forebay.reporting.provisioner_views import ProvisionerView, provisioner_view

SPEC = NodeProvisionerSpec(existing_instance_group_names=("g",), provider=GroupProvider(name="gcp"))
FINE = NodeProvisioner(
    metadata=ObjectMeta(name="pool"),
    spec=SPEC,
    status=NodeProvisionerStatus(
        current_size=120, target_size=100, utilized_nodes=80, tainted_nodes=20, message="Target 100: shrink by 20."
    ),
)


def told(**truths):
    conditions = tuple(
        Condition(
            type=kind,
            status=Truth(truth),
            reason="Because",
            message=f"{kind} is {truth}.",
            last_transition_time=datetime(2030, 1, 1, tzinfo=UTC),
        )
        for kind, truth in truths.items()
    )
    return provisioner_view(replace(FINE, status=replace(FINE.status, conditions=conditions)))


def test_sizes_and_the_reason_of_the_target():
    assert told(Ready="True", GrowthBlocked="False") == ProvisionerView(
        name="pool", size=120, target=100, in_use=80, tainted=20, ready="True", reason="Target 100: shrink by 20."
    )


def test_what_asks_for_attention_comes_first():
    assert told(Ready="False", GrowthBlocked="True").reason == "Because: Ready is False."
    assert told(Ready="True", GrowthBlocked="True").reason == "GrowthBlocked: GrowthBlocked is True."


def test_nothing_is_known_of_one_that_no_operator_has_seen():
    view = provisioner_view(NodeProvisioner(metadata=ObjectMeta(name="new"), spec=SPEC))
    assert (view.size, view.target, view.ready) == (None, None, "Unknown")
    assert view.reason == "no operator has reconciled this NodeProvisioner yet"


def test_the_explanation_of_a_rented_group_says_what_is_rented_and_by_which_class():
    spec = NodeProvisionerSpec(
        node_class_ref=NodeClassRef(name="cloud"), provider=GroupProvider(name="crusoe", instance_type="l40s-48gb.8x")
    )
    view = ClusterView(now=datetime(2030, 1, 1, tzinfo=UTC))
    told_of = explain_provisioner(replace(FINE, spec=spec), view, []).answer
    assert told_of == (
        "Target 100: shrink by 20. Its nodes are l40s-48gb.8x of crusoe, rented one by one as GPUNodeClass cloud says."
    )
    assert explain_provisioner(FINE, view, []).answer == "Target 100: shrink by 20."
