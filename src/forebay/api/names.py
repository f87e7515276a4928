"""Labels, annotations, taints and finalizers of Forebay, and those of its predecessors that it understands."""

from typing import Final

GROUP: Final = "forebay.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# The operator itself: its Deployment and account, the namespace it is installed in by default, and its Lease.
OPERATOR_NAME: Final = "forebay"
OPERATOR_NAMESPACE: Final = "forebay-system"
OPERATOR_LEASE: Final = "forebay-operator"

# Labels of nodes that Forebay launched. Users may also select by the predecessor's `tgp.io/...`.
NODEPOOL_LABEL: Final = "forebay.dev/nodepool"
NODECLASS_LABEL: Final = "forebay.dev/nodeclass"
GPU_TYPE_LABEL: Final = "forebay.dev/gpu-type"
PROVIDER_LABEL: Final = "forebay.dev/provider"
REGION_LABEL: Final = "forebay.dev/region"
SPOT_LABEL: Final = "forebay.dev/spot"
PROVISIONED_LABEL: Final = "forebay.dev/provisioned"

PREDECESSOR_PREFIX: Final = "tgp.io/"

#: Label on nodes; the value is the name of the NodeProvisioner that sizes the node's group.
PROVISIONER_LABEL: Final = "nodeprovisioner.compute.baseten.co/provisioner-name"

#: On a GPUInstance until its provider has proven that nothing of it is left.
INSTANCE_FINALIZER: Final = "forebay.dev/instance"
#: On a GPUNodeClass until all its machines are terminated, because it holds what their termination needs.
CLASS_FINALIZER: Final = "forebay.dev/nodeclass"
#: Finalizer on a pod until its GPU time is in the ledger.
USAGE_FINALIZER: Final = "forebay.dev/usage"
#: Scheduling gate of a pod while one of its budgets is exceeded.
BUDGET_GATE: Final = "forebay.dev/budget"
#: Condition of a pod: the scheduler did not use a node that was launched for the pod. Its message is the scheduler's.
REFUSED_CONDITION: Final = "forebay.dev/Refused"
#: Taint that keeps other pods off a node until the pods it was launched for are bound.
STARTUP_TAINT: Final = "forebay.dev/startup"
#: Annotation on a node that Forebay cordoned (the value is since when): Forebay uncordons no other node.
CORDONED_ANNOTATION: Final = "forebay.dev/cordoned"

# Labels that Forebay keeps on budgets: admission policies select the few budgets they must check by these.
EXCEEDED_LABEL: Final = "forebay.dev/exceeded"
ACCOUNTING_LABEL: Final = "forebay.dev/accounting"

# Labels on the ConfigMaps that hold ledgers: which ledger, and the UID of the budget.
LEDGER_LABEL: Final = "forebay.dev/ledger"
BUDGET_UID_LABEL: Final = "forebay.dev/budget-uid"
#: On a GPUWorkloadBudget ("true"): usage of deleted budgets of the same name does not count.
RESET_USAGE_ANNOTATION: Final = "forebay.dev/reset-usage"

#: Label on a Job that was suspended for a budget, so that such Jobs can be listed.
PAUSED_LABEL: Final = "forebay.dev/paused"
# Annotations on that Job and on the pod that had used most: name of the budget, and when.
PAUSED_BY_ANNOTATION: Final = "forebay.dev/paused-by"
PAUSED_AT_ANNOTATION: Final = "forebay.dev/paused-at"
#: What the Job's pods requested together, in thousandths of the resource that the budget counts.
PAUSED_RATE_ANNOTATION: Final = "forebay.dev/paused-rate"
