"""What the operator's own account may write, field by field: RBAC cannot say which fields of a pod may be patched.

What is not listed in `WRITE_RULES` is refused. To let the operator write something new, extend the rules of its
resource, and tests/cluster/test_operator_policies.py, which tries both sides of every rule on a real API server.
"""

from typing import Final

import msgspec

from forebay.api.names import (
    BUDGET_GATE,
    CLASS_FINALIZER,
    CORDONED_ANNOTATION,
    ENVIRONMENT_LABEL,
    EXTERNAL_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    GROUP,
    INSTANCE_LABEL,
    KUBERNETES_DOMAINS,
    LEDGER_PREFIX,
    MANAGED_MARK,
    OFFLOADED_ANNOTATION,
    OPERATOR_LEASE,
    OUT_OF_SERVICE_TAINT,
    OUT_OF_SERVICE_VALUE,
    PAUSE_REQUESTED_AT_ANNOTATION,
    PAUSE_REQUESTED_BY_ANNOTATION,
    PREDECESSOR_PREFIX,
    REMOTE_COST_ANNOTATION,
    REMOTE_ID_MARK,
    RETRY_AFTER_ANNOTATION,
    SERVING_REQUEST_PREFIX,
    STARTUP_TAINT,
    USAGE_FINALIZER,
    VIRTUAL_NODE,
    WELL_KNOWN_LABELS,
)
from forebay.model.signing_requests import KUBELET_SERVING_SIGNER

_OURS: Final = f"k.startsWith('{GROUP}/')"


class WriteRule(msgspec.Struct, frozen=True):
    """One thing that a write of the operator must hold to. `says` completes "Forebay's operator may ... only"."""

    #: With the subresource: `pods/status`.
    resources: tuple[str, ...]
    expression: str
    says: str
    #: Whether the rule also holds where an object of such a resource is created or deleted.
    whole: bool = False


def _same(*paths: str) -> str:
    """That fields are as they were, present or not. The last name of each path may be absent."""
    pairs = ((".".join(("object", *path.split(".")[:-1])), path.rpartition(".")[2]) for path in paths)
    return " && ".join(f"{parent}.?{name} == oldO{parent[1:]}.?{name}" for parent, name in pairs)


def _map_changes(name: str, added: str, changed: str, removed: str) -> str:
    """Which entries of `metadata.<name>` may be added, changed and removed, as expressions of their key `k`."""
    new, old = (f"{each}.metadata.?{name}.orValue({{}})" for each in ("object", "oldObject"))
    kept = f"k in {old} ? {new}[k] == {old}[k] || {changed} : {added}"
    return f"{new}.all(k, {kept}) && {old}.all(k, k in {new} || {removed})"


def _only_finalizer(name: str) -> str:
    new, old = (f"{each}.metadata.?finalizers.orValue([])" for each in ("object", "oldObject"))
    return f"{new}.all(f, f in {old} || f == '{name}') && {old}.all(f, f in {new} || f == '{name}')"


