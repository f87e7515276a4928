"""`forebay uninstall` as the chart's last Job runs it: on a real API server, under the account made for it."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from forebay.api.names import (
    OPERATOR_LEASE,
    PAUSE_REQUESTED_AT_ANNOTATION,
    PAUSE_REQUESTED_BY_ANNOTATION,
    PAUSED_LABEL,
    STARTUP_TAINT,
    VIRTUAL_NODE,
)
from forebay.install.admission_policies import admission_policies
from forebay.install.operator_policies import operator_account, operator_policies
from forebay.install.permissions import UNINSTALL_CLUSTER_PERMISSIONS, UNINSTALL_NAMESPACE_PERMISSIONS
from tests.cluster import audit
from tests.cluster.test_budget_policies import ADMISSION, EXACT, GATE, SPENT, USAGE, budget, marks, settled
from tests.cluster.worlds import FOREBAY
from tests.rig import Rig, RigFailed
from tests.rig.binaries import policies_version
from tests.unit.deploy import helm as chart

HOME = "forebay-system"
TEAM = "leaving"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
OPERATOR = operator_account()
MACHINE = {"name": "m", "gpuCount": 1, "scaleUpEndpoint": "http://m/on", "scaleDownEndpoint": "http://m/off"}


def apply(rig: Rig, documents) -> None:
    text = "---\n".join(json.dumps(each) + "\n" for each in documents)
    command = [rig.kubectl, "--kubeconfig", rig.admin_kubeconfig, "apply", "--server-side", "-f", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def uninstall(rig: Rig, account: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = rig.kubeconfig_for("replaced")
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": rig.token_for(f"{HOME}/{account}")}
    kubeconfig.write_text(yaml.safe_dump(document))
    environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig), "FOREBAY_NAMESPACE": HOME}
    if "PYTHONPATH" in os.environ:
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    command = [sys.executable, "-m", "forebay", "uninstall", "--output", "json"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)


def lease():
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "an-operator", "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
    meta = {"name": OPERATOR_LEASE, "namespace": HOME}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def paused_job():
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}}
    notes = {"forebay.dev/paused-by": "team-a", "forebay.dev/paused-at": "2026-01-01T00:00:00Z"}
    meta = {"name": "paused", "namespace": TEAM, "labels": {"forebay.dev/paused": "true"}, "annotations": notes}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def scene(rig: Rig) -> None:
    """Pods with the finalizer and the gate, put there by the API server itself; a Job that waits; a class."""
    hooks = [each for each in chart.rendered(hooks=True, namespace=HOME) if each["kind"] != "Job"]
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in (HOME, TEAM)]
    apply(
        rig,
        [*spaces, *hooks, *admission_policies(policies_version()), *operator_policies(OPERATOR), lease(), paused_job()],
    )
    with suppress(RigFailed):
        rig.call("POST", f"/api/v1/namespaces/{TEAM}/serviceaccounts", {"metadata": {"name": "default"}})
    budget(rig, TEAM, "exact", **EXACT)
    budget(rig, TEAM, "spent", **SPENT)
    assert settled(rig, TEAM, ([USAGE], [GATE])) == ([USAGE], [GATE])
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body = {"metadata": {"name": "held", "labels": {"team": "a"}}, "spec": {"containers": [container]}}
    assert marks(rig.call("POST", f"/api/v1/namespaces/{TEAM}/pods", body)) == ([USAGE], [GATE])
    node_class = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "leaving", "finalizers": ["forebay.dev/nodeclass"]},
        "spec": {"providers": [{"name": "webhook", "machines": [MACHINE]}]},
    }
    rig.call("POST", f"{FOREBAY}/gpunodeclasses", node_class)
    # What an operator publishes of the machines of its environment variables.
    ours = {"forebay.dev/environment": HOME, "app.kubernetes.io/managed-by": "forebay"}
    providers = [{"name": "webhook", "endpointsFrom": "Environment", "machines": [{"name": "e", "gpuCount": 1}]}]
    published = f"environment-{HOME}"
    rig.call(
        "POST",
        f"{FOREBAY}/gpunodeclasses",
        {**node_class, "metadata": {"name": published, "labels": ours}, "spec": {"providers": providers}},
    )
    pool = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": "environment", "labels": ours},
        "spec": {"nodeClassRef": {"name": published}},
    }
    rig.call("POST", f"{FOREBAY}/namespaces/{HOME}/gpunodepools", pool)
    rig.call("POST", "/api/v1/nodes", {"metadata": {"name": VIRTUAL_NODE}})
    taint = {"key": STARTUP_TAINT, "value": "uid", "effect": "NoSchedule"}
    rig.call("POST", "/api/v1/nodes", {"metadata": {"name": "kept"}, "spec": {"taints": [taint]}})
    rig.call("POST", LEASES, {"metadata": {"name": VIRTUAL_NODE}, "spec": {}})


def record(rig: Rig, state: str) -> None:
    body = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUInstance",
        "metadata": {"name": "m", "finalizers": ["forebay.dev/instance"]},
        "spec": {"provider": "webhook", "delivers": "Power"},
    }
    with suppress(RigFailed):
        rig.call("POST", f"{FOREBAY}/gpuinstances", body)
    made = rig.call("GET", f"{FOREBAY}/gpuinstances/m")
    rig.call("PUT", f"{FOREBAY}/gpuinstances/m/status", {**made, "status": {"state": state}})


def is_marked(pod: dict[str, Any]) -> bool:
    finalizers, gates = marks(pod)
    requests = {PAUSE_REQUESTED_BY_ANNOTATION, PAUSE_REQUESTED_AT_ANNOTATION} & pod["metadata"].get(
        "annotations", {}
    ).keys()
    return USAGE in finalizers or GATE in gates or bool(requests)


def is_kept(node: dict[str, Any]) -> bool:
    return STARTUP_TAINT in {each["key"] for each in node["spec"].get("taints", ())}


@pytest.mark.helm
@pytest.mark.real_time
@pytest.mark.timeout(180)
def test_the_last_job_frees_the_cluster_with_what_it_may_and_no_more(own_rig):
    account = "forebay-uninstall"
    scene(own_rig)

    record(own_rig, "Ready")
    refused = uninstall(own_rig, account)
    assert refused.returncode == 2
    assert "1 machine may still be on (m)" in refused.stderr
    assert marks(own_rig.call("GET", f"/api/v1/namespaces/{TEAM}/pods/held")) == ([USAGE], [GATE])

    record(own_rig, "Gone")
    # Other tests on this control plane may have left theirs.
    classes = own_rig.call("GET", f"{FOREBAY}/gpunodeclasses")["items"]
    pods = [each for each in own_rig.call("GET", "/api/v1/pods")["items"] if is_marked(each)]
    jobs = own_rig.call("GET", f"/apis/batch/v1/jobs?labelSelector={PAUSED_LABEL}")["items"]
    kept = [each for each in own_rig.call("GET", "/api/v1/nodes")["items"] if is_kept(each)]
    assert "kept" in {each["metadata"]["name"] for each in kept}
    assert "held" in {each["metadata"]["name"] for each in pods}
    assert "paused" in {each["metadata"]["name"] for each in jobs}
    done = uninstall(own_rig, account)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "policies": 10,
        "pods": len(pods),
        "jobs": len(jobs),
        "classes": sum("forebay.dev/nodeclass" in each["metadata"].get("finalizers", ()) for each in classes),
        "records": 1,
        "published": 2,
        "nodes": len(kept),
        "virtual_nodes": 1,
        "machines": [],
    }
    assert marks(own_rig.call("GET", f"/api/v1/namespaces/{TEAM}/pods/held")) == ([], [])
    assert own_rig.call("GET", f"/apis/batch/v1/namespaces/{TEAM}/jobs/paused")["spec"]["suspend"] is False
    for plural in ("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"):
        assert own_rig.call("GET", f"{ADMISSION}/{plural}")["items"] == []
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        left = own_rig.call("GET", f"/apis/admissionregistration.k8s.io/v1/{plural}")["items"]
        assert [each["metadata"]["name"] for each in left if "forebay" in each["metadata"]["name"]] == []
    taints = own_rig.call("GET", "/api/v1/nodes/kept")["spec"].get("taints", [])
    assert STARTUP_TAINT not in {each["key"] for each in taints}
    for path in (f"/api/v1/nodes/{VIRTUAL_NODE}", f"{LEASES}/{VIRTUAL_NODE}"):
        with pytest.raises(RigFailed, match="404"):
            own_rig.call("GET", path)
    for path in (f"{FOREBAY}/gpunodeclasses/leaving", f"{FOREBAY}/gpuinstances/m"):
        own_rig.call("DELETE", path)
        with pytest.raises(RigFailed, match="404"):
            own_rig.call("GET", path)

    asked = audit.entries(own_rig.audit_log, f"system:serviceaccount:{HOME}:{account}")
    assert [each for each in asked if each.refused] == []
    used = {(each.group, each.resource, each.verb) for each in asked}
    granted = {
        (each.group, resource, verb)
        for each in (*UNINSTALL_CLUSTER_PERMISSIONS, *UNINSTALL_NAMESPACE_PERMISSIONS)
        for resource in each.resources
        for verb in each.verbs
    }
    assert granted <= used
    own_rig.call("DELETE", f"/api/v1/namespaces/{TEAM}/pods/held")
