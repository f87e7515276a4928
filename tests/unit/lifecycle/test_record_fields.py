"""What a GPUInstance stores of an offer and a node, and how a found instance gets its first status."""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from forebay.api.instance_order import BillingTerms
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.lifecycle.record_fields import (
    INITIAL_STATUS_ANNOTATION,
    billing_terms,
    figures,
    initial_status,
    offer_record,
    planned_node,
    reported_size,
)
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, Billing, Offer
from tests.unit.lifecycle.builders import S, fresh_record, node, record

HOUR = timedelta(hours=1)


def test_the_usual_terms_of_billing_are_not_stored_and_others_only_where_they_differ():
    assert billing_terms(Billing()) is None
    assert billing_terms(Billing(minimum=HOUR)) == BillingTerms(minimum="3600s")
    assert billing_terms(Billing(increment=HOUR)) == BillingTerms(increment="3600s")
    assert billing_terms(Billing(minimum=HOUR, increment=HOUR)) == BillingTerms(minimum="3600s", increment="3600s")


def test_the_boot_deadline_of_an_offer_is_stored_in_seconds_where_it_has_one():
    offer = Offer(provider="webhook", instance_type="gpu-1", price=UsdPerHour("1"), allocatable=Resources())

    assert offer_record(offer).boot_deadline is None
    assert offer_record(replace(offer, boot_deadline=timedelta(minutes=2))).boot_deadline == "120s"


def test_amounts_are_stored_as_kubernetes_writes_them_and_unstated_ones_are_left_out():
    amounts = Resources({"cpu": 1500, "memory": AMPLE - 1, "ephemeral-storage": AMPLE, "nvidia.com/gpu": 2})
    assert figures(amounts) == {"cpu": "1500m", "memory": str(AMPLE - 1), "nvidia.com/gpu": "2"}


def test_a_planned_node_stores_labels_taints_and_annotations():
    taints = [Taint("team", "a", "NoSchedule"), Taint("bare", "", "NoExecute")]

    stored = planned_node("n", {"zone": "a"}, taints, Resources(), annotations={"note": "x"})

    assert (stored.labels, stored.annotations) == ({"zone": "a"}, {"note": "x"})
    assert stored.taints == (
        TaintEntry(key="team", value="a", effect=TaintEffect.NO_SCHEDULE),
        TaintEntry(key="bare", value=None, effect=TaintEffect.NO_EXECUTE),
    )
    assert planned_node("n", {}, (), Resources()).annotations == {}


def test_of_a_node_its_size_is_stored_without_its_gpus():
    assert reported_size(node()) == {"cpu": "8000m"}


def test_only_a_found_record_without_a_status_gets_its_first_one():
    first = record(S.TERMINATING).status
    bare = fresh_record()
    noted = {INITIAL_STATUS_ANNOTATION: msgspec.json.encode(first).decode()}
    found = replace(bare, metadata=replace(bare.metadata, annotations=noted))

    assert initial_status(found) == first
    assert initial_status(bare) is None
    assert initial_status(replace(found, status=first)) is None, "it has gone on since"