#: Marks of remote pods and their Jobs that users of the RunPod Job controller know.
_REMOTE_MARKS: Final = [
    EXTERNAL_ANNOTATION,
    REMOTE_ID_MARK,
    REMOTE_COST_ANNOTATION,
    OFFLOADED_ANNOTATION,
    FAILURE_COUNT_ANNOTATION,
    RETRY_AFTER_ANNOTATION,
]
_OWN_ANNOTATIONS: Final = [PAUSE_REQUESTED_BY_ANNOTATION, PAUSE_REQUESTED_AT_ANNOTATION, *_REMOTE_MARKS]
_OWN_ANNOTATION: Final = f"({_OURS} || k in {_OWN_ANNOTATIONS})"
_OWN_LABEL: Final = f"({_OURS} || k.startsWith('{PREDECESSOR_PREFIX}'))"
_NEW_NODE_LABEL: Final = f"(!k.matches('{KUBERNETES_DOMAINS}') || k in {list(WELL_KNOWN_LABELS)})"
_NEW_TAINTS: Final = "object.spec.?taints.orValue([])"
_OLD_TAINTS: Final = "oldObject.spec.?taints.orValue([])"
_IN: Final = "{}.exists(o, o.key == t.key && o.effect == t.effect && o.?value.orValue('') == t.?value.orValue(''))"
_OUT_OF_SERVICE: Final = f"(t.key == '{OUT_OF_SERVICE_TAINT}' && t.?value.orValue('') == '{OUT_OF_SERVICE_VALUE}')"
_NOT_READY: Final = "!object.?status.?conditions.orValue([]).exists(c, c.type == 'Ready' && c.status == 'True')"
NEW_TOLERATIONS: Final = "object.spec.?tolerations.orValue([])"
OLD_TOLERATIONS: Final = "oldObject.spec.?tolerations.orValue([])"
#: That the pod runs remotely: the operator is its kubelet.
_REMOTE: Final = f"oldObject.spec.?nodeName.orValue('') == '{VIRTUAL_NODE}'"
_REMOTE_LABEL: Final = f"k in {[MANAGED_MARK, REMOTE_ID_MARK]}"
_SAME_BUT_SECONDS: Final = "o.?key == t.?key && o.?operator == t.?operator && o.?value == t.?value"
_FOREIGN_CONDITIONS: Final = f"{{}}.?status.?conditions.orValue([]).filter(c, !c.type.startsWith('{GROUP}/'))"

#: That the object shows the machines of the operator's environment variables, and is not a user's own.
_PUBLISHED: Final = (
    f"'{ENVIRONMENT_LABEL}' in (request.operation == 'CREATE' ? object : oldObject).metadata.?labels.orValue({{}})"
)

NODES: Final = ("nodes",)
PODS: Final = ("pods",)
POD_STATUS: Final = ("pods/status",)
JOBS: Final = ("jobs",)
OWN_KINDS: Final = ("gpunodeclasses", "gpuworkloadbudgets")

