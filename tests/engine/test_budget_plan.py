"""`forebay plan` respects budgets as the operator does, in a cluster, a saved snapshot and manifests."""

from datetime import UTC, datetime

import pytest

from forebay.cli.plan.manifests import snapshot_of
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Offer
from forebay.reconcile.saved_snapshot import load_snapshot, save_snapshot
from forebay.reconcile.snapshot import OperatorRules
from forebay.reporting.plans import plan_report
from forebay.reporting.what_if import WhatIfError, dry_run, parse_supposition, suppose, with_table
from forebay.simulate.power import Powered
from tests.engine.budget_world import operator, passing, world
from tests.engine.test_survey import seen

BOXES = [Powered(name=f"box-{number}", gpus=1, boot=60, hourly_price="3.60") for number in (1, 2, 3)]


def planned(view):
    report = plan_report(view)
    return len(report.machines), {each.pod.removeprefix("default/"): each.reason for each in report.left_out}


async def use_most(it):
    """Use most of the quota, so that the headroom is for one pod at most."""
    it.budget(hours="1", window=24, action="Pause", grace=100_000)
    async with operator(it):
        it.pod("first", 1, runs="20m")
        await passing(1800)
    it.pod("second", 1)
    it.pod("third", 1)
    it.pod("free", 1, labels={"team": "b"})
    await passing(1)


async def test_nothing_is_planned_for_a_pod_without_headroom():
    async with world(*BOXES, nodes=()) as it:
        await use_most(it)
        machines, left = planned(dry_run(await seen(it)))
        assert (machines, list(left.values())) == (2, ["HeldByBudget"])


async def test_a_saved_snapshot_gives_the_same_plan():
    async with world(*BOXES, nodes=()) as it:
        await use_most(it)
        snapshot = await seen(it)
        assert plan_report(dry_run(load_snapshot(save_snapshot(snapshot)))) == plan_report(dry_run(snapshot))


async def test_what_if_supposes_another_quota():
    async with world(*BOXES, nodes=()) as it:
        await use_most(it)
        snapshot = await seen(it)
        assert planned(dry_run(*suppose(snapshot, [parse_supposition("budget=default/team-a:10")]))) == (3, {})
        machines, left = planned(dry_run(*suppose(snapshot, [parse_supposition("budget=default/team-a:0.1")])))
        assert (machines, sorted(left)) == (1, ["second", "third"])
        machines, left = planned(dry_run(*suppose(snapshot, [parse_supposition("budget=default/team-a:0.01usd")])))
        assert (machines, sorted(left)) == (1, ["second", "third"])
        with pytest.raises(WhatIfError, match="budgets are: default/team-a"):
            suppose(snapshot, [parse_supposition("budget=default/other:10")])


@pytest.mark.parametrize("text", ["budget=a/b", "budget=/b:1", "budget=a/b:", "budget=a/b:-1", "budget=a/b:xusd"])
def test_an_invalid_quota_is_refused(text):
    with pytest.raises(WhatIfError, match="such as"):
        parse_supposition(text)


async def test_a_gated_pod_is_reported_with_its_budget():
    async with world(*BOXES, nodes=()) as it:
        await use_most(it)
        it.pod("gated", 1, schedulingGates=[{"name": "forebay.dev/budget"}])
        await passing(1)
        report = plan_report(dry_run(await seen(it)))
        (gated,) = [each for each in report.others if each.pod == "default/gated"]
        assert gated.reason == "HeldByBudget"
        assert "team-a" in gated.sentence


def test_budgets_in_manifests_count_the_usage_of_pods_in_manifests():
    now = datetime(2026, 5, 4, 12, tzinfo=UTC)
    container = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    made = {"namespace": "team", "labels": {"team": "a"}, "creationTimestamp": "2026-05-04T09:00:00Z"}
    ran = {"terminated": {"startedAt": "2026-05-04T10:00:00Z", "finishedAt": "2026-05-04T11:00:00Z", "exitCode": 0}}
    status = {"phase": "Succeeded", "containerStatuses": [{"name": "m", "state": ran}]}
    documents = [
        {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "GPUWorkloadBudget",
            "metadata": {"name": "quota", "namespace": "team"},
            "spec": {
                "selector": {"matchLabels": {"team": "a"}},
                "quota": {"gpuHours": 1, "windowHours": 24},
                "enforcement": {"action": "Evict"},
            },
        },
        _pod({**made, "name": "done"}, {"containers": [container], "nodeName": "n"}, status),
        _pod({**made, "name": "next"}, {"containers": [container]}),
    ]
    drawn = snapshot_of([("file", each) for each in documents], now, OperatorRules())
    assert drawn.notes == ()
    snapshot = with_table(
        drawn.snapshot,
        [
            Offer(
                provider="aws",
                instance_type="g6",
                gpu_count=1,
                price=UsdPerHour("1"),
                allocatable=Resources({"cpu": 8000, "memory": 2**34, "pods": 100, "nvidia.com/gpu": 1}),
            )
        ],
        {},
    )
    assert planned(dry_run(snapshot)) == (0, {"team/next": "HeldByBudget"})
    assert planned(dry_run(*suppose(snapshot, [parse_supposition("budget=team/quota:2")]))) == (1, {})


def _pod(metadata, spec, status=None):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status or {}}


async def test_a_cluster_without_budgets_is_planned_without_them():
    async with world(*BOXES, nodes=()) as it:
        async with operator(it):
            # Publishes the machines of the environment, from which others plan.
            await passing(5)
        it.pod("one", 1)
        await passing(1)
        snapshot = await seen(it)
        assert snapshot.budget_state is None
        assert snapshot.rules == OperatorRules(namespace="kube-system")
        assert planned(dry_run(snapshot)) == (1, {})
