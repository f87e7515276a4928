"""GPUNodeClass: where capacity comes from."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, ClassVar, Final

from msgspec import Meta, field

from forebay.api.declaration import AGE, ColumnType, CustomKind, PrinterColumn, condition_column
from forebay.api.joining import CloudInit, K3sConfig, KubeadmConfig, TailscaleConfig, TalosConfig
from forebay.api.machines import Machine
from forebay.api.meta import Object
from forebay.api.parts import Limits, Names, Observed, Part, SecretKeyRef, Selector
from forebay.api.providers import ProviderName
from forebay.api.rules import INT32, RefusalCause, ValidationRule, keyed_by
from forebay.api.values import Count, Figure, PositiveCount, ShortText, Url
from forebay.model.sources import Join

#: Of one provider in one class. With more, the API server refuses the rules for each machine as too expensive.
MOST_MACHINES: Final = 256


class EndpointsFrom(StrEnum):
    CLASS = "Class"
    ENVIRONMENT = "Environment"


class ProviderEntry(Part, frozen=True, kw_only=True):
    """One source of capacity."""

    rules: ClassVar = (
        ValidationRule(
            "self.endpointsFrom == 'Environment' || !has(self.machines)"
            " || self.machines.all(m, has(m.scaleUpEndpoint) && has(m.scaleDownEndpoint))",
            "every machine needs two URLs: set scaleUpEndpoint, which powers it on, and scaleDownEndpoint",
            reason=RefusalCause.REQUIRED,
            field_path=".machines",
        ),
        ValidationRule(
            "self.endpointsFrom != 'Environment' || !has(self.machines) || self.machines.all(m,"
            " !has(m.scaleUpEndpoint) && !has(m.scaleDownEndpoint) && !has(m.statusEndpoint))",
            "with endpointsFrom: Environment the operator's environment variables hold the URLs: remove them here",
            reason=RefusalCause.FORBIDDEN,
            field_path=".machines",
        ),
    )

    name: ProviderName
    """Which provider: one of Forebay's own, such as webhook, which powers machines of yours on and off, or one that an
    installed package adds. Where no provider has this name, the reason ProviderNotServed lists those there are."""
    priority: Annotated[int, Meta(ge=0, le=1000), INT32] = 0
    """Lower is better: prices count as price x (1 + 0.1 x priority) when offers are compared."""
    enabled: bool = True
    """Whether new capacity may come from this provider. Forebay still manages what it already runs."""
    credentials_ref: SecretKeyRef | None = None
    """API key of the provider, where it needs one."""
    regions: Names = ()
    """Regions to rent in, by the provider's own names. Default: all."""
    endpoint: Url | None = None
    """Base URL of the provider's API, for a proxy or a private installation. Default: the public one."""
    machines: Annotated[tuple[Machine, ...], Meta(max_length=MOST_MACHINES), keyed_by("name")] = ()
    """The machines themselves, for a provider of machines that you own."""
    endpoints_from: EndpointsFrom = EndpointsFrom.CLASS
    """Where the URLs of the machines, or the API key, are. Class: here. Environment: in environment variables of the
    operator, which publishes a class of its own for everybody to see; such a class says nothing that may be secret."""


class InstanceRequirements(Part, frozen=True, kw_only=True):
    """What every machine or container must have."""

    gpu_types: Names = ()
    """GPU models, such as RTX4090 or H100. Default: any."""
    regions: Names = ()
    """Regions, by the providers' own names. Default: any."""
    spot_allowed: bool = False
    """Whether spot capacity may be used, which the provider can reclaim at any time."""
    min_vcpu: PositiveCount | None = field(name="minVCPU", default=None)
    """Minimum number of virtual CPUs, where it is known: RunPod does not tell that of containers."""
    min_memory_gib: PositiveCount | None = field(name="minMemoryGiB", default=None)
    """Minimum memory in GiB, where it is known: RunPod does not tell that of containers."""
    min_gpu_memory_gib: PositiveCount | None = field(name="minGPUMemoryGiB", default=None)
    """Minimum memory of each GPU in GiB."""


#: How many ways to join are set.
JOINS_SET: Final = f"[{', '.join(f'has(self.{join})' for join in Join)}].filter(x, x).size()"