#: What the operator may write, besides status of its own kinds, GPUInstances, events and evictions.
WRITE_RULES: Final = (
    WriteRule(
        NODES,
        "!('node-role.kubernetes.io/control-plane' in oldObject.metadata.?labels.orValue({}))",
        "change nodes that are not of the control plane",
    ),
    WriteRule(
        NODES,
        f"object.metadata.name == '{VIRTUAL_NODE}' || ({_map_changes('labels', _NEW_NODE_LABEL, _OWN_LABEL, 'false')})",
        f"add labels to nodes (of kubernetes.io and k8s.io: {', '.join(WELL_KNOWN_LABELS)}) and change labels under "
        f"{GROUP}/ and {PREDECESSOR_PREFIX}",
    ),
    WriteRule(
        NODES,
        f"{_OLD_TAINTS}.all(t, t.key.startsWith('{GROUP}/') || {_OUT_OF_SERVICE} || {_IN.format(_NEW_TAINTS)})",
        f"remove taints under {GROUP}/ and its own {OUT_OF_SERVICE_TAINT} from nodes",
    ),
    WriteRule(
        NODES,
        f"{_NEW_TAINTS}.all(t, {_IN.format(_OLD_TAINTS)} || t.effect != 'NoExecute'"
        f" || ({_NOT_READY} && (t.key != '{OUT_OF_SERVICE_TAINT}' || {_OUT_OF_SERVICE})))",
        f"add taints that evict pods (NoExecute; {OUT_OF_SERVICE_TAINT} with the value {OUT_OF_SERVICE_VALUE}) to "
        "nodes that are not ready",
    ),
    WriteRule(
        NODES,
        "object.spec.?unschedulable.orValue(false) || !oldObject.spec.?unschedulable.orValue(false)"
        f" || '{CORDONED_ANNOTATION}' in oldObject.metadata.?annotations.orValue({{}})",
        "uncordon nodes that it cordoned",
    ),
    WriteRule(
        NODES,
        _same("spec.providerID", "spec.podCIDR", "spec.podCIDRs", "spec.configSource", "metadata.finalizers"),
        "change labels, taints and the cordon of nodes",
    ),
    WriteRule(
        (*PODS, *POD_STATUS),
        _only_finalizer(USAGE_FINALIZER),
        f"add and remove the finalizer {USAGE_FINALIZER} of pods",
    ),
    WriteRule(
        (*PODS, *POD_STATUS),
        f"{_same('metadata.labels')} || ({_REMOTE} && {_map_changes('labels', _REMOTE_LABEL, _REMOTE_LABEL, 'false')})",
        f"read the labels of pods, and mark remote ones ({MANAGED_MARK}, {REMOTE_ID_MARK})",
    ),
    WriteRule(
        PODS,
        f"request.operation != 'DELETE' || {_REMOTE}",
        f"delete pods of node {VIRTUAL_NODE}, whose kubelet it is,",
        whole=True,
    ),
    WriteRule(
        ("pods/binding",), f"object.target.name == '{VIRTUAL_NODE}'", f"bind pods to node {VIRTUAL_NODE}", whole=True
    ),
    WriteRule(
        NODES,
        f"request.operation != 'CREATE' || object.metadata.name == '{VIRTUAL_NODE}'",
        f"create node {VIRTUAL_NODE}",
        whole=True,
    ),
    WriteRule(("nodes/status",), f"object.metadata.name == '{VIRTUAL_NODE}'", f"report the status of {VIRTUAL_NODE}"),
    WriteRule(
        PODS,
        _same(
            "spec.containers",
            "spec.initContainers",
            "spec.ephemeralContainers",
            "spec.activeDeadlineSeconds",
            "spec.terminationGracePeriodSeconds",
            "spec.nodeSelector",
            "spec.affinity",
            "spec.nodeName",
        ),
        "add tolerations to pods and remove scheduling gates from the spec",
    ),
    WriteRule(
        PODS,
        f"({NEW_TOLERATIONS}.all(t, t in {OLD_TOLERATIONS} ||"
        f" (t.?key.orValue('') == '{STARTUP_TAINT}' && t.?operator.orValue('Equal') == 'Equal')) &&"
        f" {OLD_TOLERATIONS}.all(t, t in {NEW_TOLERATIONS})) ||"
        f" ({_REMOTE} && {NEW_TOLERATIONS}.size() == {OLD_TOLERATIONS}.size() && {NEW_TOLERATIONS}.all(t,"
        f" {OLD_TOLERATIONS}.exists(o, {_SAME_BUT_SECONDS} && o.?effect == t.?effect)))",
        f"add tolerations of one value of {STARTUP_TAINT} to pods, and change for how long remote pods tolerate",
    ),
    WriteRule(
        PODS,
        "oldObject.spec.?schedulingGates.orValue([]).all(g,"
        f" g.name == '{BUDGET_GATE}' || g in object.spec.?schedulingGates.orValue([]))",
        f"remove the scheduling gate {BUDGET_GATE} of pods",
    ),
    WriteRule(
        POD_STATUS,
        f"{_REMOTE} || "
        + " && ".join(
            (
                f"{_FOREIGN_CONDITIONS.format('object')} == {_FOREIGN_CONDITIONS.format('oldObject')}",
                _same(
                    "status.phase",
                    "status.reason",
                    "status.message",
                    "status.podIP",
                    "status.podIPs",
                    "status.hostIP",
                    "status.startTime",
                    "status.containerStatuses",
                    "status.initContainerStatuses",
                    "status.ephemeralContainerStatuses",
                    "status.nominatedNodeName",
                    "status.resourceClaimStatuses",
                    "status.qosClass",
                ),
            )
        ),
        f"write conditions under {GROUP}/ to the status of pods that are not remote",
    ),
    WriteRule(
        JOBS,
        _same(
            "spec.template",
            "spec.parallelism",
            "spec.completions",
            "spec.backoffLimit",
            "spec.activeDeadlineSeconds",
            "spec.ttlSecondsAfterFinished",
            "metadata.finalizers",
        ),
        "suspend and resume Jobs",
    ),
    WriteRule((*JOBS, *OWN_KINDS), _map_changes("labels", _OURS, _OURS, _OURS), f"change labels under {GROUP}/"),
    WriteRule(
        (*PODS, *POD_STATUS, *JOBS, *OWN_KINDS),
        _map_changes("annotations", _OWN_ANNOTATION, _OWN_ANNOTATION, _OWN_ANNOTATION),
        f"change annotations under {GROUP}/, {', '.join(_OWN_ANNOTATIONS)}",
    ),
    WriteRule(
        NODES,
        _map_changes("annotations", f"(!k.matches('{KUBERNETES_DOMAINS}'))", _OWN_ANNOTATION, _OWN_ANNOTATION),
        f"add annotations to nodes (none of kubernetes.io and k8s.io) and change those under {GROUP}/",
    ),
    WriteRule(
        (*NODES, *PODS, *POD_STATUS, *JOBS, *OWN_KINDS), _same("metadata.ownerReferences"), "read owner references"
    ),
    WriteRule(
        OWN_KINDS, f"object.spec == oldObject.spec || {_PUBLISHED}", "read the spec of classes and budgets of users"
    ),
    WriteRule(("gpunodeclasses",), _only_finalizer(CLASS_FINALIZER), f"add and remove the finalizer {CLASS_FINALIZER}"),
    WriteRule(("gpuworkloadbudgets",), _same("metadata.finalizers"), "read the finalizers of budgets"),
    WriteRule(
        (*OWN_KINDS, "gpunodepools"),
        f"object.metadata.?labels[?'{ENVIRONMENT_LABEL}'] == oldObject.metadata.?labels[?'{ENVIRONMENT_LABEL}']",
        f"create objects with the label {ENVIRONMENT_LABEL}",
    ),
    WriteRule(
        ("gpunodepools",),
        _PUBLISHED,
        f"write GPUNodePools that show the machines of its own environment variables (label {ENVIRONMENT_LABEL})",
        whole=True,
    ),
    WriteRule(
        ("gpunodeclasses",),
        f"request.operation == 'UPDATE' || {_PUBLISHED}",
        f"create and delete GPUNodeClasses that show the machines of its own environment variables (label "
        f"{ENVIRONMENT_LABEL})",
        whole=True,
    ),
    WriteRule(
        ("configmaps",),
        f"request.name.startsWith('{LEDGER_PREFIX}-')",
        f"write ConfigMaps that hold ledgers ({LEDGER_PREFIX}-...)",
    ),
    WriteRule(
        ("secrets",),
        "(request.operation == 'DELETE' ? oldObject : object).type == 'bootstrap.kubernetes.io/token'"
        f" && '{INSTANCE_LABEL}' in (request.operation == 'DELETE' ? oldObject : object).metadata.?labels.orValue({{}})"
        " && request.operation != 'UPDATE'",
        f"create and delete bootstrap tokens that it labels with {INSTANCE_LABEL}",
    ),
    WriteRule(
        ("certificatesigningrequests",),
        f"request.operation != 'CREATE' || (request.name.startsWith('{SERVING_REQUEST_PREFIX}-')"
        f" && object.spec.signerName == '{KUBELET_SERVING_SIGNER}')",
        f"request serving certificates, under the name {SERVING_REQUEST_PREFIX}-...,",
        whole=True,
    ),
    WriteRule(
        ("certificatesigningrequests/approval",),
        f"object.spec.signerName != '{KUBELET_SERVING_SIGNER}' ||"
        " object.spec.?username.orValue('') == request.userInfo.username",
        "approve serving certificates that it has requested itself",
    ),
    WriteRule(
        ("leases",),
        f"request.name == '{OPERATOR_LEASE}' ||"
        f" (request.name == '{VIRTUAL_NODE}' && request.namespace == 'kube-node-lease')",
        f"write the Leases {OPERATOR_LEASE} and kube-node-lease/{VIRTUAL_NODE}",
    ),
)
