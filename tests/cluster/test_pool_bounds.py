"""What a tenant with every right in its own namespace can do to others by a GPUNodePool: nothing."""

import pytest

from forebay.simulate.power import Powered
from tests.cluster.impersonation import MERGE, ask
from tests.cluster.operators import until
from tests.cluster.powered import gpu_pod, power_api
from tests.cluster.worlds import FOREBAY, RBAC, create, world

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]

TENANT = "mallory"
TRUSTED = {"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/trusted": "yes"}


def let_in(rig, namespace):
    """The tenant may everything in this namespace, and nothing elsewhere."""
    create(rig, {"kind": "Namespace", "metadata": {"name": namespace}})
    rule = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    rig.call("POST", f"{RBAC}/namespaces/{namespace}/roles", {"metadata": {"name": TENANT}, "rules": rule})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": TENANT}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    binding = {"metadata": {"name": TENANT}, "subjects": [subject], "roleRef": reference}
    rig.call("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


def pool(node_class, **template):
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": "greedy"},
        "spec": {
            "nodeClassRef": {"name": node_class},
            "weight": 100,
            "namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "Exists"}]},
            "template": {"metadata": {"labels": template}},
        },
    }


async def test_a_tenants_pool_neither_captures_others_pods_nor_marks_nodes(whole_rig):
    rig = whole_rig
    async with world(rig) as made, power_api(rig, [Powered(name="box", gpus=1, boot=0.5)]) as (power, base):
        [machine] = power.configured(base, status=False)
        theirs = f"{made.name}-mallory"
        let_in(rig, theirs)
        path = f"{FOREBAY}/namespaces/{theirs}/gpunodepools"
        status, message, _ = ask(rig, TENANT, "POST", path, pool(made.name, **TRUSTED))
        assert (status, "belong to the cluster: choose another key" in message) == (422, True)
        assert ask(rig, TENANT, "POST", path, pool(made.name, greedy="yes"))[0] == 201
        await made.create_class(machine, allowed=None)

        async def told(reason, text=""):
            async def says():
                conditions = (await made.call("GET", f"{path}/greedy")).get("status", {}).get("conditions", ())
                found = [each for each in conditions if each["type"] == "NodeClassReady"]
                return any(each["reason"] == reason and text in each["message"] for each in found)

            await until(says, f"the tenant's pool says {reason}")

        async with made.leading("a") as operator:
            # A class lets in nobody by itself.
            await told("NamespaceNotAllowed", f"does not allow GPUNodePools of namespace {theirs}")
            # And where it lets the tenant in, the tenant's pool is for the tenant.
            allow = {"spec": {"allowedNamespaces": {}}}
            assert ask(rig, TENANT, "PATCH", f"{FOREBAY}/gpunodeclasses/{made.name}", allow, MERGE)[0] == 403
            assert ask(rig, "rig-admin", "GET", f"{FOREBAY}/gpunodeclasses")[0] == 403  # impersonated without its group
            await made.change_spec(f"{FOREBAY}/gpunodeclasses/{made.name}", allow["spec"])
            await told("NodeClassFound", "does not permit this pool to serve")
            await made.create_pool("administrators", made.home)
            await made.call("POST", f"/api/v1/namespaces/{made.name}/pods", gpu_pod("victim", 1))

            async def runs():
                seen = await made.call("GET", f"/api/v1/namespaces/{made.name}/pods/victim")
                return seen["status"].get("phase") == "Running"

            await until(runs, "the victim's pod runs")
            record = await made.call("GET", f"{FOREBAY}/gpuinstances/box")
            assert record["spec"]["poolRef"] == {"namespace": made.home, "name": "administrators"}
            labels = (await made.call("GET", "/api/v1/nodes/box"))["metadata"]["labels"]
            assert labels["forebay.dev/nodepool"] == "administrators"
            assert not labels.keys() & {"greedy", *TRUSTED}
            assert ask(rig, TENANT, "DELETE", f"{path}/greedy")[0] == 200
            await operator.leave()
            assert await runs()
            assert power.on
