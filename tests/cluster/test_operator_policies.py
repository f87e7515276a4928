"""The policies that guard the startup taint, and the cluster against the operator's own token, on a real API server.

Requests are made as tenants and as the operator's account, each with exactly the rights that it has.
"""

import secrets
import time

import pytest

from forebay.api.names import LEDGER_PREFIX, OPERATOR_LEASE, OPERATOR_NAMESPACE, SERVING_REQUEST_PREFIX
from forebay.install.operator_policies import operator_account, operator_policies
from forebay.install.roles import rbac_manifests
from forebay.model.signing_requests import KUBELET_SERVING_SIGNER
from tests.cluster.impersonation import JSON_PATCH, MERGE, STRATEGIC, ask
from tests.cluster.worlds import FOREBAY, RBAC, create, install_operator_policies
from tests.kubelets import new_key, pkcs10, signing_request
from tests.rig import RigFailed

OPERATOR = operator_account()
TENANT = "tenant"
DAEMONSETS = "system:serviceaccount:kube-system:daemon-set-controller"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOME = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases"


@pytest.fixture(scope="module")
def guarded(own_rig):
    """A control plane with the operator's roles and the policies, and a tenant who may everything in `team`."""
    rig = own_rig
    for manifest in rbac_manifests(secrets=("power-api",), offload=True):
        create(rig, manifest)
    install_operator_policies(rig, OPERATOR)
    for namespace in ("team", "kube-system", "kube-node-lease"):
        create(rig, {"kind": "Namespace", "metadata": {"name": namespace}})
        create(rig, {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})
    for user in (TENANT, DAEMONSETS):
        rule = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        name = f"in-team-{secrets.token_hex(2)}"
        rig.call("POST", f"{RBAC}/namespaces/team/roles", {"metadata": {"name": name}, "rules": rule})
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        rig.call("POST", f"{RBAC}/namespaces/team/rolebindings", binding)
    rig.call("POST", "/api/v1/nodes", node("probe"))
    # Policies are noticed after about a second.
    deadline = time.monotonic() + 20
    change = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}}
    while ask(rig, OPERATOR, "PATCH", "/api/v1/nodes/probe?dryRun=All", change, MERGE)[0] != 403:
        assert time.monotonic() < deadline
    deadline = time.monotonic() + 20
    while ask(rig, TENANT, "POST", "/api/v1/namespaces/team/pods?dryRun=All", pod("p", [KEYED]))[0] != 403:
        assert time.monotonic() < deadline
    yield rig
    # Workers that steal each other's tests may come back to this file.
    rig.call("DELETE", "/api/v1/nodes/probe")
    for each in operator_policies(OPERATOR):
        plural = (
            "validatingadmissionpolicybindings" if each["kind"].endswith("Binding") else "validatingadmissionpolicies"
        )
        rig.call("DELETE", f"{ADMISSION}/{plural}/{each['metadata']['name']}")


def node(name, **labels):
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/arch": "amd64", "disk": "ssd", **labels}},
        "spec": {"taints": [{"key": "dedicated", "value": "x", "effect": "NoSchedule"}]},
    }


KEYED = {"key": "forebay.dev/startup", "operator": "Exists"}
ANYTHING = {"operator": "Exists"}
UID = {"key": "forebay.dev/startup", "operator": "Equal", "value": "uid-of-somebody-else"}


def pod(name, tolerations=(), *, gpus=0, **metadata):
    resources = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "containers": [{"name": "main", "image": "work:1", **resources}],
            "tolerations": list(tolerations),
            "automountServiceAccountToken": False,
        },
    }


def named():
    return f"x-{secrets.token_hex(3)}"


PODS = "/api/v1/namespaces/team/pods"


@pytest.mark.parametrize("toleration", [KEYED, UID, {**KEYED, "effect": "NoSchedule"}])
def test_a_tenant_cannot_jump_the_queue(guarded, toleration):
    status, message, _ = ask(guarded, TENANT, "POST", PODS, pod(named(), [toleration], gpus=1))

    assert status == 403
    assert "keeps a new node for the pods that it was launched for" in message
    assert "Remove the toleration" in message


