"""What budgets learn of pods that start, end and go while nobody reads, or while somebody does."""

import pytest

from forebay.engine.pod_changes import PodChanges
from tests.unit.demand.builders import NOW, ago, pod, running


def taken(changes):
    return [(each.pod.name, each.deleted) for each in changes.take()]


def test_while_somebody_reads_every_state_and_every_deletion_is_kept_once():
    changes = PodChanges(lambda: NOW)
    changes.followed = True
    waiting, started = pod("a"), running("a", started=ago(minutes=1))

    changes.add(waiting)
    changes.change(waiting, started)
    changes.change(started, None)

    assert taken(changes) == [("a", False), ("a", False), ("a", True)]
    assert taken(changes) == []


def test_while_nobody_reads_only_deletions_of_pods_that_ran_are_kept():
    changes = PodChanges(lambda: NOW)
    waiting, started = pod("a"), running("b", started=ago(minutes=1))

    changes.add(waiting)
    changes.change(waiting, None)
    changes.change(started, started)
    changes.change(started, None)

    assert taken(changes) == [("b", True)]


def test_a_pod_that_is_replaced_under_its_name_has_gone():
    changes = PodChanges(lambda: NOW)
    changes.followed = True
    old, new = running("a", started=ago(minutes=1)), pod("a", uid="another")

    changes.change(old, new)

    assert taken(changes) == [("a", True), ("a", False)]


def test_the_deletion_of_a_pod_that_keeps_its_machine_is_kept_though_its_start_is_not_read():
    changes = PodChanges(lambda: NOW)
    changes.followed = True
    stays = {"annotations": {"forebay.dev/do-not-disrupt": "true"}}

    changes.change(running("keeps", gpus=0, **stays), None)
    changes.change(running("passing", gpus=0), None)
    changes.change(pod("waiting", gpus=0, **stays), None)

    assert taken(changes) == [("keeps", True)]


@pytest.mark.parametrize(("deletions", "first"), [(10_000, "p0"), (10_001, "p1")])
def test_while_nobody_reads_the_last_ten_thousand_deletions_are_kept(deletions, first):
    changes = PodChanges(lambda: NOW)
    for number in range(deletions):
        changes.change(running(f"p{number}", started=NOW), None)
    found = taken(changes)
    assert (len(found), found[0]) == (10_000, (first, True))


def test_while_somebody_reads_nothing_is_lost():
    changes = PodChanges(lambda: NOW)
    changes.followed = True
    for number in range(10_001):
        changes.change(running(f"p{number}", started=NOW), None)
    assert len(changes.take()) == 10_001
