"""`forebay explain` of a saved snapshot, and what a snapshot does not have."""

import pytest

from forebay.model.workloads import Owner
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.replay import NotInSnapshot, explain_in
from tests.unit.reporting.objects import NOW, pod


def test_a_snapshot_has_no_jobs_and_names_a_few_of_the_pods():
    mine = [pod(f"train-{number}", owner=Owner("Job", "train", "uid-job")) for number in range(8)]
    others = [
        pod("elsewhere", namespace="other", owner=Owner("Job", "train", "uid-other")),
        pod("another", owner=Owner("Job", "serve", "uid-serve")),
        pod("alone"),
    ]
    snapshot = Snapshot(now=NOW, pending=(*mine, *others))

    with pytest.raises(NotInSnapshot) as caught:
        explain_in(snapshot, "job", "team", "train")

    assert str(caught.value) == (
        "a snapshot has pods and no Jobs; of its pods it has train-0, train-1, train-2, train-3, train-4"
    )


def test_a_job_without_pods_in_the_snapshot_names_none():
    with pytest.raises(NotInSnapshot, match=r"^a snapshot has pods and no Jobs$"):
        explain_in(Snapshot(now=NOW), "job", "team", "train")
