"""What the operator may do in a cluster: each permission with the reason it is needed. No more is asked for.

`tests/cluster/test_rbac.py` runs the operator with exactly these on a real API server and reads its audit log: none is
refused, none is unused.
"""

from typing import Any, Final

import msgspec

from forebay.api.names import GROUP, OPERATOR_LEASE, OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.install.admission_policies import FINALIZER_POLICY, GATE_POLICY


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    #: Only these; none: all.
    names: tuple[str, ...] = ()
    #: Shown as a comment in the manifest.
    why: str

    def rule(self) -> dict[str, Any]:
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs), **names}


#: In the whole cluster.
EVERYWHERE: Final = (
    Permission(
        group="", resources=("nodes", "pods", "namespaces"), verbs=("list", "watch"), why="sees demand and capacity"
    ),
    Permission(
        group="", resources=("nodes",), verbs=("patch",), why="cordons nodes that go, opens nodes that are ready"
    ),
    Permission(
        group="",
        resources=("pods",),
        verbs=("patch",),
        why="lets pods through to their node, keeps them until their time is recorded, ends their wait for a budget",
    ),
    Permission(group="", resources=("pods/status",), verbs=("patch",), why="nominates pods to the node meant for them"),
    Permission(
        group="",
        resources=("pods/eviction",),
        verbs=("create",),
        why="drains and enforces budgets, as disruption budgets allow",
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses", "gpunodepools", "gpuinstances"),
        verbs=("list", "watch"),
        why="reads what users want and what it has",
    ),
    Permission(
        group=GROUP,
        resources=("gpuinstances",),
        verbs=("create", "patch", "delete"),
        why="writes down each machine before it asks for it, and lets go when nothing is left",
    ),
    Permission(
        group=GROUP, resources=("gpunodeclasses",), verbs=("patch",), why="keeps a class from going before its machines"
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses/status", "gpunodepools/status", "gpuinstances/status", "gpuworkloadbudgets/status"),
        verbs=("patch",),
        why="says how they stand",
    ),
    Permission(
        group=GROUP,
        resources=("gpuworkloadbudgets",),
        verbs=("list", "watch", "patch"),
        why="reads what pods may use, and labels budgets for its admission policies",
    ),
    Permission(
        group="batch",
        resources=("jobs",),
        verbs=("list", "watch", "patch"),
        why="suspends Jobs for a budget, and resumes them",
    ),
    Permission(
        group="events.k8s.io", resources=("events",), verbs=("create", "patch"), why="tells users what it did, and why"
    ),
)

#: In the operator's own namespace.
AT_HOME: Final = (
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        verbs=("create", "get", "update"),
        why="elects one leader among its replicas",
    ),
    Permission(
        group="",
        resources=("configmaps",),
        verbs=("list", "create", "patch", "delete"),
        why="keeps the ledgers of budgets",
    ),
    Permission(
        group="",
        resources=("secrets",),
        verbs=("get",),
        why="reads the credentials that classes and machines name, when they are used",
    ),
)

#: Of whoever runs `forebay uninstall`: the chart's last Job.
TO_UNINSTALL: Final = (
    Permission(
        group="admissionregistration.k8s.io",
        resources=("mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
        names=(FINALIZER_POLICY, GATE_POLICY),
        verbs=("delete",),
        why="ends the marking of new pods",
    ),
    Permission(group="", resources=("pods",), verbs=("list", "patch"), why="takes finalizers and gates off pods"),
    Permission(
        group="batch", resources=("jobs",), verbs=("list", "patch"), why="lets Jobs go on that waited for a budget"
    ),
    Permission(
        group=GROUP,
        resources=("gpunodeclasses", "gpuinstances"),
        verbs=("list", "patch"),
        why="sees that no machine is on, and lets classes and records be deleted",
    ),
)
TO_UNINSTALL_AT_HOME: Final = (
    Permission(
        group="coordination.k8s.io",
        resources=("leases",),
        names=(OPERATOR_LEASE,),
        verbs=("get", "update"),
        why="halts operators while it is at work",
    ),
)


def rbac_manifests(namespace: str = OPERATOR_NAMESPACE) -> list[dict[str, Any]]:
    """The operator's namespace, its account, and the roles bound to it."""
    api = "rbac.authorization.k8s.io/v1"
    group = api.partition("/")[0]
    labels = {"app.kubernetes.io/name": OPERATOR_NAME}
    subject = {"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": namespace}

    def made(api_version: str, kind: str, *, at_home: bool, **parts: Any) -> dict[str, Any]:
        home = {"namespace": namespace} if at_home else {}
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": OPERATOR_NAME, **home, "labels": labels},
            **parts,
        }

    def bound(kind: str, role: str, *, at_home: bool) -> dict[str, Any]:
        reference = {"apiGroup": group, "kind": role, "name": OPERATOR_NAME}
        return made(api, kind, at_home=at_home, roleRef=reference, subjects=[subject])

    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        made("v1", "ServiceAccount", at_home=True),
        made(api, "ClusterRole", at_home=False, rules=[each.rule() for each in EVERYWHERE]),
        bound("ClusterRoleBinding", "ClusterRole", at_home=False),
        made(api, "Role", at_home=True, rules=[each.rule() for each in AT_HOME]),
        bound("RoleBinding", "Role", at_home=True),
    ]