class GPUNodeClassSpec(Part, frozen=True, kw_only=True):
    """Where capacity may come from, how it joins, and how much of it there may be."""

    rules: ClassVar = (
        ValidationRule(
            "self.providers.exists(p, p.enabled)",
            "at least one provider must be enabled",
            field_path=".providers",
        ),
        ValidationRule(
            f"{JOINS_SET} <= 1",
            "a machine joins in one way only: set one of talosConfig, k3sConfig, kubeadmConfig or cloudInit",
            reason=RefusalCause.FORBIDDEN,
        ),
        ValidationRule(
            "has(self.tailscaleConfig) || !(has(self.talosConfig) && has(self.talosConfig.machineConfigTemplate)"
            " && self.talosConfig.machineConfigTemplate.contains('.TailscaleAuthKey')"
            " || has(self.cloudInit) && self.cloudInit.template.contains('.TailscaleAuthKey'))",
            "the template uses TailscaleAuthKey: set tailscaleConfig, which makes the keys",
            reason=RefusalCause.REQUIRED,
            field_path=".tailscaleConfig",
        ),
    )

    providers: Annotated[tuple[ProviderEntry, ...], Meta(min_length=1, max_length=16), keyed_by("name")]
    """Where capacity may come from. Offers of all enabled providers compete by price."""
    talos_config: TalosConfig | None = None
    """Rented machines boot Talos."""
    k3s_config: K3sConfig | None = field(name="k3sConfig", default=None)
    """Rented machines join as k3s agents."""
    kubeadm_config: KubeadmConfig | None = None
    """Rented machines join by kubeadm."""
    cloud_init: CloudInit | None = None
    """Rented machines join by user data of yours."""
    tailscale_config: TailscaleConfig | None = None
    """Rented machines reach the cluster through a Tailscale network."""
    instance_requirements: InstanceRequirements | None = None
    """What every machine or container must have."""
    limits: Limits | None = None
    """What may exist of this class at one time, in all pools together."""
    allowed_namespaces: Selector | None = None
    """Namespaces, by their labels, that may have GPUNodePools of this class, besides Forebay's own. {}: all. Default:
    none but Forebay's own."""
    allowed_pod_namespaces: Selector | None = None
    """Namespaces, by their labels, whose pods a GPUNodePool of this class may serve, besides the pool's own namespace.
    {}: all. Default: all for pools in Forebay's own namespace, none for others."""
    tags: Annotated[dict[str, Annotated[str, Meta(max_length=255)]], Meta(max_length=32)] = field(default_factory=dict)
    """Tags for everything that Forebay rents for this class, where the provider has tags or labels."""


class ProviderStatus(Part, frozen=True, kw_only=True):
    """What Forebay knows of one provider."""

    credentials_valid: bool | None = None
    """Whether the provider accepted the credentials. Absent while it could not be asked."""
    last_credential_check: datetime | None = None
    """When the credentials were last checked."""
    error: Annotated[str, Meta(max_length=1024)] | None = None
    """What went wrong last, and what to do about it."""
    last_pricing_update: datetime | None = None
    """When offers and prices were last read."""
    offers: Count | None = None
    """Offers seen that this class allows."""
    active_nodes: Count = 0
    """Machines and containers of this class at this provider."""
    hourly_cost: Figure | None = None
    """What they cost per hour in US dollars."""


class GPUAvailability(Part, frozen=True, kw_only=True):
    """The best offer of one GPU model."""

    gpu_type: ShortText
    """GPU model."""
    regions: Names = ()
    """Regions in which the GPU is offered."""
    price_per_hour: Figure
    """Lowest price per hour in US dollars."""
    spot_price: Figure | None = None
    """Lowest price per hour if the provider may reclaim it."""
    memory: Count | None = None
    """Memory of one GPU in GB."""
    available: bool = False
    """Whether it is available now."""
    available_count: Count | None = None
    """How many are available now, where the provider says so."""
    last_updated: datetime | None = None
    """When this was read."""


class GPUNodeClassStatus(Observed, frozen=True, kw_only=True):
    """What Forebay sees. Conditions: Ready, ProviderValidation, DeletionBlocked, PoolsDeleted, JoinRestricted, and one
    such as RunpodReady for each provider.
    """

    active_nodes: Count | None = None
    """Machines and containers of this class, including those that are launching."""
    hourly_cost: Figure | None = None
    """What they cost per hour in US dollars."""
    offers: Count | None = None
    """Offers seen that this class allows, of all providers."""
    providers: Annotated[dict[str, ProviderStatus], Meta(max_length=16)] = field(default_factory=dict)
    """Known from tgp-operator, and not written by Forebay: conditions such as RunpodReady tell of each provider, and
    `forebay providers check` as well."""
    available_gpus: Annotated[
        dict[str, Annotated[tuple[GPUAvailability, ...], Meta(max_length=128), keyed_by("gpuType")]],
        Meta(max_length=16),
    ] = field(name="availableGPUs", default_factory=dict)
    """Known from tgp-operator, and not written by Forebay: `forebay offers` has what each provider offers now."""
    last_inventory_update: datetime | None = None
    """Known from tgp-operator, and not written by Forebay: the condition of a provider says what keeps it from being
    read."""
    next_inventory_update: datetime | None = None
    """Known from tgp-operator, and not written by Forebay, which reads offers every minute."""


class GPUNodeClass(Object, kw_only=True, frozen=True):
    """A GPUNodeClass says where GPU capacity may come from and how it joins the cluster: which providers with which
    credentials, what machines boot, which network they enter, and how much may be spent. GPUNodePools refer to it.
    """

    spec: GPUNodeClassSpec
    status: GPUNodeClassStatus | None = None


GPU_NODE_CLASS = CustomKind(
    kind="GPUNodeClass",
    plural="gpunodeclasses",
    short_names=("gnc",),
    namespaced=False,
    type=GPUNodeClass,
    columns=(
        PrinterColumn("Ready", condition_column("Ready")),
        PrinterColumn("Nodes", ".status.activeNodes", ColumnType.INTEGER),
        PrinterColumn("Max", ".spec.limits.maxNodes", ColumnType.INTEGER),
        PrinterColumn("Cost/h", ".status.hourlyCost"),
        PrinterColumn("Max/h", ".spec.limits.maxHourlyCost"),
        PrinterColumn("Offers", ".status.offers", ColumnType.INTEGER),
        PrinterColumn("Reason", condition_column("Ready", "reason"), wide=True),
        PrinterColumn("Message", condition_column("Ready", "message"), wide=True),
        AGE,
    ),
)