def test_a_tenant_cannot_add_the_toleration_to_a_pod_that_is_there(guarded):
    name = named()
    assert ask(guarded, TENANT, "POST", PODS, pod(name, [{"key": "a", "operator": "Exists"}]))[0] == 201
    add = [{"op": "add", "path": "/spec/tolerations/-", "value": UID}]

    assert ask(guarded, TENANT, "PATCH", f"{PODS}/{name}", add, JSON_PATCH)[0] == 403
    # The operator can, and then the tenant may still change the pod.
    assert ask(guarded, OPERATOR, "PATCH", f"{PODS}/{name}", add, JSON_PATCH)[0] == 200
    label = {"metadata": {"labels": {"a": "b"}}}
    assert ask(guarded, TENANT, "PATCH", f"{PODS}/{name}", label, MERGE)[0] == 200


def test_daemonsets_may_tolerate_the_startup_taint_unless_they_take_devices(guarded):
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}

    agent = pod(named(), [KEYED], ownerReferences=[owner])
    assert ask(guarded, DAEMONSETS, "POST", PODS, agent)[0] == 201
    assert ask(guarded, DAEMONSETS, "POST", PODS, pod(named(), [KEYED], gpus=1, ownerReferences=[owner]))[0] == 403
    # Who only says that a DaemonSet owns the pod is no DaemonSet controller.
    assert ask(guarded, TENANT, "POST", PODS, pod(named(), [KEYED], ownerReferences=[owner]))[0] == 403


def test_pods_that_tolerate_everything_are_let_in_and_told_if_they_take_devices(guarded):
    status, _, quiet = ask(guarded, TENANT, "POST", PODS, pod(named(), [ANYTHING]))
    assert (status, quiet) == (201, "")

    status, _, warning = ask(guarded, TENANT, "POST", PODS, pod(named(), [ANYTHING], gpus=1))
    assert status == 201
    assert "it may take a node that was launched for another pod" in warning


def test_other_pods_are_nobodys_business(guarded):
    assert (
        ask(guarded, TENANT, "POST", PODS, pod(named(), [{"key": "nvidia.com/gpu", "operator": "Exists"}], gpus=1))[0]
        == 201
    )


TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
#: The API server adds the second to a new node.
GIVEN = [TAINT, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
STARTUP = {"key": "forebay.dev/startup", "value": "uid", "effect": "NoSchedule"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "forebay", "effect": "NoExecute"}
NODE_CHANGES = {
    # What the operator does.
    "cordons": (200, {"spec": {"unschedulable": True}, "metadata": {"annotations": {"forebay.dev/cordoned": "now"}}}),
    "labels": (200, {"metadata": {"labels": {"forebay.dev/nodepool": "a", "tgp.io/nodepool": "a", "team": "b"}}}),
    "well-known labels": (200, {"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}}),
    "a pool's annotations": (
        200,
        {"metadata": {"annotations": {"example.com/team": "a", "forebay.dev/annotated": "1"}}},
    ),
    "reserves": (200, {"spec": {"taints": [*GIVEN, STARTUP]}}),
    "a pool's taint": (200, {"spec": {"taints": [*GIVEN, {"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}}),
    "a startup taint, as it is not ready": (200, {"spec": {"taints": [*GIVEN, {"key": "a", "effect": "NoExecute"}]}}),
    "out of service, as it is not ready": (200, {"spec": {"taints": [*GIVEN, OUT_OF_SERVICE]}}),
    # What a thief of its token would like to do.
    "out of service by another's hand": (
        403,
        {"spec": {"taints": [*GIVEN, {**OUT_OF_SERVICE, "value": "nodeshutdown"}]}},
    ),
    "takes another's taint away": (403, {"spec": {"taints": GIVEN[1:]}}),
    "takes the cluster's taint away": (403, {"spec": {"taints": [TAINT]}}),
    "changes another's taint": (403, {"spec": {"taints": [GIVEN[1], {**TAINT, "value": "y"}]}}),
    "makes a control plane": (403, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    "grants trust": (403, {"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}),
    "changes a well-known label": (403, {"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}}),
    "changes another's label": (403, {"metadata": {"labels": {"disk": "hdd"}}}),
    "removes another's label": (403, {"metadata": {"labels": {"disk": None}}}),
    "annotates": (403, {"metadata": {"annotations": {"kubeadm.alpha.kubernetes.io/cri-socket": "x"}}}),
    "a finalizer": (403, {"metadata": {"finalizers": ["forebay.dev/usage"]}}),
    "an owner, for the garbage collector to delete it": (
        403,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}},
    ),
    "a provider id": (403, {"spec": {"providerID": "aws://x"}}),
}


@pytest.mark.parametrize("story", NODE_CHANGES)
def test_the_operators_changes_of_nodes(guarded, story):
    expected, change = NODE_CHANGES[story]
    name = named()
    guarded.call("POST", "/api/v1/nodes", node(name))

    status, message, _ = ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{name}", change, MERGE)

    assert status == expected, message
    assert ("Forebay's operator may" in message) == (expected == 403)


def test_the_operator_opens_a_node_and_uncordons_what_it_cordoned_only(guarded):
    ours, theirs, master = named(), named(), named()
    cordon = {"unschedulable": True, "taints": [TAINT, STARTUP, OUT_OF_SERVICE]}
    annotated = {"metadata": {"name": ours, "annotations": {"forebay.dev/cordoned": "now"}}, "spec": cordon}
    guarded.call("POST", "/api/v1/nodes", annotated)
    guarded.call("POST", "/api/v1/nodes", {"metadata": {"name": theirs}, "spec": cordon})
    guarded.call("POST", "/api/v1/nodes", node(master, **{"node-role.kubernetes.io/control-plane": ""}))
    uncordon = {"spec": {"unschedulable": None, "taints": [TAINT]}, "metadata": {"annotations": None}}

    # The API server keeps its own taint for a cordon.
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{theirs}", uncordon, MERGE)[0] == 403
    removed = [{"op": "remove", "path": "/spec/taints/2"}, {"op": "remove", "path": "/spec/taints/1"}]
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{ours}", removed, JSON_PATCH)[0] == 200
    free = {"spec": {"unschedulable": None}, "metadata": {"annotations": {"forebay.dev/cordoned": None}}}
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{ours}", free, MERGE)[0] == 200
    label = {"metadata": {"labels": {"forebay.dev/nodepool": "a"}}}
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{master}", label, MERGE)[0] == 403


@pytest.mark.parametrize("taint", [OUT_OF_SERVICE, {"key": "a", "effect": "NoExecute"}])
def test_nobody_is_evicted_from_a_node_that_is_ready(guarded, taint):
    name = named()
    guarded.call("POST", "/api/v1/nodes", node(name))
    ready = node(name) | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    guarded.call("PUT", f"/api/v1/nodes/{name}/status", ready)
    change = {"spec": {"taints": [*GIVEN, taint]}}

    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{name}", change, MERGE)[0] == 403


POD_CHANGES = {
    # What the operator does.
    "counts": (200, {"metadata": {"finalizers": ["a.dev/b", "forebay.dev/usage"]}}),
    "tolerates one startup taint": (200, [{"op": "add", "path": "/spec/tolerations/-", "value": UID}]),
    "opens the gate": (200, {"spec": {"schedulingGates": [{"$patch": "delete", "name": "forebay.dev/budget"}]}}),
    "annotates": (200, {"metadata": {"annotations": {"forebay.dev/paused-by": "b"}}}),
    "annotates as the predecessor": (200, {"metadata": {"annotations": {"budget.zxuhan.dev/paused-by": "b"}}}),
    # What a thief would like.
    "changes the image": (403, {"spec": {"containers": [{"name": "main", "image": "evil:1"}]}}),
    "shortens its life": (403, {"spec": {"activeDeadlineSeconds": 1}}),
    "another's finalizer": (403, {"metadata": {"finalizers": ["a.dev/b", "evil.dev/stay"]}}),
    "frees another's finalizer": (403, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.dev/b"]}}),
    "another's gate": (403, {"spec": {"schedulingGates": [{"$patch": "delete", "name": "a.dev/gate"}]}}),
    "tolerates everything": (403, [{"op": "add", "path": "/spec/tolerations/-", "value": ANYTHING}]),
    "tolerates every startup taint": (403, [{"op": "add", "path": "/spec/tolerations/-", "value": KEYED}]),
    "moves it into a Service": (403, {"metadata": {"labels": {"app": "bank"}}}),
    "annotates for others": (403, {"metadata": {"annotations": {"a.dev/b": "c"}}}),
    "sends it elsewhere": (403, {"spec": {"nodeSelector": {"disk": "ssd"}}}),
    "an owner": (
        403,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}},
    ),
}
STATUS_CHANGES = {
    "its condition": (200, {"status": {"conditions": [{"type": "forebay.dev/Refused", "status": "True"}]}}),
    "nominates it": (403, {"status": {"nominatedNodeName": "n"}}),
    "says that it runs": (403, {"status": {"phase": "Running"}}),
    "another's condition": (403, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    "an address": (403, {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
    "a finalizer by the back door": (403, {"metadata": {"finalizers": ["a.dev/b", "evil.dev/stay"]}}),
    "a label by the back door": (403, {"metadata": {"labels": {"app": "bank"}}}),
}


@pytest.mark.parametrize(
    ("suffix", "story"), [("", each) for each in POD_CHANGES] + [("/status", each) for each in STATUS_CHANGES]
)
def test_the_operators_changes_of_pods(guarded, suffix, story):
    expected, change = (STATUS_CHANGES if suffix else POD_CHANGES)[story]
    name = named()
    made = pod(name, labels={"app": "shop"}, finalizers=["a.dev/b"])
    made["spec"]["schedulingGates"] = [{"name": "a.dev/gate"}, {"name": "forebay.dev/budget"}]
    guarded.call("POST", PODS, made)
    content = JSON_PATCH if isinstance(change, list) else STRATEGIC

    status, message, _ = ask(guarded, OPERATOR, "PATCH", f"{PODS}/{name}{suffix}", change, content)

    assert status == expected, message
    assert ("Forebay's operator may" in message) == (expected == 403)


JOB_CHANGES = {
    "suspends": (
        200,
        {
            "metadata": {"labels": {"forebay.dev/paused": "true"}, "annotations": {"forebay.dev/paused-by": "b"}},
            "spec": {"suspend": False},
        },
    ),
    "more of it": (403, {"spec": {"parallelism": 100}}),
    "another image": (403, {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
    "another's label": (403, {"metadata": {"labels": {"a": "b"}}}),
    "a finalizer": (403, {"metadata": {"finalizers": ["a.dev/b"]}}),
    "marks it as remote": (200, {"metadata": {"annotations": {"runpod.io/offloaded": "true"}}}),
    "sends it away": (403, {"metadata": {"annotations": {"runpod.io/managed": "true"}}}),
}


@pytest.mark.parametrize("story", JOB_CHANGES)
def test_the_operators_changes_of_jobs(guarded, story):
    expected, change = JOB_CHANGES[story]
    name = named()
    template = {"spec": {**pod(name)["spec"], "restartPolicy": "Never"}}
    jobs = "/apis/batch/v1/namespaces/team/jobs"
    guarded.call("POST", jobs, {"metadata": {"name": name}, "spec": {"suspend": True, "template": template}})

    status, message, _ = ask(guarded, OPERATOR, "PATCH", f"{jobs}/{name}", change, MERGE)

    assert status == expected, message


def test_the_operators_changes_of_its_own_kinds(guarded):
    name = named()
    provider = {"name": "simulated"}
    made = {"apiVersion": "forebay.dev/v1alpha1", "kind": "GPUNodeClass", "metadata": {"name": name}}
    guarded.call("POST", f"{FOREBAY}/gpunodeclasses", {**made, "spec": {"providers": [provider]}})
    path = f"{FOREBAY}/gpunodeclasses/{name}"

    def patched(change):
        return ask(guarded, OPERATOR, "PATCH", path, change, MERGE)[0]

    assert patched({"metadata": {"finalizers": ["forebay.dev/nodeclass"]}}) == 200
    assert patched({"metadata": {"finalizers": ["forebay.dev/nodeclass", "a.dev/b"]}}) == 403
    assert patched({"spec": {"allowedNamespaces": {}}}) == 403
    assert patched({"metadata": {"finalizers": None}}) == 200


def test_the_operator_writes_its_ledgers_and_its_lease_and_reads_the_secrets_that_were_named(guarded):
    ledger = {"metadata": {"name": f"{LEDGER_PREFIX}-a-gpu-hours-000000"}}
    other = {"metadata": {"name": "kube-root-ca.crt"}}
    guarded.call("POST", f"{HOME}/configmaps", {"metadata": {"name": "settings"}})

    assert ask(guarded, OPERATOR, "POST", f"{HOME}/configmaps", ledger)[0] == 201
    assert ask(guarded, OPERATOR, "DELETE", f"{HOME}/configmaps/{ledger['metadata']['name']}")[0] == 200
    assert ask(guarded, OPERATOR, "POST", f"{HOME}/configmaps", other)[0] == 403
    assert ask(guarded, OPERATOR, "POST", f"{HOME}/configmaps", {"metadata": {"generateName": "x"}})[0] == 403
    assert ask(guarded, OPERATOR, "PATCH", f"{HOME}/configmaps/settings", {"data": {"a": "b"}}, MERGE)[0] == 403
    assert ask(guarded, OPERATOR, "DELETE", f"{HOME}/configmaps/settings")[0] == 403
    lease = {"metadata": {"name": OPERATOR_LEASE}, "spec": {"holderIdentity": "a"}}
    # Another story on the same server may have left it, and none is to find ours.
    made = ask(guarded, OPERATOR, "POST", LEASES, lease)[0]
    assert made in {201, 409}
    if made == 201:
        guarded.call("DELETE", f"{LEASES}/{OPERATOR_LEASE}")
    assert ask(guarded, OPERATOR, "POST", LEASES, {"metadata": {"name": "other"}})[0] == 403
    assert ask(guarded, OPERATOR, "GET", f"{HOME}/secrets/other")[0] == 403
    # It may be read, and is not there.
    assert ask(guarded, OPERATOR, "GET", f"{HOME}/secrets/power-api")[0] == 404


VIRTUAL = "runpod-virtual-node"
REMOTE_CHANGES = {
    # What a kubelet does, and its marks.
    ("", "marks"): (200, {"metadata": {"labels": {"runpod.io/managed": "true", "runpod.io/pod-id": "p1"}}}),
    ("", "annotates"): (200, {"metadata": {"annotations": {"runpod.io/external": "true", "runpod.io/pod-id": "p1"}}}),
    ("", "tolerates for ever"): (200, [{"op": "remove", "path": "/spec/tolerations/0/tolerationSeconds"}]),
    ("/status", "says that it runs"): (200, {"status": {"phase": "Running"}}),
    ("/status", "says that it is ready"): (200, {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
    # What a thief would like.
    ("", "moves it into a Service"): (403, {"metadata": {"labels": {"app": "bank"}}}),
    ("", "changes the image"): (403, {"spec": {"containers": [{"name": "main", "image": "evil:1"}]}}),
    ("", "tolerates everything"): (403, [{"op": "add", "path": "/spec/tolerations/-", "value": ANYTHING}]),
}  # fmt: skip


@pytest.mark.parametrize(("suffix", "story"), REMOTE_CHANGES)
def test_the_operators_changes_of_remote_pods(guarded, suffix, story):
    expected, change = REMOTE_CHANGES[suffix, story]
    name = named()
    limited = {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    guarded.call("POST", PODS, pod(name, [limited]))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": VIRTUAL},
    }
    elsewhere = {**binding, "target": {"kind": "Node", "name": "probe"}}
    assert ask(guarded, OPERATOR, "DELETE", f"{PODS}/{name}")[0] == 403
    assert ask(guarded, OPERATOR, "POST", f"{PODS}/{name}/binding", elsewhere)[0] == 403
    bound, message, _ = ask(guarded, OPERATOR, "POST", f"{PODS}/{name}/binding", binding)
    assert bound == 201, message

    content = JSON_PATCH if isinstance(change, list) else STRATEGIC
    status, message, _ = ask(guarded, OPERATOR, "PATCH", f"{PODS}/{name}{suffix}", change, content)

    assert status == expected, message
    assert ask(guarded, OPERATOR, "DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")[0] == 200


def test_the_operator_keeps_the_virtual_node_and_no_other(guarded):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    lease = {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}}

    assert ask(guarded, OPERATOR, "POST", "/api/v1/nodes", node(named()))[0] == 403
    assert ask(guarded, OPERATOR, "PATCH", "/api/v1/nodes/probe/status", ready, STRATEGIC)[0] == 403
    status, message, _ = ask(guarded, OPERATOR, "POST", "/api/v1/nodes", node(VIRTUAL))
    assert status == 201, message
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{VIRTUAL}/status", ready, STRATEGIC)[0] == 200
    label = {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}}
    assert ask(guarded, OPERATOR, "PATCH", f"/api/v1/nodes/{VIRTUAL}", label, MERGE)[0] == 200
    assert ask(guarded, OPERATOR, "POST", leases, {"metadata": {"name": VIRTUAL}, **lease})[0] == 201
    assert ask(guarded, OPERATOR, "POST", leases, {"metadata": {"name": "probe"}, **lease})[0] == 403
    # No garbage collector runs here, and the story of the uninstall makes its own of both.
    guarded.call("DELETE", f"{leases}/{VIRTUAL}")
    guarded.call("DELETE", f"/api/v1/nodes/{VIRTUAL}")


def test_the_operator_gets_a_certificate_for_its_port_and_approves_no_other(guarded):
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    approval = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "x", "message": "y"}]}}

    def request(name, signer=KUBELET_SERVING_SIGNER):
        usages = ["digital signature", "server auth" if signer == KUBELET_SERVING_SIGNER else "client auth"]
        made = signing_request(name, pkcs10("somebody", new_key(), names=("somebody",)), usages=usages)
        return {**made, "spec": {**made["spec"], "signerName": signer}}

    def approve(name):
        return ask(guarded, OPERATOR, "PATCH", f"{requests}/{name}/approval", approval, MERGE)[0]

    own, foreign = f"{SERVING_REQUEST_PREFIX}-{secrets.token_hex(3)}", named()
    assert ask(guarded, OPERATOR, "POST", requests, request(own))[0] == 201
    assert approve(own) == 200
    assert ask(guarded, OPERATOR, "POST", requests, request(named()))[0] == 403
    client = request(f"{SERVING_REQUEST_PREFIX}-{secrets.token_hex(3)}", "kubernetes.io/kube-apiserver-client-kubelet")
    assert ask(guarded, OPERATOR, "POST", requests, client)[0] == 403
    guarded.call("POST", requests, request(foreign))
    assert approve(foreign) == 403


def test_nobody_else_is_concerned(guarded):
    name = named()
    guarded.call("POST", "/api/v1/nodes", node(name))

    with pytest.raises(RigFailed, match="404"):
        guarded.call("DELETE", f"{PODS}/nothing")
    found = guarded.call("GET", f"/api/v1/nodes/{name}")
    found["metadata"]["labels"]["node-role.kubernetes.io/worker"] = ""
    guarded.call("PUT", f"/api/v1/nodes/{name}", found)


@pytest.mark.parametrize(
    ("path", "spec", "changed"),
    [
        (
            f"{FOREBAY}/gpunodeclasses",
            {
                "providers": [
                    {"name": "webhook", "endpointsFrom": "Environment", "machines": [{"name": "m", "gpuCount": 1}]}
                ]
            },
            {"limits": {"maxNodes": 1}},
        ),
        (
            f"{FOREBAY}/namespaces/forebay-system/gpunodepools",
            {"nodeClassRef": {"name": "environment"}},
            {"weight": 99},
        ),
    ],
)
def test_the_operator_creates_changes_and_deletes_only_what_shows_its_environment(guarded, path, spec, changed):
    own, theirs = named(), named()
    label = {"forebay.dev/environment": "forebay-system"}
    header = {"apiVersion": "forebay.dev/v1alpha1", "kind": "GPUNodeClass" if "classes" in path else "GPUNodePool"}
    mine = {**header, "metadata": {"name": own, "labels": label}, "spec": spec}
    users = {**header, "metadata": {"name": theirs}, "spec": spec}

    assert ask(guarded, OPERATOR, "POST", path, users)[0] == 403
    assert ask(guarded, OPERATOR, "POST", path, mine)[0] == 201
    guarded.call("POST", path, users)
    change = {"spec": changed}
    assert ask(guarded, OPERATOR, "PATCH", f"{path}/{own}", change, MERGE)[0] == 200
    assert ask(guarded, OPERATOR, "PATCH", f"{path}/{theirs}", change, MERGE)[0] == 403
    assert ask(guarded, OPERATOR, "PATCH", f"{path}/{theirs}", {"metadata": {"labels": label}}, MERGE)[0] == 403
    assert ask(guarded, OPERATOR, "DELETE", f"{path}/{theirs}")[0] == 403
    assert ask(guarded, OPERATOR, "DELETE", f"{path}/{own}")[0] == 200
    guarded.call("DELETE", f"{path}/{theirs}")
