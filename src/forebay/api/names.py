"""The names under which Forebay marks what it owns, and those of the predecessors it still understands."""

from typing import Final

GROUP: Final = "forebay.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

# The operator itself: its Deployment and account, the namespace it is installed in by default, and its Lease.
OPERATOR_NAME: Final = "forebay"
OPERATOR_NAMESPACE: Final = "forebay-system"
OPERATOR_LEASE: Final = "forebay-operator"

# Labels of nodes that Forebay obtained. `tgp.io/...` means the same wherever users select by it.
NODEPOOL_LABEL: Final = "forebay.dev/nodepool"
NODECLASS_LABEL: Final = "forebay.dev/nodeclass"
GPU_TYPE_LABEL: Final = "forebay.dev/gpu-type"
PROVIDER_LABEL: Final = "forebay.dev/provider"
REGION_LABEL: Final = "forebay.dev/region"
SPOT_LABEL: Final = "forebay.dev/spot"
PROVISIONED_LABEL: Final = "forebay.dev/provisioned"
INSTANCE_ID_LABEL: Final = "forebay.dev/instance-id"
PREDECESSOR_PREFIX: Final = "tgp.io/"

#: The value is the name of the NodeProvisioner that sizes the node's group.
PROVISIONER_LABEL: Final = "nodeprovisioner.compute.baseten.co/provisioner-name"

#: On a GPUInstance until its provider has shown that nothing of it is left.
INSTANCE_FINALIZER: Final = "forebay.dev/instance"
#: On a GPUNodeClass, which says how its machines are ended, until they have been.
CLASS_FINALIZER: Final = "forebay.dev/nodeclass"
#: On a pod until its GPU time is in the ledger.
USAGE_FINALIZER: Final = "forebay.dev/usage"
#: Holds a pod back while one of its budgets is exceeded.
BUDGET_GATE: Final = "forebay.dev/budget"
#: Keeps pods off a node until it is ready and its pods are nominated.
STARTUP_TAINT: Final = "forebay.dev/startup"
#: On a node whose cordon is Forebay's own (the value is since when): only that one is taken back.
CORDONED_ANNOTATION: Final = "forebay.dev/cordoned"

# Labels of budgets, kept by Forebay: admission policies pick the few budgets they must look at by these.
EXCEEDED_LABEL: Final = "forebay.dev/exceeded"
ACCOUNTING_LABEL: Final = "forebay.dev/accounting"

# On the ConfigMaps that hold the ledgers of budgets: which of its books, and the UID of the budget.
LEDGER_LABEL: Final = "forebay.dev/ledger"
BUDGET_UID_LABEL: Final = "forebay.dev/budget-uid"

#: On a Job that was suspended for a budget, so that all such can be found.
PAUSED_LABEL: Final = "forebay.dev/paused"
# On it and on the pod that had used most: by which budget (its name) and when.
PAUSED_BY_ANNOTATION: Final = "forebay.dev/paused-by"
PAUSED_AT_ANNOTATION: Final = "forebay.dev/paused-at"
#: What its pods asked for together, in thousandths of what the budget counts.
PAUSED_RATE_ANNOTATION: Final = "forebay.dev/paused-rate"
