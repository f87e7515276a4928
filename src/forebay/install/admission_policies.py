"""Admission policies that the API server runs on new pods of budgets: one adds the finalizer of budgets with exact
accounting, the other the scheduling gate of exceeded budgets.

The cost of a policy is linear in the budgets it evaluates, so its binding selects them by labels that Forebay sets.
Policies fail open. They must be deleted before the CustomResourceDefinition of budgets: a policy whose parameter kind
is missing may refuse pods.
"""

from typing import Any, Final

from forebay.api.names import (
    ACCOUNTING_LABEL,
    API_VERSION,
    BUDGET_GATE,
    EXCEEDED_LABEL,
    GATE_POLICY,
    USAGE_FINALIZER,
)
from forebay.kube.admission import GROUP, KIND, VERSIONS

Json = dict[str, Any]

FINALIZER_POLICY: Final = "forebay-usage-finalizer"

_LABELS: Final = {"app.kubernetes.io/name": "forebay"}
#: Only CREATE: a gate cannot be added to an existing pod.
_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
#: A cluster cannot recover without the pods of these namespaces.
_EXCLUDED_NAMESPACES: Final = ["kube-system"]

# The API server copies limits to requests before policies run.
_CONTAINER_REQUESTS: Final = (
    "has(c.resources) && has(c.resources.requests) && params.spec.gpuResourceName in c.resources.requests"
)
_REQUESTS_GPUS: Final = (
    f"object.spec.containers.exists(c, {_CONTAINER_REQUESTS}) || "
    f"(has(object.spec.initContainers) && object.spec.initContainers.exists(c, {_CONTAINER_REQUESTS})) || "
    # Pod-level resources (1.34 and later). The server does not copy these limits to requests before policies run.
    "(has(object.spec.resources) && ("
    "(has(object.spec.resources.requests) && params.spec.gpuResourceName in object.spec.resources.requests) || "
    "(has(object.spec.resources.limits) && params.spec.gpuResourceName in object.spec.resources.limits)))"
)
_HAS_LABEL: Final = "has(object.metadata.labels) && {key} in object.metadata.labels"
_LABEL_IN: Final = f"{_HAS_LABEL.format(key='e.key')} && object.metadata.labels[e.key] in e.values"
_SELECTED: Final = (
    "(!has(params.spec.selector.matchLabels) || params.spec.selector.matchLabels.all(k, "
    f"{_HAS_LABEL.format(key='k')} && object.metadata.labels[k] == params.spec.selector.matchLabels[k])) && "
    "(!has(params.spec.selector.matchExpressions) || params.spec.selector.matchExpressions.all(e, "
    f"e.operator == 'In' ? ({_LABEL_IN}) : "
    f"e.operator == 'NotIn' ? !({_LABEL_IN}) : "
    f"e.operator == 'Exists' ? ({_HAS_LABEL.format(key='e.key')}) : "
    f"e.operator == 'DoesNotExist' && !({_HAS_LABEL.format(key='e.key')})))"
)
# The API server refuses a gate on a pod that is created with a node name.
_NOT_BOUND: Final = "!has(object.spec.nodeName) || object.spec.nodeName == ''"


def admission_policies(version: str = VERSIONS[0]) -> list[Json]:
    """Both policies, then their bindings: an order in which they can be created."""
    manifests = [
        _policy(
            FINALIZER_POLICY,
            {
                "exact-accounting": "has(params.spec.accounting) && params.spec.accounting == 'Exact'",
                "no-finalizer-yet": (
                    f"!has(object.metadata.finalizers) || !('{USAGE_FINALIZER}' in object.metadata.finalizers)"
                ),
            },
            f'Object{{metadata: Object.metadata{{finalizers: ["{USAGE_FINALIZER}"]}}}}',
        ),
        _policy(
            GATE_POLICY,
            {
                "enforced": "params.spec.enforcement.action != 'AlertOnly'",
                "not-bound": _NOT_BOUND,
                "no-gate-yet": (
                    "!has(object.spec.schedulingGates) || "
                    f"!object.spec.schedulingGates.exists(g, g.name == '{BUDGET_GATE}')"
                ),
            },
            # As an apply configuration: as a JSON patch, the same objects make the API server panic.
            f'Object{{spec: Object.spec{{schedulingGates: [Object.spec.schedulingGates{{name: "{BUDGET_GATE}"}}]}}}}',
        ),
        _binding(FINALIZER_POLICY, {ACCOUNTING_LABEL: "Exact"}),
        _binding(GATE_POLICY, {EXCEEDED_LABEL: "true"}),
    ]
    return [{"apiVersion": f"{GROUP}/{version}", **each} for each in manifests]


def _policy(name: str, conditions: dict[str, str], mutation: str) -> Json:
    """A policy. All its checks are match conditions, so that the mutation, which is slow, runs only where needed."""
    checks = {"requests-gpus": _REQUESTS_GPUS, "selected": _SELECTED, **conditions}
    not_in = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(_EXCLUDED_NAMESPACES)}
    spec = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "paramKind": {"apiVersion": API_VERSION, "kind": "GPUWorkloadBudget"},
        "matchConstraints": {"namespaceSelector": {"matchExpressions": [not_in]}, "resourceRules": [_PODS]},
        "matchConditions": [{"name": check, "expression": expression} for check, expression in checks.items()],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": mutation}}],
    }
    return {"kind": KIND, "metadata": {"name": name, "labels": dict(_LABELS)}, "spec": spec}


def _binding(policy: str, budgets: dict[str, str]) -> Json:
    spec = {
        "policyName": policy,
        "paramRef": {"selector": {"matchLabels": budgets}, "parameterNotFoundAction": "Allow"},
    }
    metadata = {"name": policy, "labels": dict(_LABELS)}
    return {"kind": f"{KIND}Binding", "metadata": metadata, "spec": spec}
