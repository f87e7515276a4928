"""What users install, on a real API server: by Helm and by kubectl; then the operator under exactly that account."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
import yaml

from forebay.api.kinds import KINDS
from forebay.api.names import OPERATOR_LEASE, OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.simulate.power import Powered
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.powered import gpu_pod, power_api
from tests.rig import Rig, RigFailed, Tier
from tests.rig.binaries import pinned_version
from tests.unit.deploy import helm as chart

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}

#: Everything that changes what is rendered, but for the ServiceMonitor, whose kind a bare server does not have.
EVERY_CHOICE = {
    **chart.PREDECESSORS_VALUES,
    "secrets": ["power-api"],
    "settings": {"logLevel": "debug"},
    "extraEnv": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "imagePullSecrets": [{"name": "registry"}],
    "replicaCount": 3,
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "podAnnotations": {"example.com/a": "b"},
    "service": {"annotations": {"prometheus.io/scrape": "true"}},
}


MACHINES = (Powered(name="gpu-worker-1", gpus=4, boot=1), Powered(name="gpu-worker-2", gpus=8, boot=1))


def unschedulable_pod(rig: Rig, name: str, gpus: int, namespace: str = "default") -> None:
    """A pod of which a scheduler has said that no node fits it; there is none here."""
    namespace = f"/api/v1/namespaces/{namespace}"
    with contextlib.suppress(RigFailed):  # a service account controller may have been faster
        rig.call("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    rig.call("POST", f"{namespace}/pods", gpu_pod(name, gpus))
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/0 nodes are available",
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    made = rig.call("GET", f"{namespace}/pods/{name}")
    made["status"] = {**made["status"], "conditions": [condition]}
    rig.call("PUT", f"{namespace}/pods/{name}/status", made)


def make_ready(rig: Rig, name: str) -> None:
    """What the kubelet of the machine reports and the node lifecycle controller does; neither runs on this rig."""
    node = rig.call("GET", f"/api/v1/nodes/{name}")
    node["spec"]["taints"] = [
        each for each in node["spec"].get("taints", ()) if each["key"] != "node.kubernetes.io/not-ready"
    ]
    node = rig.call("PUT", f"/api/v1/nodes/{name}", node)
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    node["status"] = {**node["status"], "conditions": [condition]}
    rig.call("PUT", f"/api/v1/nodes/{name}/status", node)


@pytest.fixture(scope="module")
def bare():
    """A server that nobody has installed anything on."""
    with Rig.start(Tier.API, audit=True) as rig:
        yield rig


def kubectl(rig: Rig, *arguments: str, text: str | None = None) -> str:
    done = subprocess.run(
        [rig.kubectl, "--kubeconfig", rig.admin_kubeconfig, *arguments],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def helm(rig: Rig, *arguments: str, values: dict[str, object] | None = None) -> str:
    done = chart.helm(*arguments, "--kubeconfig", str(rig.admin_kubeconfig), values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed() -> str:
    version = pinned_version("kube-apiserver")
    command = [sys.executable, "-m", "forebay", "manifests", "install", "--kube-version", version]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def variables(deployment: dict) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


async def lead(
    rig: Rig,
    namespace: str,
    name: str = OPERATOR_NAME,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> OperatorProcess:
    """What the Deployment's pod would do: its environment, its account's token, and no more. Ends as a pod ends."""
    deployment = rig.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    kubeconfig = rig.kubeconfig_for("replaced")
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": rig.token_for(f"{namespace}/{account}")}
    kubeconfig.write_text(yaml.safe_dump(document))
    operator = OperatorProcess(rig, f"in-{namespace}", kubeconfig, namespace, variables(deployment))
    operator.start()
    try:
        await until(operator.is_ready, "the operator is ready")
        identity = await operator.identity()

        async def leads() -> bool:
            try:
                lease = rig.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{OPERATOR_LEASE}")
            except RigFailed:
                return False
            return lease["spec"].get("holderIdentity") == identity

        await until(leads, "the operator leads")
        if meanwhile is not None:
            await meanwhile()
        await operator.leave()
    finally:
        operator.stop()
    asked = audit.entries(rig.audit_log, f"system:serviceaccount:{namespace}:{account}")
    assert [each for each in asked if each.is_claim]
    assert [each for each in asked if each.refused] == []
    return operator


@pytest.mark.helm
@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_the_operator_leads_under_the_account_that_helm_installed(bare):
    # Another name than the plain file's: what is not of a release, Helm does not touch. The policies have one name in
    # every cluster; those of the plain file, if it came first, are in the way.
    name = "lab-forebay"
    for kind in ("mutating", "validating"):
        with contextlib.suppress(AssertionError):  # not every version serves both
            kubectl(bare, "delete", "--all", f"{kind}admissionpolicybindings,{kind}admissionpolicies")
    deployment = f"/apis/apps/v1/namespaces/gpus/deployments/{name}"
    install = [name, str(chart.CHART), "--namespace", "gpus"]
    async with power_api(bare, MACHINES, look_for_pods=False) as (power, switches):
        groups = [
            each
            | {
                "scaleUpEndpoint": f"{switches}/{each['name']}/start",
                "scaleDownEndpoint": f"{switches}/{each['name']}/stop",
            }
            for each in chart.PREDECESSORS_VALUES["nodeGroups"]
        ]
        values = {**chart.PREDECESSORS_VALUES, "nodeGroups": groups}
        notes = helm(bare, "install", *install, "--create-namespace", values=values)
        assert f"kubectl -n gpus get lease {OPERATOR_LEASE}" in notes
        assert "gpu-worker-2 (8 GPUs)" in notes

        async def first_pod() -> None:
            """A pod that waits for four GPUs is served by the machine that has as many."""
            await asyncio.to_thread(unschedulable_pod, bare, "first", 4)

            async def registered() -> bool:
                try:
                    await asyncio.to_thread(make_ready, bare, "gpu-worker-1")
                except RigFailed:
                    return False
                return True

            await until(registered, "the first machine has been powered on and registers")

            async def ready() -> bool:
                path = "/apis/forebay.dev/v1alpha1/gpuinstances"
                found = (await asyncio.to_thread(bare.call, "GET", path))["items"]
                states = {each["metadata"]["name"]: each.get("status", {}).get("state") for each in found}
                return states == {"gpu-worker-1": "Ready"}

            await until(ready, "the first machine is Ready")
            assert [call.machine for call in power.calls if call.asked == "start"] == ["gpu-worker-1"]

        operator = await lead(bare, "gpus", name, meanwhile=first_pod)
    assert operator.said("machine variable invalid") == []
    bare.call("DELETE", "/api/v1/namespaces/default/pods/first?gracePeriodSeconds=0")
    bare.call("DELETE", "/api/v1/nodes/gpu-worker-1")

    # A pod of that template is let in where the strictest of the Pod Security Standards is enforced.
    bare.call("POST", "/api/v1/namespaces", {"metadata": {"name": "strict", "labels": RESTRICTED}})
    bare.call("POST", "/api/v1/namespaces/strict/serviceaccounts", {"metadata": {"name": name}})
    template = bare.call("GET", deployment)["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {"name": "operator"}}
    bare.call("POST", "/api/v1/namespaces/strict/pods?dryRun=All", pod)

    helm(bare, "upgrade", *install, values=EVERY_CHOICE)
    assert bare.call("GET", deployment)["spec"]["replicas"] == 3
    # No node runs its last Job here; `test_uninstall.py` does what that would.
    helm(bare, "uninstall", name, "--namespace", "gpus", "--no-hooks")
    with pytest.raises(RigFailed, match="404"):
        bare.call("GET", deployment)
    # The kinds stay, and with them what users wrote and which machines are on.
    kept = bare.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    assert {each["metadata"]["name"] for each in kept} == {kind.crd_name for kind in KINDS}


@pytest.mark.real_time
@pytest.mark.timeout(300)
async def test_the_operator_leads_under_the_account_of_the_plain_file(bare):
    plain = printed()
    # Where Helm has installed the kinds before, they are taken over from it.
    said = kubectl(bare, "apply", "--server-side", "--force-conflicts", "-f", "-", text=plain)
    assert "deployment.apps/forebay serverside-applied" in said
    await lead(bare, OPERATOR_NAMESPACE)


@pytest.mark.helm
@pytest.mark.parametrize("values", [{}, chart.PREDECESSORS_VALUES, EVERY_CHOICE], ids=["none", "predecessor", "every"])
def test_the_server_takes_every_object_as_it_is_written(bare, values):
    """A strict dry run: an unknown or doubled field is refused, not dropped."""
    documents = "---\n".join(json.dumps(each) + "\n" for each in chart.rendered(values, namespace="default"))
    said = kubectl(bare, "apply", "--dry-run=server", "--validate=strict", "-f", "-", text=documents)
    assert len(said.splitlines()) == len(chart.rendered(values)) >= 8
    assert "deployment.apps/forebay" in said


@pytest.mark.helm
def test_the_kinds_are_brought_up_to_date_as_the_notes_say(bare):
    crds = chart.helm("show", "crds", str(chart.CHART)).stdout
    said = kubectl(bare, "apply", "--server-side", "--force-conflicts", "-f", "-", text=crds)
    assert said.count("serverside-applied") == len(KINDS)
