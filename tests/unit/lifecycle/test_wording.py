"""Phrases that all sentences about a GPUInstance share."""

import pytest

from forebay.api.instance_order import OfferRecord
from forebay.api.parts import PodRef
from forebay.lifecycle.wording import describe, for_pods, launch_phrase, termination_phrase
from forebay.model.workloads import pod_names
from tests.unit.lifecycle.builders import R, S, pod, record, rented_spec


def test_owned_machines_are_powered_on_and_off_and_rented_ones_launched_and_terminated():
    assert launch_phrase(record(owned=True)) == "Powering on gpu-1"
    assert termination_phrase(record(owned=True)) == "Powering off gpu-1"
    assert launch_phrase(record()) == "Launching a100x2 in us-east at simulated"
    assert termination_phrase(record()) == "Terminating a100x2 in us-east at simulated"
    assert describe(record(S.TERMINATING, because=R.LEFTOVER, spec=rented_spec(offer=None))) == "simulated instance i-1"


@pytest.mark.parametrize(
    ("region", "zone", "where"),
    [(None, None, ""), ("us", None, " in us"), (None, "a", " in a"), ("us", "us-a", " in us-a")],
)
def test_an_offer_is_told_with_its_zone_or_else_its_region(region, zone, where):
    offer = OfferRecord(instance_type="a100", region=region, zone=zone)
    assert describe(record(spec=rented_spec(offer=offer))) == f"a100{where} at simulated"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "no pod in particular"), (1, "team/p0"), (2, "team/p0 and 1 more"), (9, "team/p0 and 8 more")],
)
def test_the_pods_that_a_record_was_created_for(count, words):
    pods = tuple(PodRef(namespace="team", name=f"p{each}", uid=str(each)) for each in range(count))

    assert for_pods(record(spec=rented_spec(pods=pods))) == words


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("b", "team/b"),
        ("ba", "team/a and team/b"),
        ("cba", "team/a, team/b and team/c"),
        ("edcba", "team/a, team/b, team/c and 2 more"),
    ],
)
def test_pod_names_are_sorted_and_shortened(names, words):
    assert pod_names([pod(each) for each in names]) == words
