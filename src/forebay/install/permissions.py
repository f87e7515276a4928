"""The RBAC permissions of the operator, each with the reason why it is needed.

`tests/cluster/test_rbac.py` runs the operator with exactly these on a real API server and reads its audit log: no
request is refused, and no permission is unused.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from forebay.api.names import (
    GATE_POLICY,
    GROUP,
    OPERATOR_LEASE,
    VIRTUAL_NODE,
)
from forebay.install.admission_policies import FINALIZER_POLICY
from forebay.install.operator_policies import POLICIES
from forebay.model.signing_requests import KUBELET_SERVING_SIGNER


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: Resource names; empty: all.
    names: tuple[str, ...] = ()
    #: Shown as a comment in the manifest.
    why: str

    def rule(self) -> dict[str, Any]:
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs), **names}


READS: Final = ("get", "list", "watch")

#: In the whole cluster (ClusterRole).
CLUSTER_PERMISSIONS: Final = (
    Permission(
        group="", resources=("nodes", "pods", "namespaces"), verbs=("list", "watch"), why="observes demand and capacity"
    ),
    Permission(
        group="",
        resources=("nodes",),
        verbs=("patch",),
        why="cordons nodes to drain, syncs labels and taints, reserves new nodes for their pods",
    ),
    Permission(
        group="",
        resources=("nodes",),
        verbs=("delete",),
        why="deletes the Node of a rented machine that is proven gone",
    ),
    Permission(
        group="",
        resources=("pods",),
        verbs=("patch",),
        why="adds tolerations and usage finalizers, removes usage finalizers and budget gates",
    ),
    Permission(
        group="",
        resources=("pods/status",),
        verbs=("patch",),
        why="writes the conditions that say why a pod waits, and that the scheduler refuses its node",
    ),
    Permission(
        group="",
        resources=("pods/eviction",),
        verbs=("create",),
        why="drains nodes and enforces budgets, within PodDisruptionBudgets",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses", "gpunodepools", "gpuinstances", "nodeprovisioners"),
        verbs=("list", "watch"),
        why="reads classes, pools, records and the instance groups to size",
    ),
    Permission(
        group=GROUP,
        resources=("gpuinstances",),
        verbs=("create", "patch", "delete"),
        why="records each machine before it is launched, deletes the record after it is gone",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses",),
        verbs=("patch",),
        why="holds a class with a finalizer while it has machines",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses",),
        verbs=("create", "delete"),
        why="publishes the machines of its environment variables as a class",
    ),
    Permission(
        group=GROUP,
        resources=(
            "gpunodeclasses/status",
            "gpunodepools/status",
            "gpuinstances/status",
            "gpuworkloadbudgets/status",
            "nodeprovisioners/status",
        ),
        verbs=("patch",),
        why="reports status",
    ),
    Permission(group=GROUP, resources=("gpuworkloadbudgets",), verbs=("list", "watch"), why="reads budgets"),
    Permission(
        group="certificates.k8s.io",
        resources=("certificatesigningrequests",),
        verbs=("list", "watch"),
        why="sees the requests of machines that join",
    ),
    Permission(
        group="policy",
        resources=("poddisruptionbudgets",),
        verbs=("list", "watch"),
        why="moves pods to save cost only where all of them may be evicted",
    ),
    Permission(group="events.k8s.io", resources=("events",), verbs=("create", "patch"), why="records events"),
    Permission(
        group="resource.k8s.io",
        resources=("resourceslices", "deviceclasses", "resourceclaims"),
        verbs=("list", "watch"),
        why="counts GPUs that nodes offer, and pods hold, by dynamic resource allocation",
    ),
)

#: In the whole cluster too, unless the operator runs with `--budgets off`.
BUDGET_PERMISSIONS: Final = (
    Permission(
        group=GROUP,
        resources=("gpuworkloadbudgets",),
        verbs=("patch",),
        why="labels budgets for the admission policies",
    ),
    Permission(
        group="batch",
        resources=("jobs",),
        verbs=("list", "watch", "patch"),
        why="suspends Jobs for a budget and resumes them",
    ),
    Permission(
        group="admissionregistration.k8s.io",
        resources=("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        names=(GATE_POLICY,),
        verbs=("get",),
        why="sees whether new pods of used-up budgets are held",
    ),
)

#: In the whole cluster too, where Jobs may run remotely: the operator is the kubelet of one virtual node.
OFFLOAD_PERMISSIONS: Final = (
    Permission(
        group="", resources=("nodes",), verbs=("get", "create"), why="keeps the virtual node of pods that run remotely"
    ),
    Permission(group="", resources=("nodes/status",), verbs=("patch",), why="reports that node as ready"),
    Permission(
        group="", resources=("pods",), verbs=("get", "delete"), why="reads pods that may leave, ends those of that node"
    ),
    Permission(group="", resources=("pods/binding",), verbs=("create",), why="binds pods to that node"),
    Permission(
        group="batch",
        resources=("jobs",),
        verbs=("list", "watch", "patch"),
        why="sees which Jobs may run remotely, and marks those that do",
    ),
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        names=(VIRTUAL_NODE,),
        verbs=("get", "update"),
        why="renews the Lease of that node",
    ),
    # A name cannot be asked of a create: an admission policy does.
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",), why="creates that Lease"),
    Permission(
        group="",
        resources=("configmaps",),
        names=("extension-apiserver-authentication",),
        verbs=("get",),
        why="reads which authority signs the certificates of those who ask that node for logs",
    ),
    Permission(
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        why="asks whether they may",
    ),
    Permission(
        group="certificates.k8s.io",
        resources=("certificatesigningrequests",),
        verbs=("create", "get"),
        why="requests the certificate of that node's port",
    ),
    Permission(
        group="certificates.k8s.io",
        resources=("certificatesigningrequests/approval",),
        verbs=("patch",),
        why="approves that request",
    ),
    Permission(
        group="certificates.k8s.io",
        resources=("signers",),
        names=(KUBELET_SERVING_SIGNER,),
        verbs=("approve",),
        why="approves serving certificates of kubelets; an admission policy allows only its own requests",
    ),
)

#: In the whole cluster too, where metrics or the dashboard are served for token holders.
REVIEW_PERMISSIONS: Final = (
    Permission(
        group="authentication.k8s.io",
        resources=("tokenreviews",),
        verbs=("create",),
        why="asks whose token a reader of metrics or dashboard shows",
    ),
    Permission(
        group="authorization.k8s.io",
        resources=("subjectaccessreviews",),
        verbs=("create",),
        why="asks whether that user may read them",
    ),
)

#: In the operator's own namespace (Role).
NAMESPACE_PERMISSIONS: Final = (
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        names=(OPERATOR_LEASE,),
        verbs=("get", "update"),
        why="elects one leader among the replicas",
    ),
    # A name cannot be asked of a create: an admission policy does.
    Permission(group="coordination.k8s.io", resources=("leases",), verbs=("create",), why="creates that Lease"),
    Permission(
        group="",
        resources=("configmaps",),
        verbs=("list", "create", "patch", "delete"),
        why="stores the ledgers of budgets",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodepools",),
        verbs=("create", "patch", "delete"),
        why="publishes the machines of its environment variables as a pool",
    ),
)


def secrets_permission(names: Sequence[str]) -> Permission:
    """Permission to read these Secrets of the operator's namespace. There must be one: no names would mean all."""
    assert names
    why = "reads the credentials that classes and machines name"
    return Permission(group="", resources=("secrets",), verbs=("get",), names=tuple(names), why=why)


