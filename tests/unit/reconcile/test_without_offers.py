"""What a pod is told for which there is no offer: why the pools that there are have none."""

import pytest

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import NodeClassRef
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Source, SourceKey
from forebay.reconcile.buying import plan_for
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, pod

KEY = SourceKey("gpu", "cloud")
SILENT = Source(key=KEY, capabilities=Capabilities(deliveries=(Delivery.NODE,)), error="The key is refused.")
POOL = GPUNodePool(
    metadata=ObjectMeta(name="p", namespace="team", uid="u"),
    spec=GPUNodePoolSpec(node_class_ref=NodeClassRef(name="gpu")),
)


def node_class(**metadata):
    spec = GPUNodeClassSpec(providers=(ProviderEntry(name="cloud"),))
    return GPUNodeClass(metadata=ObjectMeta(name="gpu", uid="c", **metadata), spec=spec)


def told(**seen):
    (left,) = plan_for(Snapshot(now=NOW, **seen), [pod()]).left_out
    return left.reason, left.sentence


def test_a_provider_that_has_not_told_any_offers_is_not_called_a_missing_configuration():
    reason, sentence = told(pools=(POOL,), classes=(node_class(),), sources={KEY: SILENT})
    assert reason is Reason.PROVIDER_UNAVAILABLE
    assert "cloud of GPUNodeClass gpu: The key is refused): Forebay keeps asking" in sentence


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ({}, 'GPUNodeClass "gpu", which GPUNodePool team/p names, does not exist.'),
        (
            {"classes": (node_class(deletion_timestamp=NOW),), "sources": {KEY: SILENT}},
            "GPUNodeClass gpu of GPUNodePool team/p is being deleted.",
        ),
        (
            {"classes": (node_class(),), "unusable": {KEY: "Provider cloud is not served."}},
            "GPUNodeClass gpu of GPUNodePool team/p cannot be used with cloud: Provider cloud is not served.",
        ),
    ],
    ids=["no such class", "deleted", "cannot be used"],
)
def test_pools_that_have_no_offers_say_why(seen, why):
    assert told(pools=(POOL,), **seen) == (Reason.NO_CAPACITY_CONFIGURED, f"There are no offers: {why}")


def test_of_many_pools_the_first_are_named():
    many = tuple(
        GPUNodePool(metadata=ObjectMeta(name=f"p{each}", namespace="team", uid=f"u{each}"), spec=POOL.spec)
        for each in range(5)
    )
    sentence = told(pools=many)[1]
    assert "team/p2 names" in sentence
    assert "team/p3" not in sentence
    assert sentence.endswith(", and 2 more GPUNodePools.")


def test_without_pools_and_while_a_class_is_new_the_sentence_is_that_of_the_plan():
    usual = "No machines are configured"
    assert told()[1].startswith(usual)
    assert told(pools=(POOL,), sources={KEY: SILENT})[1].startswith(usual), "it may not be bought from yet"
