"""The same things are called by the same words everywhere."""

import pytest
from msgspec.structs import replace

from forebay.api.names import CORDONED_ANNOTATION
from forebay.api.parts import PodRef
from forebay.lifecycle.next_step import next_step
from forebay.lifecycle.wording import describe, ended, for_pods, named, started
from tests.unit.lifecycle.scenes import NOW, R, S, facts, minutes, node, pod, record, rented_spec, seconds


def test_machines_are_switched_and_instances_are_asked_for():
    assert started(record(owned=True)) == "Machine gpu-1 is switched on"
    assert ended(record(owned=True)) == "Machine gpu-1 is switched off"
    assert started(record()) == "a100x2 in us-east of simulated is asked for"
    assert ended(record()) == "a100x2 in us-east of simulated is ended"
    assert describe(record(S.TERMINATING, because=R.LEFTOVER, spec=rented_spec(offer=None))) == "Instance i-1"


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "no pod in particular"), (1, "team/p0"), (2, "team/p0 and 1 more"), (9, "team/p0 and 8 more")],
)
def test_the_pods_it_is_for(count, words):
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
def test_the_pods_on_it(names, words):
    assert named([pod(each) for each in names]) == words


@pytest.mark.parametrize("mark", ["", "yesterday", "2030-01-01T12:00:00"])
def test_a_cordon_of_ours_that_does_not_tell_its_time_counts_from_the_draining(mark):
    cordoned = replace(node(cordoned=NOW), annotations={CORDONED_ANNOTATION: mark})
    draining = record(S.DRAINING, since=NOW)

    assert next_step(facts(draining, node=cordoned), NOW + seconds(2)) is None
    assert next_step(facts(draining, node=cordoned), NOW + minutes(1)).status.state is S.TERMINATING
