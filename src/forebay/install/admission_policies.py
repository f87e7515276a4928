"""Admission policies that the API server itself runs on new pods: the finalizer of exact budgets, the gate of spent
ones.

Their cost is linear in the budgets they look at, so that budgets are chosen by labels that Forebay keeps on them. They
fail open, and are deleted before the CustomResourceDefinition: a policy whose parameters have no kind may refuse pods.
"""

from typing import Any, Final

from forebay.api.names import ACCOUNTING_LABEL, API_VERSION, BUDGET_GATE, EXCEEDED_LABEL, USAGE_FINALIZER

Json = dict[str, Any]

API: Final = "admissionregistration.k8s.io/v1"
KIND: Final = "MutatingAdmissionPolicy"
FINALIZER_POLICY: Final = "forebay-usage-finalizer"
GATE_POLICY: Final = "forebay-budget-gate"

_LABELS: Final = {"app.kubernetes.io/name": "forebay"}
#: Only CREATE: a finalizer may be added later, a gate never.
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
#: Pods without which a cluster cannot mend itself.
_NOT_IN: Final = ["kube-system"]

# Limits are copied to requests before policies see the pod.
_ASKING: Final = "has(c.resources) && has(c.resources.requests) && params.spec.gpuResourceName in c.resources.requests"
_ASKS: Final = (
    f"object.spec.containers.exists(c, {_ASKING}) || "
    f"(has(object.spec.initContainers) && object.spec.initContainers.exists(c, {_ASKING}))"
)
_HAS: Final = "has(object.metadata.labels) && {key} in object.metadata.labels"
_AMONG: Final = f"{_HAS.format(key='e.key')} && object.metadata.labels[e.key] in e.values"
_SELECTED: Final = (
    "(!has(params.spec.selector.matchLabels) || params.spec.selector.matchLabels.all(k, "
    f"{_HAS.format(key='k')} && object.metadata.labels[k] == params.spec.selector.matchLabels[k])) && "
    "(!has(params.spec.selector.matchExpressions) || params.spec.selector.matchExpressions.all(e, "
    f"e.operator == 'In' ? ({_AMONG}) : "
    f"e.operator == 'NotIn' ? !({_AMONG}) : "
    f"e.operator == 'Exists' ? ({_HAS.format(key='e.key')}) : "
    f"e.operator == 'DoesNotExist' && !({_HAS.format(key='e.key')})))"
)
# A pod that is made on a node cannot have a gate; the API would refuse it.
_FREE: Final = "!has(object.spec.nodeName) || object.spec.nodeName == ''"


def admission_policies() -> list[Json]:
    """Two policies and their bindings, in the order in which they can be created."""
    return [
        _policy(
            FINALIZER_POLICY,
            {
                "exact": "has(params.spec.accounting) && params.spec.accounting == 'Exact'",
                "not-yet": f"!has(object.metadata.finalizers) || !('{USAGE_FINALIZER}' in object.metadata.finalizers)",
            },
            f'Object{{metadata: Object.metadata{{finalizers: ["{USAGE_FINALIZER}"]}}}}',
        ),
        _policy(
            GATE_POLICY,
            {
                "holds": "params.spec.enforcement.action != 'AlertOnly'",
                "not-on-a-node": _FREE,
                "not-yet": (
                    "!has(object.spec.schedulingGates) || "
                    f"!object.spec.schedulingGates.exists(g, g.name == '{BUDGET_GATE}')"
                ),
            },
            # As a configuration to apply: the same as a JSON patch of such objects ends the request with a panic.
            f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{BUDGET_GATE}"}}]}}}}',
        ),
        _binding(FINALIZER_POLICY, {ACCOUNTING_LABEL: "Exact"}),
        _binding(GATE_POLICY, {EXCEEDED_LABEL: "true"}),
    ]


def _policy(name: str, conditions: dict[str, str], mutation: str) -> Json:
    """Everything that depends on the budget is a condition: one that does not apply never comes to the mutation,
    which is slow.
    """
    asked = {"asks-for-it": _ASKS, "selected": _SELECTED, **conditions}
    not_in = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_NOT_IN)}
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "paramKind": {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget"},
        "matchConstraints": {"namespaceSelector": {"matchExpressions": [not_in]}, "resourceRules": [_PODS]},
        "matchConditions": [{"name": name, "expression": expression} for name, expression in asked.items()],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}],
    }
    return {"apiVersion": API, "kind": KIND, "metadata": {"name": name, "labels": dict(_LABELS)}, "spec": spec}


def _binding(policy: str, budgets: dict[str, str]) -> Json:
    spec = {
        "policyName": policy,
        "paramRef": {"selector": {"matchLabels": budgets}, "parameterNotFoundAction": "Allow"},
    }
    metadata = {"name": policy, "labels": dict(_LABELS)}
    return {"apiVersion": API, "kind": f"{KIND}Binding", "metadata": metadata, "spec": spec}
