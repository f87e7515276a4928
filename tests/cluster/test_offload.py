"""Marked Jobs on a real control plane: run at a conformance server of RunPod, with the roles that are printed."""

import asyncio
import base64
from typing import Any

import pytest

from forebay.api.names import OPERATOR_NAMESPACE, VIRTUAL_NODE
from forebay.install.permissions import OFFLOAD_PERMISSIONS
from forebay.net.serve import serving
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.test_rbac import ACCOUNT, account_of, use
from tests.cluster.worlds import FOREBAY, install_definitions
from tests.contract.providers.runpod.server import RunpodCloud, gpu
from tests.rig import Rig, RigFailed, Tier
from tests.rig.plugin import require

KEY = "planted-runpod-key-41bc"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def audited_rig():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER, audit=True) as rig:
        install_definitions(rig)
        yield rig


def job(name: str, *, runs: str, exit_code: int = 0, **spec: Any) -> dict[str, Any]:
    env = {RUN_TIME: runs, EXIT_CODE: str(exit_code)}
    container = {
        "name": "main",
        "image": "work:1",
        "command": ["train"],
        "env": [{"name": key, "value": value} for key, value in env.items()],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "annotations": {"runpod.io/managed": "true"}}
    return {"metadata": metadata, "spec": {"backoffLimit": 0, "template": template, **spec}}


def tolerating(kind: str) -> dict[str, Any]:
    """A DaemonSet or Deployment whose pod tolerates every taint and requests nothing."""
    labels = {"app": kind}
    spec = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "main", "image": "work:1"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": kind}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


def configure(rig: Rig, base: str, provider: str = "runpod") -> None:
    data = {"key": base64.b64encode(KEY.encode()).decode()}
    secrets = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets"
    rig.call("POST", secrets, {"metadata": {"name": "runpod"}, "data": data})
    entry = {"name": provider, "endpoint": base, "credentialsRef": {"name": "runpod", "key": "key"}}
    header = {"apiVersion": "forebay.dev/v1alpha1", "metadata": {"name": "runpod"}}
    rig.call("POST", f"{FOREBAY}/gpunodeclasses", {**header, "kind": "GPUNodeClass", "spec": {"providers": [entry]}})
    pool = {**header, "kind": "GPUNodePool", "spec": {"nodeClassRef": {"name": "runpod"}}}
    rig.call("POST", f"{FOREBAY}/namespaces/{OPERATOR_NAMESPACE}/gpunodepools", pool)


class Story:
    """What is asked of the control plane."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await asyncio.to_thread(self._rig.call, method, path, body)

    async def ended(self, name: str) -> str | None:
        found = await self.call("GET", f"{JOBS}/{name}")
        conditions = found.get("status", {}).get("conditions", ())
        return next((each["type"] for each in conditions if each["type"] in {"Complete", "Failed"}), None)

    async def pods(self, name: str) -> list[dict[str, Any]]:
        found = await self.call("GET", f"{PODS}?labelSelector=job-name={name}")
        return list(found["items"])

    async def is_running(self, name: str) -> bool:
        return any(each["status"].get("phase") == "Running" for each in await self.pods(name))

    async def is_told_why(self, app: str) -> bool:
        """Whether the pod says why it does not run on the virtual node: bound there, or without room there."""
        (pod,) = (await self.call("GET", f"{PODS}?labelSelector=app={app}"))["items"] or [{"spec": {}, "status": {}}]
        status = pod["status"]
        if app == "daemonsets":
            return pod["spec"].get("nodeName") == VIRTUAL_NODE and status.get("reason") == "NotSupported"
        messages = [each.get("message", "") for each in status.get("conditions", ())]
        return "nodeName" not in pod["spec"] and any("Too many pods" in each for each in messages)

    async def all_gone(self) -> bool:
        records = (await self.call("GET", f"{FOREBAY}/gpuinstances"))["items"]
        return {each.get("status", {}).get("state") for each in records} == {"Gone"}


@pytest.mark.real_time
@pytest.mark.timeout(400)
async def test_jobs_run_remotely_with_exactly_the_permissions_that_are_granted_for_it(audited_rig):
    rig = audited_rig
    cloud = RunpodCloud(gpu("NVIDIA A40", price="0.39", memory=48, boot=1), key=KEY, enforces_limits=False)
    kubeconfig = await asyncio.to_thread(account_of, rig, "--secret", "runpod", "--offload", "on")
    operator = OperatorProcess(rig, "operator", kubeconfig, OPERATOR_NAMESPACE)
    told = Story(rig)
    async with serving(cloud.answer) as base:
        await asyncio.to_thread(configure, rig, base)
        operator.start()
        try:
            await until(operator.is_ready, "the operator is ready")
            await told.call("POST", JOBS, job("good", runs="3s"))
            await told.call("POST", JOBS, job("bad", runs="3s", exit_code=3))
            await told.call("POST", JOBS, job("deleted", runs="10h"))
            assert await until(lambda: told.ended("good"), "the Job is complete") == "Complete"
            assert await until(lambda: told.ended("bad"), "the Job has failed") == "Failed"
            (pod,) = await told.pods("bad")
            assert pod["spec"]["nodeName"] == VIRTUAL_NODE
            assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
            assert not any("tolerationSeconds" in each for each in pod["spec"].get("tolerations", ()))
            await until(lambda: told.is_running("deleted"), "the third one runs")
            for kind in ("daemonsets", "deployments"):
                await told.call("POST", f"/apis/apps/v1/namespaces/default/{kind}", tolerating(kind))
            await until(lambda: told.is_told_why("daemonsets"), "the pod of the DaemonSet is told that nothing runs")
            await until(lambda: told.is_told_why("deployments"), "the pod of the Deployment has no room there")
            await told.call("DELETE", f"{JOBS}/deleted?propagationPolicy=Foreground")

            async def forgotten() -> bool:
                try:
                    await told.call("GET", f"{JOBS}/deleted")
                except RigFailed as failure:
                    return ": 404 " in str(failure)
                return False

            await until(forgotten, "the deleted Job is gone, after its pod and its container")
            await until(told.all_gone, "every container is proven gone")
        finally:
            operator.stop()
    assert cloud.running == frozenset()
    assert len(cloud.instances) == 3
    assert cloud.violations == []
    requests = audit.entries(rig.audit_log, ACCOUNT)
    assert {use(each) for each in requests if each.refused} == set()
    granted = {
        (each.group, resource, verb)
        for each in OFFLOAD_PERMISSIONS
        for resource in each.resources
        for verb in each.verbs
        # Older servers need lists; signers are no objects, but are asked for within the approval.
        if verb != "list" and resource != "signers"
    }
    used = {(each.group, each.resource, each.verb) for each in requests}
    # A watch is in the log once it has ended; nobody asked for a log here (test_remote_logs.py).
    unused = {("batch", "jobs", "watch"), ("authorization.k8s.io", "subjectaccessreviews", "create")}
    assert granted - used <= unused
