"""Machines found on: which pool they belong to from then on, and what is said about them."""

from datetime import timedelta

import pytest

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import NodeClassRef
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import (
    Capabilities,
    Delivery,
    Found,
    Instance,
    InstancePhase,
    Listing,
    Offer,
    Source,
    SourceKey,
)
from forebay.reconcile.due_steps import adopt_orphans
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from tests.unit.demand.builders import GPU, NOW, node


def source(node_class):
    offer = Offer(
        provider="webhook",
        instance_type="box",
        node_name="box",
        gpu_count=8,
        price=UsdPerHour(0),
        allocatable=Resources({GPU: 8}),
    )
    return Source(
        key=SourceKey(node_class, "webhook"),
        capabilities=Capabilities(delivers=Delivery.POWER, idempotent_launch=True),
        offers=(offer,),
        listing=Listing(
            asked=NOW, found=Found(instances=(Instance(id="box", phase=InstancePhase.RUNNING, node_name="box"),))
        ),
    )


def pool(name, weight):
    return GPUNodePool(
        metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}"),
        spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="rack"), weight=weight),
    )


def adopted(node_class, *pools, **rules):
    seen = source(node_class)
    classes = (GPUNodeClass(metadata=ObjectMeta(name="rack"), spec=GPUNodeClassSpec(providers=())),)
    snapshot = Snapshot(
        now=NOW,
        sources={seen.key: seen},
        pools=pools,
        classes=classes,
        nodes={"box": node("box")},
        rules=OperatorRules(**rules),
    )
    (found,) = adopt_orphans(snapshot)[0]
    return found


def test_a_machine_found_on_belongs_to_the_pool_that_would_buy_it():
    found = adopted("rack", pool("light", 10), pool("heavy", 50))
    assert (found.spec.pool_ref.namespace, found.spec.pool_ref.name) == ("team", "heavy")
    assert found.spec.node.labels["forebay.dev/nodepool"] == "heavy"
    assert found.status.message == found.sentence == found.spec.why
    assert "GPUNodePool team/heavy says when it is powered off." in found.sentence


@pytest.mark.parametrize(
    ("node_class", "rules", "said"),
    [
        pytest.param("rack", {}, "No GPUNodePool of class rack uses it, so Forebay does not power it off.", id="class"),
        pytest.param("", {}, "Forebay powers it off when it is idle.", id="environment"),
        pytest.param(
            "",
            {"adoption_grace": timedelta(minutes=10)},
            "Forebay powers it off when it is idle, not within 10m.",
            id="with a grace",
        ),
    ],
)
def test_without_a_pool_the_sentence_says_what_comes_next(node_class, rules, said):
    found = adopted(node_class, **rules)
    assert found.spec.pool_ref is None
    assert found.sentence.endswith(said)
