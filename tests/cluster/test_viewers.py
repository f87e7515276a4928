"""People with the roles that Forebay prints for readers, on a real API server: what they see, and what not."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from forebay.install.roles import rbac_manifests, view_role
from tests.cluster import audit
from tests.cluster.impersonation import MERGE, ask
from tests.cluster.test_install import unschedulable_pod
from tests.cluster.worlds import FOREBAY, RBAC, create, world

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

#: What the role `view` has by itself. It is put together by the controller manager, which this control plane lacks.
VIEW = "system:aggregate-to-view"
OURS = ("gpuinstances", "gpunodepools", "gpuworkloadbudgets")
NOT_FOR_VIEWERS = (
    f"{FOREBAY}/gpunodeclasses",
    f"{FOREBAY}/nodeprovisioners",
    "/api/v1/secrets",
)


def let_view(rig, user, *namespaces):
    """Bind the roles to the user in these namespaces; in the whole cluster where none is given."""
    create(rig, view_role())
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    for role in (VIEW, view_role()["metadata"]["name"]):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        binding = {
            "metadata": {"name": f"{user}-{role.replace(':', '-')}"},
            "subjects": [subject],
            "roleRef": reference,
        }
        paths = [f"{RBAC}/namespaces/{each}/rolebindings" for each in namespaces] or [f"{RBAC}/clusterrolebindings"]
        for path in paths:
            rig.call("POST", path, binding)


async def forebay(rig, user, *arguments, home):
    """What the command says to this user."""
    environment = {**os.environ, "KUBECONFIG": str(rig.kubeconfig_for(user)), "FOREBAY_NAMESPACE": home}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "forebay", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


async def set_up(made):
    """A pod that waits, a budget, a pool, and a class whose URLs hold a secret."""
    await made.create_class()
    await made.create_pool("pool")
    budget = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": "budget"},
        "spec": {
            "selector": {"matchLabels": {"team": "a"}},
            "quota": {"gpuHours": "1", "windowHours": 1},
            "enforcement": {"action": "Pause"},
        },
    }
    budgets = f"{FOREBAY}/namespaces/{made.name}/gpuworkloadbudgets"
    await made.call("POST", budgets, budget)
    made.will_leave(f"{budgets}/budget")
    made.will_leave(f"/api/v1/namespaces/{made.name}/pods/train")
    await asyncio.to_thread(unschedulable_pod, made.rig, "train", 1, made.name)


async def test_a_team_with_view_in_its_namespace_sees_its_budgets_and_why_its_pods_wait(own_rig):
    async with world(own_rig) as made:
        await set_up(made)
        team = f"{made.name}-team"
        let_view(own_rig, team, made.name)

        explained = await forebay(own_rig, team, "explain", f"pod/{made.name}/train", home=made.home)
        assert (explained.returncode, explained.stderr) == (0, "")
        assert "Waiting for capacity: requests 1 GPU" in explained.stdout
        assert "this user may not list them: GPUInstances, nodes, GPUNodePools." in explained.stdout

        # With the ledgers' namespace, too: what else counts is still not the team's to read.
        for more in ((), (made.home,)):
            if more:
                let_view(own_rig, team, *more)
            budgets = await forebay(own_rig, team, "budgets", "-n", made.name, "-o", "json", home=made.home)
            assert (budgets.returncode, budgets.stderr) == (0, "")
            told = json.loads(budgets.stdout)
            assert [each["name"] for each in told["budgets"]] == ["budget"]
            assert "as the operator last reported it" in told["note"]

        for plural in ("gpunodepools", "gpuworkloadbudgets"):
            assert ask(own_rig, team, "GET", f"{FOREBAY}/namespaces/{made.name}/{plural}")[0] == 200
        hidden = [*(f"{FOREBAY}/{each}" for each in OURS), *NOT_FOR_VIEWERS, f"/api/v1/namespaces/{made.name}/secrets"]
        assert {path: ask(own_rig, team, "GET", path)[0] for path in hidden} == dict.fromkeys(hidden, 403)

        status = await forebay(own_rig, team, "status", home=made.home)
        assert (status.returncode, status.stdout, len(status.stderr.splitlines())) == (2, "", 1)
        assert "with rights in one namespace there are forebay explain pod/NAME" in status.stderr


async def test_whoever_views_the_whole_cluster_sees_all_budgets_and_machines_and_changes_nothing(own_rig):
    async with world(own_rig) as made:
        await set_up(made)
        viewer = f"{made.name}-viewer"
        let_view(own_rig, viewer)

        assert {each: ask(own_rig, viewer, "GET", f"{FOREBAY}/{each}")[0] for each in OURS} == dict.fromkeys(OURS, 200)
        assert {each: ask(own_rig, viewer, "GET", each)[0] for each in NOT_FOR_VIEWERS} == dict.fromkeys(
            NOT_FOR_VIEWERS, 403
        )
        budgets = await forebay(own_rig, viewer, "budgets", "-o", "json", home=made.home)
        assert (budgets.returncode, budgets.stderr) == (0, "")
        told = json.loads(budgets.stdout)
        assert (made.name, "budget", "") in {
            (each["namespace"], each["name"], told["note"]) for each in told["budgets"]
        }
        explained = await forebay(own_rig, viewer, "explain", f"pod/{made.name}/train", home=made.home)
        assert (explained.returncode, explained.stderr) == (0, "")
        assert explained.stdout.rstrip().endswith("this user may not list them: nodes.")

        # Nodes are not among what `view` shows.
        status = await forebay(own_rig, viewer, "status", home=made.home)
        assert (status.returncode, status.stderr) == (0, "")
        told = {line.split("   ")[0]: line for line in status.stdout.splitlines()}
        assert "unknown: this user may not list nodes" in told["Nodes"]
        assert "unknown: this user may not list NodeProvisioners" in told["Groups"]
        assert f"{made.name}/train" in told
        # What cannot do without them says so at once.
        for command in ("plan", "offers"):
            refused = await forebay(own_rig, viewer, command, home=made.home)
            assert (refused.returncode, refused.stdout, len(refused.stderr.splitlines())) == (2, "", 1), command
            assert "nodes is forbidden" in refused.stderr

        pool = f"{FOREBAY}/namespaces/{made.name}/gpunodepools"
        writes = {
            ask(own_rig, viewer, "PATCH", f"{pool}/pool", {"spec": {"weight": 1}}, MERGE)[0],
            ask(own_rig, viewer, "DELETE", f"{pool}/pool")[0],
            ask(own_rig, viewer, "POST", pool, {"kind": "GPUNodePool"})[0],
            ask(own_rig, viewer, "DELETE", f"{FOREBAY}/gpuinstances/any")[0],
        }
        assert writes == {403}


async def test_plan_and_offers_work_with_what_an_operator_may_read_and_write_nothing(own_rig):
    async with world(own_rig) as made:
        await set_up(made)
        user = f"{made.name}-on-call"
        await asyncio.to_thread(made.grant, user, rbac_manifests(made.home, read_only=True))
        let_view(own_rig, user)
        for command in ("status", "plan", "offers", "budgets"):
            told = await forebay(own_rig, user, command, "-o", "json", home=made.home)
            assert (told.returncode, told.stderr) == (0, ""), told.stderr
            json.loads(told.stdout)
    requests = audit.entries(own_rig.audit_log, user)
    assert {each.verb for each in requests if each.resource} <= {"get", "list", "watch"}
