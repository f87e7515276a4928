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

#: Labels of Kubernetes' own domains that Forebay writes on nodes. All others of those domains it leaves alone, because
#: they grant trust (`node-restriction.kubernetes.io/`) or roles (`node-role.kubernetes.io/`).
WELL_KNOWN_LABELS: Final = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
#: What matches the keys of those domains, in Python and in CEL.
KUBERNETES_DOMAINS: Final = "^([^/]*[.])?(kubernetes|k8s)[.]io/"

#: Label on nodes; the value is the name of the NodeProvisioner that sizes the node's group.
PROVISIONER_LABEL: Final = "nodeprovisioner.compute.baseten.co/provisioner-name"
#: The same under Forebay's own name.
OWN_PROVISIONER_LABEL: Final = "forebay.dev/provisioner"
#: Taint on an empty node of an instance group that is deleted at the time in its value.
SCALE_DOWN_TAINT: Final = "forebay.dev/scale-down"

#: On a GPUInstance until its provider has proven that nothing of it is left.
INSTANCE_FINALIZER: Final = "forebay.dev/instance"
#: On a GPUNodeClass until all its machines are terminated, because it holds what their termination needs.
CLASS_FINALIZER: Final = "forebay.dev/nodeclass"
#: Finalizer on a pod until its GPU time is in the ledger.
USAGE_FINALIZER: Final = "forebay.dev/usage"
#: Scheduling gate of a pod while one of its budgets is exceeded.
BUDGET_GATE: Final = "forebay.dev/budget"
#: Admission policy that puts the gate on new pods, and its binding.
GATE_POLICY: Final = "forebay-budget-gate"
#: Condition of a pod: the scheduler did not use a node that was launched for the pod. Its message is the scheduler's.
REFUSED_CONDITION: Final = "forebay.dev/Refused"
#: Condition of a pod: False while the pod waits, with the reason and sentence; True once the pod has a node.
CAPACITY_CONDITION: Final = "forebay.dev/Capacity"
#: Taint that keeps other pods off a node until the pods it was launched for are bound.
STARTUP_TAINT: Final = "forebay.dev/startup"
#: Taint on a node whose machine is proven off under its pods. The value tells it from one that somebody else has set.
OUT_OF_SERVICE_TAINT: Final = "node.kubernetes.io/out-of-service"
OUT_OF_SERVICE_VALUE: Final = "forebay"
#: Annotation on a node that Forebay cordoned (the value is since when): Forebay uncordons no other node.
CORDONED_ANNOTATION: Final = "forebay.dev/cordoned"
#: Annotation on a node that Forebay gave the annotations of its pool; the value is a digest of these.
ANNOTATED_ANNOTATION: Final = "forebay.dev/annotated"
#: Annotation of people on a Node or GPUInstance: Forebay neither powers the machine on or off nor drains it. The value
#: may say why; with "false" the annotation has no effect.
MAINTENANCE_ANNOTATION: Final = "forebay.dev/maintenance"

#: Label of the GPUNodeClass and GPUNodePool that show the machines of an operator's environment variables; the value is
#: the operator's namespace.
ENVIRONMENT_LABEL: Final = "forebay.dev/environment"
#: Kind of the secondary resource that lets a machine request the certificate of its node.
BOOTSTRAP_TOKEN: Final = "BootstrapToken"  # noqa: S105 (a kind)
#: Kinds of the key with which a machine enters a tailnet, and of the device that it becomes there.
TAILSCALE_KEY: Final = "TailscaleKey"
TAILSCALE_DEVICE: Final = "TailscaleDevice"
#: Kind of the credential with which a remote container pulls its image.
REGISTRY_CREDENTIAL: Final = "RegistryCredential"
#: Group of machines that hold such a token: may request a certificate; who gets one is for Forebay to approve.
BOOTSTRAP_GROUP: Final = "system:bootstrappers:forebay"
#: The API server looks for tokens only here.
TOKEN_NAMESPACE: Final = "kube-system"  # noqa: S105 (a namespace)
#: Label on what was created for a GPUInstance; the value is its UID.
INSTANCE_LABEL: Final = "forebay.dev/instance-uid"

# Labels that Forebay keeps on budgets: admission policies select the few budgets they must check by these.
EXCEEDED_LABEL: Final = "forebay.dev/exceeded"
ACCOUNTING_LABEL: Final = "forebay.dev/accounting"

#: Names of the ConfigMaps that hold ledgers begin with it.
LEDGER_PREFIX: Final = "forebay-ledger"
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
# What gpu-k8s-operator stamped on pods: by which budget they should pause, and since when. For whoever acts on these.
PAUSE_REQUESTED_BY_ANNOTATION: Final = "budget.zxuhan.dev/paused-by"
PAUSE_REQUESTED_AT_ANNOTATION: Final = "budget.zxuhan.dev/paused-at"
#: What the Job's pods requested together, in thousandths of the resource that the budget counts.
PAUSED_RATE_ANNOTATION: Final = "forebay.dev/paused-rate"

# Marks that users of the RunPod Job controller know: "runpod.io/" is part of the names, whoever runs the container.
# On Jobs (annotation or label) and pods: the Job may run as a remote container; "false" means no.
MANAGED_MARK: Final = "runpod.io/managed"
#: On Jobs ("true"): run remotely at once.
OFFLOAD_ANNOTATION: Final = "runpod.io/offload"
# On Jobs: what the remote container must have.
REQUIRED_GPU_MEMORY_ANNOTATION: Final = "runpod.io/required-gpu-memory"
CLOUD_TYPE_ANNOTATION: Final = "runpod.io/cloud-type"
DATACENTER_IDS_ANNOTATION: Final = "runpod.io/datacenter-ids"
GPU_TYPES_ANNOTATION: Final = "runpod.io/gpu-types"
TEMPLATE_ID_ANNOTATION: Final = "runpod.io/templateId"
REGISTRY_AUTH_ANNOTATION: Final = "runpod.io/container-registry-auth-id"
REMOTE_PORTS_ANNOTATION: Final = "runpod.io/ports"
MAX_PRICE_ANNOTATION: Final = "runpod.io/max-price"
# What Forebay writes. On pods: the id (label and annotation), the price, and that the pod runs elsewhere; on Jobs: the
# same of their latest pod, and how often a launch failed.
REMOTE_ID_MARK: Final = "runpod.io/pod-id"
REMOTE_COST_ANNOTATION: Final = "runpod.io/cost-per-hr"
EXTERNAL_ANNOTATION: Final = "runpod.io/external"
OFFLOADED_ANNOTATION: Final = "runpod.io/offloaded"
FAILURE_COUNT_ANNOTATION: Final = "runpod.io/failure-count"
RETRY_AFTER_ANNOTATION: Final = "runpod.io/retry-after"

#: The node that remote pods are bound to, its taint and label, and the RuntimeClass of its pods.
VIRTUAL_NODE: Final = "runpod-virtual-node"
#: Begin of the names of CertificateSigningRequests for its port.
SERVING_REQUEST_PREFIX: Final = "forebay-virtual-node"
VIRTUAL_TAINT: Final = "runpod.io/virtual"
VIRTUAL_RUNTIME_CLASS: Final = "runpod-virtual"

#: Non-resource URLs that stand, in roles, for the pages of the operator. The dashboard shows all namespaces, so that it
#: is one permission.
METRICS_URL: Final = "/metrics"
DASHBOARD_URL: Final = "/forebay/dashboard"