#: In the whole cluster, for the Job of the chart that runs `forebay uninstall`.
UNINSTALL_CLUSTER_PERMISSIONS: Final = (
    Permission(
        group="admissionregistration.k8s.io",
        resources=("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        names=(FINALIZER_POLICY, GATE_POLICY),
        verbs=("delete",),
        why="deletes the admission policies, so that new pods get no finalizer or gate",
    ),
    Permission(
        group="admissionregistration.k8s.io",
        resources=("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        names=POLICIES,
        verbs=("delete",),
        why="deletes the policies that guard pods and nodes",
    ),
    Permission(group="", resources=("pods",), verbs=("list", "patch"), why="removes finalizers and gates from pods"),
    Permission(
        group="batch", resources=("jobs",), verbs=("list", "patch"), why="resumes Jobs that were suspended for a budget"
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses", "gpuinstances"),
        verbs=("list", "patch"),
        why="checks that no machine is on, removes finalizers from classes and records",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses",),
        verbs=("delete",),
        why="deletes the class that shows the machines of environment variables",
    ),
    Permission(group="", resources=("nodes",), verbs=("list", "patch"), why="removes the startup taint from nodes"),
    Permission(
        group="", resources=("nodes",), names=(VIRTUAL_NODE,), verbs=("delete",), why="deletes the node of remote pods"
    ),
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        names=(VIRTUAL_NODE,),
        verbs=("delete",),
        why="deletes the Lease of that node",
    ),
)
#: In the operator's own namespace, for the same Job.
UNINSTALL_NAMESPACE_PERMISSIONS: Final = (
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        names=(OPERATOR_LEASE,),
        verbs=("get", "update"),
        why="takes the Lease, so that no operator acts meanwhile",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodepools",),
        verbs=("list", "delete"),
        why="deletes the pool that shows the machines of environment variables",
    ),
)
