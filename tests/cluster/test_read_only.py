"""A dry run with exactly the roles that `forebay manifests rbac --read-only` prints, on a real API server."""

import asyncio

import msgspec
import pytest

from forebay.install.roles import rbac_manifests
from forebay.net.transport import Response
from forebay.simulate.power import PowerCall, Powered
from tests.cluster import audit
from tests.cluster.operators import until
from tests.cluster.powered import power_api
from tests.cluster.test_install import unschedulable_pod
from tests.cluster.worlds import FOREBAY, world

KEY = "Bearer of-the-shadow"
READS = {"get", "list", "watch"}


@pytest.mark.real_time
@pytest.mark.timeout(120)
async def test_a_dry_run_says_what_it_would_launch_is_refused_nothing_and_writes_nothing(own_rig):
    def guard(request):
        return None if request.headers.get("Authorization") == KEY else Response(401)

    async with world(own_rig) as made:
        machine = Powered(name=f"{made.name}-box", gpus=1, boot=0.5)
        async with power_api(own_rig, [machine], guard=guard) as (power, base):
            secret = {"metadata": {"name": "power-api"}, "stringData": {"Authorization": KEY}}
            await made.call("POST", f"/api/v1/namespaces/{made.home}/secrets", secret)
            [configured] = power.configured(base)
            await made.create_class({**msgspec.to_builtins(configured), "headersSecretRef": {"name": "power-api"}})
            await made.create_pool("pool")
            budget = {
                "apiVersion": "forebay.dev/v1alpha1",
                "kind": "GPUWorkloadBudget",
                "metadata": {"name": "team"},
                "spec": {
                    "selector": {"matchLabels": {"team": "shadow"}},
                    "quota": {"gpuHours": "1", "windowHours": 1},
                    "enforcement": {"action": "Pause"},
                },
            }
            budgets = f"{FOREBAY}/namespaces/{made.name}/gpuworkloadbudgets"
            await made.call("POST", budgets, budget)
            made.will_leave(f"{budgets}/team")
            made.will_leave(f"/api/v1/namespaces/{made.name}/pods/train")
            await asyncio.to_thread(unschedulable_pod, own_rig, "train", 1, made.name)
            roles = rbac_manifests(made.home, ["power-api"], read_only=True)
            async with made.operator("shadow", settings={"dry-run": "on"}, roles=roles) as operator:

                async def decided():
                    found = operator.said("would launch")
                    return [each for each in found if f"{made.name}/train" in each["pods"]]

                await until(decided, "the dry run would power on the machine")
                await operator.leave()
            receipt = operator.said("receipt of the dry run")[-1]
            assert receipt["bought"] >= 1
            assert {each.asked for each in power.calls} <= {PowerCall.STATUS}
            assert {each.status for each in power.calls} == {200}
    requests = audit.entries(own_rig.audit_log, operator.user)
    assert [each for each in requests if each.refused] == []
    # Which kinds the cluster serves has no resource; all else is reading.
    assert {each.verb for each in requests if each.resource} <= READS
    assert {"pods", "nodes", "gpunodepools", "secrets"} <= {each.resource for each in requests}
