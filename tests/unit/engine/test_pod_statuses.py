"""What the virtual node writes about pods."""

import pytest
from msgspec.structs import replace

from forebay.api.meta import ObjectMeta
from forebay.engine.virtual_node.pod_containers import WholePod
from forebay.engine.virtual_node.pod_statuses import bound_at, price_of
from tests.unit.demand.builders import NOW, record


def test_the_price_of_a_container_is_what_it_is_billed_at_else_what_was_offered_and_that_of_no_other():
    offered = record("c1", instance_id="i-1")
    offered = replace(offered, spec=replace(offered.spec, hourly_price="1.10"))
    billed = replace(offered, status=replace(offered.status, hourly_price="0.90"))

    assert price_of(offered, "i-1") == "1.10"
    assert price_of(billed, "i-1") == "0.90"
    assert price_of(billed, "i-2") is None
    assert price_of(billed, None) is None
    assert price_of(record("c2", None), "i-1") is None


@pytest.mark.parametrize(
    ("conditions", "at"),
    [
        ([], None),
        ([("PodScheduled", "True")], NOW),
        ([("PodScheduled", "False")], None),
        ([("Ready", "True"), ("PodScheduled", "False")], None),
        ([("Ready", "True"), ("PodScheduled", "True")], NOW),
    ],
)
def test_a_pod_was_bound_when_its_condition_became_true(conditions, at):
    told = [{"type": kind, "status": status, "lastTransitionTime": NOW.isoformat()} for kind, status in conditions]
    bare = [{key: value for key, value in each.items() if key != "lastTransitionTime"} for each in told]
    assert bound_at(WholePod(metadata=ObjectMeta(name="p"), status={"conditions": told})) == at
    assert bound_at(WholePod(metadata=ObjectMeta(name="p"), status={"conditions": bare})) is None
