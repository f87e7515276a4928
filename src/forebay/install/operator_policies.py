"""Admission policies that guard the startup taint, and the cluster against a stolen token of Forebay's own."""

from typing import Any, Final

from forebay.api.names import (
    GROUP,
    OPERATOR_NAME,
    OPERATOR_NAMESPACE,
    STARTUP_TAINT,
)
from forebay.install.write_rules import NEW_TOLERATIONS, OLD_TOLERATIONS, OWN_KINDS, WRITE_RULES, WriteRule

Json = dict[str, Any]

API_VERSION: Final = "admissionregistration.k8s.io/v1"
KIND: Final = "ValidatingAdmissionPolicy"
#: Refuses writes of the operator that are not its own kind of change.
WRITES_POLICY: Final = "forebay-operator-writes"
#: Refuses tolerations for the startup taint to everybody but the operator and DaemonSets.
TOLERATION_POLICY: Final = "forebay-startup-toleration"
#: Warns of GPU pods that tolerate every taint.
TOLERATE_ALL_POLICY: Final = "forebay-tolerate-all"
POLICIES: Final = (WRITES_POLICY, TOLERATION_POLICY, TOLERATE_ALL_POLICY)

_LABELS: Final = {"app.kubernetes.io/name": OPERATOR_NAME}

_GROUPS: Final = {
    "nodes": "",
    "pods": "",
    "configmaps": "",
    "secrets": "",
    "jobs": "batch",
    "certificatesigningrequests": "certificates.k8s.io",
    "leases": "coordination.k8s.io",
    "gpunodepools": GROUP,
    **dict.fromkeys(OWN_KINDS, GROUP),
}
_RESOURCE: Final = (
    "request.resource.resource + (request.?subResource.orValue('') == '' ? '' : '/' + request.?subResource.orValue(''))"
)
#: Resources of which the operator also creates and deletes objects.
_WHOLE: Final = (
    "certificatesigningrequests",
    "configmaps",
    "gpunodeclasses",
    "gpunodepools",
    "leases",
    "nodes",
    "pods",
    "pods/binding",
    "secrets",
)


def operator_account(namespace: str = OPERATOR_NAMESPACE, name: str = OPERATOR_NAME) -> str:
    """Username of the operator's ServiceAccount."""
    return f"system:serviceaccount:{namespace}:{name}"


def operator_policies(account: str) -> list[Json]:
    """The policies for the operator that runs as this user, then their bindings."""
    return [
        _writes(account),
        _startup_toleration(account),
        _tolerate_all(),
        _binding(WRITES_POLICY, "Deny"),
        _binding(TOLERATION_POLICY, "Deny"),
        _binding(TOLERATE_ALL_POLICY, "Warn", "Audit"),
    ]


def _writes(account: str) -> Json:
    rules = []
    for group in sorted(set(_GROUPS.values())):
        for operations in (["UPDATE"], ["CREATE", "UPDATE", "DELETE"]):
            found = {each for rule in WRITE_RULES for each in rule.resources if _GROUPS[each.split("/")[0]] == group}
            chosen = sorted(each for each in found if (each in _WHOLE) == (len(operations) > 1))
            if chosen:
                rules.append(_rule(group, operations, chosen))
    validations = [
        {
            "expression": f"!(variables.resource in {list(rule.resources)}) || {_scope(rule)}({rule.expression})",
            "message": f"Forebay's operator may {rule.says} only",
            "reason": "Forbidden",
        }
        for rule in WRITE_RULES
    ]
    policy = _policy(WRITES_POLICY, rules, {"the-operator": f"request.userInfo.username == '{account}'"}, validations)
    policy["spec"]["variables"] = [{"name": "resource", "expression": _RESOURCE}]
    return policy


def _scope(rule: WriteRule) -> str:
    """Which other operations a rule says nothing about: it compares the object with the one before."""
    compared = (
        each for each in rule.resources if _GROUPS[each.partition("/")[0]] == GROUP or each in {"nodes", "pods"}
    )
    compares = not rule.whole and any(compared)
    return "request.operation != 'UPDATE' || " if compares else ""


