"""Roles and role bindings of the operator, and ClusterRoles of those who read its pages."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET
from forebay.api.names import DASHBOARD_URL, GROUP, METRICS_URL, OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.install.permissions import (
    BUDGET_PERMISSIONS,
    CLUSTER_PERMISSIONS,
    NAMESPACE_PERMISSIONS,
    OFFLOAD_PERMISSIONS,
    READS,
    REVIEW_PERMISSIONS,
    Permission,
    secrets_permission,
)


def rbac_manifests(
    namespace: str = OPERATOR_NAMESPACE,
    secrets: Sequence[str] = (),
    *,
    budgets: bool = True,
    offload: bool = False,
    read_only: bool = False,
) -> list[dict[str, Any]]:
    """Namespace, ServiceAccount, roles and role bindings of the operator, which may read these Secrets only.

    `read_only`: for a dry run, which changes nothing and so needs no permission to.

    `budgets`: whether the operator serves GPUWorkloadBudgets; one that runs with `--budgets off` needs less. `offload`:
    whether Jobs may run remotely, for which it needs more.
    """
    everywhere = (
        *CLUSTER_PERMISSIONS,
        *(BUDGET_PERMISSIONS if budgets else ()),
        *(OFFLOAD_PERMISSIONS if offload else ()),
        *REVIEW_PERMISSIONS,
    )
    at_home = (*NAMESPACE_PERMISSIONS, *((secrets_permission(secrets),) if secrets else ()))
    if read_only:
        everywhere, at_home = _reading(everywhere), _reading(at_home)
    api = "rbac.authorization.k8s.io/v1"
    group = api.partition("/")[0]
    labels = {"app.kubernetes.io/name": OPERATOR_NAME}
    subject = {"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": namespace}

    def manifest(api_version: str, kind: str, *, namespaced: bool, **parts: Any) -> dict[str, Any]:
        place = {"namespace": namespace} if namespaced else {}
        return {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": OPERATOR_NAME, **place, "labels": labels},
            **parts,
        }

    def binding(kind: str, role: str, *, namespaced: bool) -> dict[str, Any]:
        reference = {"apiGroup": group, "kind": role, "name": OPERATOR_NAME}
        return manifest(api, kind, namespaced=namespaced, roleRef=reference, subjects=[subject])

    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},
        manifest("v1", "ServiceAccount", namespaced=True),
        manifest(api, "ClusterRole", namespaced=False, rules=[each.rule() for each in everywhere]),
        binding("ClusterRoleBinding", "ClusterRole", namespaced=False),
        manifest(api, "Role", namespaced=True, rules=[each.rule() for each in at_home]),
        binding("RoleBinding", "Role", namespaced=True),
    ]


def _reading(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """What of the permissions only reads."""
    found = (
        msgspec.structs.replace(each, verbs=tuple(verb for verb in each.verbs if verb in READS)) for each in permissions
    )
    return tuple(each for each in found if each.verbs)


def reader_roles(name: str = OPERATOR_NAME) -> list[dict[str, Any]]:
    """ClusterRoles for those who read the operator's pages, to be bound to a Prometheus or to people."""
    labels = {"app.kubernetes.io/name": OPERATOR_NAME}
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"{name}-{suffix}", "labels": labels},
            "rules": [{"nonResourceURLs": [path], "verbs": ["get"]}],
        }
        for suffix, path in (("metrics-reader", METRICS_URL), ("dashboard-reader", DASHBOARD_URL))
    ]


def view_role(name: str = OPERATOR_NAME) -> dict[str, Any]:
    """A ClusterRole that adds Forebay's kinds to the role `view` of Kubernetes, and so to `edit` and `admin`.

    Not GPUNodeClasses and NodeProvisioners: their URLs may hold secrets, which `view` does not show either.
    """
    kinds = [each.plural for each in (GPU_INSTANCE, GPU_NODE_POOL, GPU_WORKLOAD_BUDGET)]
    aggregated = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"{name}-view", "labels": {"app.kubernetes.io/name": OPERATOR_NAME, **aggregated}},
        "rules": [{"apiGroups": [GROUP], "resources": kinds, "verbs": ["get", "list", "watch"]}],
    }
