"""What lets rented machines join: the role of their tokens, and what the operator may do about tokens and certificates.

Machines with a token of Forebay's may request a kubelet's client certificate. The role that has such requests approved
automatically (certificatesigningrequests:nodeclient) is not granted to them: Forebay approves each request itself.
"""

from typing import Any, Final

from forebay.api.names import BOOTSTRAP_GROUP, OPERATOR_NAME, OPERATOR_NAMESPACE, TOKEN_NAMESPACE
from forebay.install.permissions import Permission
from forebay.model.signing_requests import KUBELET_CLIENT_SIGNER

_GROUP: Final = "certificates.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_NAME: Final = f"{OPERATOR_NAME}-join"
_KUBEADM: Final = f"{OPERATOR_NAME}-kubeadm"

#: In the whole cluster.
JOIN_CLUSTER_PERMISSIONS: Final = (
    Permission(
        group=_GROUP,
        resources=("certificatesigningrequests/approval",),
        verbs=("patch",),
        why="approves the request of the expected node, made with its own token",
    ),
    Permission(
        group=_GROUP,
        resources=("signers",),
        names=(KUBELET_CLIENT_SIGNER,),
        verbs=("approve",),
        why="approves client certificates of kubelets, and no others",
    ),
)
#: In the namespace of bootstrap tokens.
JOIN_TOKEN_PERMISSIONS: Final = (
    Permission(
        group="",
        resources=("secrets",),
        verbs=("create", "delete"),
        why="creates a bootstrap token for each machine and deletes it again; cannot read any Secret there",
    ),
)
#: Of machines that join by kubeadm, whatever the cluster grants the tokens of its own: in the whole cluster.
MACHINE_NODE_PERMISSIONS: Final = (
    Permission(group="", resources=("nodes",), verbs=("get",), why="sees whether its name is taken"),
)
#: And in the namespace of kubeadm's ConfigMaps.
MACHINE_CONFIG_PERMISSIONS: Final = (
    Permission(
        group="",
        resources=("configmaps",),
        names=("kubeadm-config", "kubelet-config", "kube-proxy"),
        verbs=("get",),
        why="reads how kubelets of this cluster are configured",
    ),
)


def join_manifests(namespace: str = OPERATOR_NAMESPACE) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": OPERATOR_NAME}
    operator = {"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": namespace}

    def manifest(kind: str, name: str, namespace: str | None = None, **parts: Any) -> dict[str, Any]:
        place = {"namespace": namespace} if namespace else {}
        return {
            "apiVersion": f"{_RBAC}/v1",
            "kind": kind,
            "metadata": {"name": name, **place, "labels": labels},
            **parts,
        }

    def role(kind: str, name: str) -> dict[str, str]:
        return {"apiGroup": _RBAC, "kind": kind, "name": name}

    machines = {"apiGroup": _RBAC, "kind": "Group", "name": BOOTSTRAP_GROUP}
    return [
        manifest(
            "ClusterRoleBinding",
            f"{OPERATOR_NAME}-bootstrap",
            roleRef=role("ClusterRole", "system:node-bootstrapper"),
            subjects=[machines],
        ),
        manifest("Role", _KUBEADM, TOKEN_NAMESPACE, rules=[each.rule() for each in MACHINE_CONFIG_PERMISSIONS]),
        manifest("RoleBinding", _KUBEADM, TOKEN_NAMESPACE, roleRef=role("Role", _KUBEADM), subjects=[machines]),
        manifest("ClusterRole", _KUBEADM, rules=[each.rule() for each in MACHINE_NODE_PERMISSIONS]),
        manifest("ClusterRoleBinding", _KUBEADM, roleRef=role("ClusterRole", _KUBEADM), subjects=[machines]),
        manifest("ClusterRole", _NAME, rules=[each.rule() for each in JOIN_CLUSTER_PERMISSIONS]),
        manifest("ClusterRoleBinding", _NAME, roleRef=role("ClusterRole", _NAME), subjects=[operator]),
        manifest("Role", _NAME, TOKEN_NAMESPACE, rules=[each.rule() for each in JOIN_TOKEN_PERMISSIONS]),
        manifest("RoleBinding", _NAME, TOKEN_NAMESPACE, roleRef=role("Role", _NAME), subjects=[operator]),
    ]