# DaemonSet pods (drivers, network, device plugins) must run on a node before it is open to others.
_BY_DAEMONSET: Final = (
    "(request.userInfo.username == 'system:serviceaccount:kube-system:daemon-set-controller'"
    # Where controllers have no accounts of their own.
    " || (request.userInfo.username == 'system:kube-controller-manager'"
    " && object.metadata.?ownerReferences.orValue([]).exists(o,"
    " o.kind == 'DaemonSet' && o.?controller.orValue(false))))"
)
_EXTENDED: Final = (
    "{}.?resources.?requests.orValue({{}}).exists(r, r.contains('/')) ||"
    " {}.?resources.?limits.orValue({{}}).exists(r, r.contains('/'))"
)
_TAKES_DEVICES: Final = (
    f"(object.spec.containers.exists(c, {_EXTENDED.format('c', 'c')})"
    f" || object.spec.?initContainers.orValue([]).exists(c, {_EXTENDED.format('c', 'c')})"
    f" || ({_EXTENDED.format('object.spec', 'object.spec')})"
    " || object.spec.?resourceClaims.orValue([]).size() > 0)"
)
_NAMES_TAINT: Final = f"t.?key.orValue('') == '{STARTUP_TAINT}'"
_ANYTHING: Final = "t.?key.orValue('') == '' && t.?operator.orValue('Equal') == 'Exists'"


def _startup_toleration(account: str) -> Json:
    return _policy(
        TOLERATION_POLICY,
        [_rule("", ["CREATE", "UPDATE"], ["pods"])],
        {
            "tolerates-the-startup-taint": f"{NEW_TOLERATIONS}.exists(t, {_NAMES_TAINT})",
            "not-the-operator": f"request.userInfo.username != '{account}'",
        },
        [
            {
                "expression": (
                    f"request.operation == 'CREATE' ? ({_BY_DAEMONSET} && !{_TAKES_DEVICES})"
                    f" : {NEW_TOLERATIONS}.all(t, !({_NAMES_TAINT}) || t in {OLD_TOLERATIONS})"
                ),
                "message": (
                    f"the taint {STARTUP_TAINT} keeps a new node for the pods that it was launched for: only Forebay, "
                    "and DaemonSets whose pods request no devices, may tolerate it. Remove the toleration"
                ),
                "reason": "Forbidden",
            }
        ],
    )


def _tolerate_all() -> Json:
    return _policy(
        TOLERATE_ALL_POLICY,
        [_rule("", ["CREATE"], ["pods"])],
        {
            "tolerates-everything": f"{NEW_TOLERATIONS}.exists(t, {_ANYTHING})",
            "takes-devices": _TAKES_DEVICES,
            "not-of-a-daemonset": f"!{_BY_DAEMONSET}",
        },
        [
            {
                "expression": "false",
                "message": (
                    f"this pod requests devices and tolerates every taint, also {STARTUP_TAINT}: it may take a node "
                    "that was launched for another pod. Name the taints that it tolerates"
                ),
                "reason": "Forbidden",
            }
        ],
        failure="Ignore",
    )


def _rule(group: str, operations: list[str], resources: list[str]) -> Json:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources}


def _policy(
    name: str, rules: list[Json], conditions: dict[str, str], validations: list[Json], failure: str = "Fail"
) -> Json:
    spec = {
        "failurePolicy": failure,
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": each, "expression": expression} for each, expression in conditions.items()],
        "validations": validations,
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name, "labels": dict(_LABELS)}, "spec": spec}


def _binding(policy: str, *actions: str) -> Json:
    return {
        "apiVersion": API_VERSION,
        "kind": f"{KIND}Binding",
        "metadata": {"name": policy, "labels": dict(_LABELS)},
        "spec": {"policyName": policy, "validationActions": list(actions)},
    }
