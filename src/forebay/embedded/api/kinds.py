"""Built-in kinds, and the registry of all kinds that are served, to which CRDs add at run time."""

from collections.abc import Iterator
from typing import Any

import msgspec


class ApiKind(msgspec.Struct, frozen=True, kw_only=True):
    """One resource in one version: its names and scope as discovery shows them, and how its writes differ."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    #: Objects have a `metadata.generation`, which counts changes of the spec.
    generation: bool = False
    #: A PUT without resourceVersion overwrites. Custom resources and a few other kinds require the resourceVersion.
    unconditional_update: bool = True
    #: A PUT to a name that does not exist creates the object.
    create_on_update: bool = False
    #: A POST is answered and nothing is stored (reviews).
    virtual: bool = False
    custom: bool = False
    #: Set by CRDs; for built-in kinds they follow from `kind`.
    singular_name: str = ""
    list_name: str = ""
    #: Key of the collection that stores the objects. Kinds with the same objects share it, such as the two of Event.
    storage: str = ""

    def __post_init__(self) -> None:
        # Computed once, since every read and write uses it.
        msgspec.structs.force_setattr(self, "storage", self.storage or self.resource)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Resource and group as messages have them: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.list_name or f"{self.kind}List"

    @property
    def verbs(self) -> list[str]:
        if self.virtual:
            return ["create"]
        # A real server has no deletecollection for namespaces either.
        collection = [] if self.plural == "namespaces" and not self.group else ["deletecollection"]
        return ["create", "delete", *collection, "get", "list", "patch", "update", "watch"]

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


_ALL, _EXTENSIONS = ("all",), ("api-extensions",)


def _kind(api_version: str, kind: str, plural: str, *short_names: str, sub: str = "", **rest: Any) -> ApiKind:
    group, _, version = api_version.rpartition("/")
    return ApiKind(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        short_names=short_names,
        subresources=tuple(sub.split()),
        **rest,
    )


_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
_POD_PARTS = "status binding eviction log exec attach portforward"

POD_KIND = _kind("v1", "Pod", "pods", "po", sub=_POD_PARTS, categories=_ALL, generation=True)
NODE_KIND = _kind("v1", "Node", "nodes", "no", sub="status", namespaced=False)
NAMESPACE_KIND = _kind("v1", "Namespace", "namespaces", "ns", sub="status finalize", namespaced=False)
EVENT_KIND = _kind("v1", "Event", "events", "ev", create_on_update=True)
EVENT_V1_KIND = _kind("events.k8s.io/v1", "Event", "events", "ev", storage="events")
CONFIG_MAP_KIND = _kind("v1", "ConfigMap", "configmaps", "cm")
SECRET_KIND = _kind("v1", "Secret", "secrets")
SERVICE_ACCOUNT_KIND = _kind("v1", "ServiceAccount", "serviceaccounts", "sa", sub="token")
SERVICE_KIND = _kind("v1", "Service", "services", "svc", sub="status", categories=_ALL)
POD_TEMPLATE_KIND = _kind("v1", "PodTemplate", "podtemplates", generation=True)
VOLUME_CLAIM_KIND = _kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", sub="status")
JOB_KIND = _kind("batch/v1", "Job", "jobs", sub="status", categories=_ALL, generation=True)
REPLICA_SET_KIND = _kind(
    "apps/v1", "ReplicaSet", "replicasets", "rs", sub="status scale", categories=_ALL, generation=True
)
DAEMON_SET_KIND = _kind("apps/v1", "DaemonSet", "daemonsets", "ds", sub="status", categories=_ALL, generation=True)
DISRUPTION_BUDGET_KIND = _kind(
    *("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb"),
    sub="status",
    generation=True,
    unconditional_update=False,
)
LEASE_KIND = _kind("coordination.k8s.io/v1", "Lease", "leases", unconditional_update=False, create_on_update=True)
SIGNING_REQUEST_KIND = _kind(
    *("certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", "csr"),
    sub="status approval",
    namespaced=False,
)
PRIORITY_CLASS_KIND = _kind(
    "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", namespaced=False, generation=True
)
RUNTIME_CLASS_KIND = _kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", namespaced=False)
CRD_KIND = _kind(
    *("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "crd", "crds"),
    sub="status",
    namespaced=False,
    categories=_EXTENSIONS,
    generation=True,
    unconditional_update=False,
)
RESOURCE_SLICE_KIND = _kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False, generation=True)
DEVICE_CLASS_KIND = _kind("resource.k8s.io/v1", "DeviceClass", "deviceclasses", namespaced=False, generation=True)
RESOURCE_CLAIM_KIND = _kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", sub="status")
CLUSTER_ROLE_KIND = _kind(_RBAC, "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING_KIND = _kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
ROLE_KIND = _kind(_RBAC, "Role", "roles")
ROLE_BINDING_KIND = _kind(_RBAC, "RoleBinding", "rolebindings")


def _policy(kind: str, plural: str) -> ApiKind:
    return _kind(_ADMISSION, kind, plural, namespaced=False, categories=_EXTENSIONS, generation=True)


def _review(group: str, kind: str, *, namespaced: bool = False) -> ApiKind:
    return _kind(f"{group}.k8s.io/v1", kind, f"{kind.lower()}s", namespaced=namespaced, virtual=True)


BUILT_IN_KINDS: tuple[ApiKind, ...] = (
    CONFIG_MAP_KIND,
    EVENT_KIND,
    NAMESPACE_KIND,
    NODE_KIND,
    VOLUME_CLAIM_KIND,
    POD_KIND,
    POD_TEMPLATE_KIND,
    SECRET_KIND,
    SERVICE_ACCOUNT_KIND,
    SERVICE_KIND,
    DAEMON_SET_KIND,
    REPLICA_SET_KIND,
    JOB_KIND,
    LEASE_KIND,
    EVENT_V1_KIND,
    DISRUPTION_BUDGET_KIND,
    SIGNING_REQUEST_KIND,
    PRIORITY_CLASS_KIND,
    RUNTIME_CLASS_KIND,
    RESOURCE_SLICE_KIND,
    DEVICE_CLASS_KIND,
    RESOURCE_CLAIM_KIND,
    CRD_KIND,
    CLUSTER_ROLE_KIND,
    CLUSTER_ROLE_BINDING_KIND,
    ROLE_KIND,
    ROLE_BINDING_KIND,
    _policy("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
    _policy("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    _policy("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
    _policy("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    _review("authentication", "TokenReview"),
    _review("authorization", "SubjectAccessReview"),
    _review("authorization", "SelfSubjectAccessReview"),
    _review("authorization", "LocalSubjectAccessReview", namespaced=True),
)


class KindRegistry:
    """All kinds that are served now, by URL path and by apiVersion and kind."""

    def __init__(self, kinds: tuple[ApiKind, ...] = BUILT_IN_KINDS) -> None:
        self._by_path: dict[tuple[str, str, str], ApiKind] = {}
        self._by_name: dict[tuple[str, str], ApiKind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: ApiKind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_name[kind.api_version, kind.kind] = kind

    def remove(self, kind: ApiKind) -> None:
        self._by_path.pop((kind.group, kind.version, kind.plural), None)
        self._by_name.pop((kind.api_version, kind.kind), None)

    def at(self, group: str, version: str, plural: str) -> ApiKind | None:
        return self._by_path.get((group, version, plural))

    def named(self, api_version: str, kind: str) -> ApiKind | None:
        """The kind of an owner reference or scale target."""
        return self._by_name.get((api_version, kind))

    def __iter__(self) -> Iterator[ApiKind]:
        return iter(tuple(self._by_path.values()))
