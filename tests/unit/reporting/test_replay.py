"""`forebay explain` of a saved snapshot, and what a snapshot does not have."""

import pytest
from msgspec.structs import replace

from forebay.api.meta import ObjectMeta
from forebay.model.workloads import Owner
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.replay import NotInSnapshot, explain_in
from tests.unit.reporting.objects import NOW, S, node, pod, record
from tests.unit.reporting.test_provisioner_views import FINE


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


def test_every_kind_is_explained_by_its_own_name():
    snapshot = Snapshot(
        now=NOW,
        pending=(pod(), pod("other")),
        records=(record("m1"), record("m2", S.LAUNCHED, pods=("other",))),
        nodes={"m1": node()},
        provisioners=(replace(FINE, metadata=ObjectMeta(name="first")), FINE),
    )

    assert explain_in(snapshot, "pod", "team", "other").about == "Pod team/other"
    assert explain_in(snapshot, "node", "", "m1").about == "Node m1"
    assert explain_in(snapshot, "np", "", "pool").about == "NodeProvisioner pool"
    assert explain_in(snapshot, "gi", "", "m2").about == "GPUInstance m2"


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("pod", "the snapshot has no pod team/x that waits for GPUs or runs on a GPUInstance$"),
        ("node", "the snapshot has no node x"),
        ("np", "the snapshot has no NodeProvisioner x"),
        ("gi", "the snapshot has no GPUInstance x"),
    ],
)
def test_what_the_snapshot_does_not_have_is_said(kind, says):
    with pytest.raises(NotInSnapshot, match=says):
        explain_in(Snapshot(now=NOW), kind, "team", "x")


def test_a_pod_of_that_name_elsewhere_is_pointed_to():
    with pytest.raises(NotInSnapshot, match=r"give -n: there is one in other, team$"):
        explain_in(Snapshot(now=NOW, pending=(pod(), pod(namespace="other"))), "pod", "default", "train")


def test_a_pod_is_told_what_the_tick_of_the_snapshot_decides_about_it():
    found = explain_in(Snapshot(now=NOW, pending=(pod(), pod("other"))), "pod", "team", "train")

    assert [each.about for each in found.events] == ["team/train"]
    assert found.next.startswith(f"{found.events[0].reason} (")
