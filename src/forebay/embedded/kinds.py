"""The kinds this server knows from the start, and the registry that custom ones join at run time."""

from collections.abc import Iterator

import msgspec


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """One resource in one version, as discovery shows it, and the few ways in which its storage differs."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    #: `metadata.generation` counts the changes of the spec.
    generation: bool = False
    #: A PUT without resourceVersion overwrites; custom resources and a few others must name the version they saw.
    unconditional_update: bool = True
    #: A PUT to a name that does not exist creates it.
    create_on_update: bool = False
    #: Objects are answered but never kept (reviews).
    virtual: bool = False
    custom: bool = False
    #: CRDs may choose these two; built-in kinds follow the rule.
    singular_name: str = ""
    list_name: str = ""
    #: Where the objects are kept; two views of the same objects name the same place.
    storage: str = ""

    def __post_init__(self) -> None:
        # Asked for on every read and write, so it is settled once.
        msgspec.structs.force_setattr(self, "storage", self.storage or self.resource)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`pods`, `jobs.batch`: how messages name the resource."""
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
        # Too much would go with them.
        collection = [] if self.plural == "namespaces" and not self.group else ["deletecollection"]
        return ["create", "delete", *collection, "get", "list", "patch", "update", "watch"]

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


PODS = Kind(
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "binding", "eviction", "log", "exec", "attach", "portforward"),
    generation=True,
)
NODES = Kind(plural="nodes", kind="Node", namespaced=False, short_names=("no",), subresources=("status",))
NAMESPACES = Kind(
    plural="namespaces", kind="Namespace", namespaced=False, short_names=("ns",), subresources=("status", "finalize")
)
EVENTS = Kind(plural="events", kind="Event", short_names=("ev",), create_on_update=True)
EVENTS_V1 = Kind(group="events.k8s.io", plural="events", kind="Event", short_names=("ev",), storage="events")
CONFIG_MAPS = Kind(plural="configmaps", kind="ConfigMap", short_names=("cm",))
SECRETS = Kind(plural="secrets", kind="Secret")
SERVICE_ACCOUNTS = Kind(plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), subresources=("token",))
SERVICES = Kind(plural="services", kind="Service", short_names=("svc",), categories=("all",), subresources=("status",))
POD_TEMPLATES = Kind(plural="podtemplates", kind="PodTemplate", generation=True)
VOLUME_CLAIMS = Kind(
    plural="persistentvolumeclaims", kind="PersistentVolumeClaim", short_names=("pvc",), subresources=("status",)
)
JOBS = Kind(group="batch", plural="jobs", kind="Job", categories=("all",), subresources=("status",), generation=True)
REPLICA_SETS = Kind(
    group="apps",
    plural="replicasets",
    kind="ReplicaSet",
    short_names=("rs",),
    categories=("all",),
    subresources=("status", "scale"),
    generation=True,
)
DAEMON_SETS = Kind(
    group="apps",
    plural="daemonsets",
    kind="DaemonSet",
    short_names=("ds",),
    categories=("all",),
    subresources=("status",),
    generation=True,
)
DISRUPTION_BUDGETS = Kind(
    group="policy",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    short_names=("pdb",),
    subresources=("status",),
    generation=True,
    unconditional_update=False,
)
LEASES = Kind(
    group="coordination.k8s.io", plural="leases", kind="Lease", unconditional_update=False, create_on_update=True
)
PRIORITY_CLASSES = Kind(
    group="scheduling.k8s.io",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
    short_names=("pc",),
    generation=True,
)
RUNTIME_CLASSES = Kind(group="node.k8s.io", plural="runtimeclasses", kind="RuntimeClass", namespaced=False)
DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    generation=True,
    unconditional_update=False,
)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Kind:
    return Kind(group="rbac.authorization.k8s.io", plural=plural, kind=kind, namespaced=namespaced)


CLUSTER_ROLES = _rbac("clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False)
ROLES = _rbac("roles", "Role", namespaced=True)
ROLE_BINDINGS = _rbac("rolebindings", "RoleBinding", namespaced=True)


def _policy(plural: str, kind: str) -> Kind:
    return Kind(
        group="admissionregistration.k8s.io",
        plural=plural,
        kind=kind,
        namespaced=False,
        categories=("api-extensions",),
        generation=True,
    )


def _review(group: str, plural: str, kind: str, *, namespaced: bool = False) -> Kind:
    return Kind(group=f"{group}.k8s.io", plural=plural, kind=kind, namespaced=namespaced, virtual=True)


BUILT_IN: tuple[Kind, ...] = (
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    VOLUME_CLAIMS,
    PODS,
    POD_TEMPLATES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    DAEMON_SETS,
    REPLICA_SETS,
    JOBS,
    LEASES,
    EVENTS_V1,
    DISRUPTION_BUDGETS,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    DEFINITIONS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
    _policy("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
    _policy("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
    _policy("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
    _policy("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    _review("authentication", "tokenreviews", "TokenReview"),
    _review("authorization", "subjectaccessreviews", "SubjectAccessReview"),
    _review("authorization", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review("authorization", "localsubjectaccessreviews", "LocalSubjectAccessReview", namespaced=True),
)


class Kinds:
    """Every kind served now, found by where its URL says it lives or by what an object says it is."""

    def __init__(self, kinds: tuple[Kind, ...] = BUILT_IN) -> None:
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_name[kind.api_version, kind.kind] = kind

    def remove(self, kind: Kind) -> None:
        self._by_path.pop((kind.group, kind.version, kind.plural), None)
        self._by_name.pop((kind.api_version, kind.kind), None)

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_path.get((group, version, plural))

    def named(self, api_version: str, kind: str) -> Kind | None:
        """The kind an owner reference or a scale target means."""
        return self._by_name.get((api_version, kind))

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._by_path.values()))
