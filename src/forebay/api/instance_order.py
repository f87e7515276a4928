"""What a GPUInstance records of its order: offer, terms of the bill, planned node or container."""

from typing import Annotated

from msgspec import Meta, field

from forebay.api.parts import Figures, Names, Part, Taints
from forebay.api.rules import ATOMIC_LIST
from forebay.api.values import (
    Count,
    Duration,
    Figure,
    LabelValue,
    ObjectName,
    PositiveCount,
    ResourceName,
    ShortText,
)


class BillingTerms(Part, frozen=True, kw_only=True):
    """How the provider bills."""

    minimum: Duration | None = None
    """The least time that is billed."""
    increment: Duration | None = None
    """Billed time is rounded up to a multiple of this. Default: a second."""


class OfferRecord(Part, frozen=True, kw_only=True):
    """The chosen offer of the provider."""

    instance_type: ShortText
    """Name of the machine type, GPU id or owned machine at the provider."""
    region: ShortText | None = None
    """Region at the provider."""
    zone: ShortText | None = None
    """Zone at the provider."""
    spot: bool = False
    """The provider may reclaim it at any time."""
    gpu_type: ShortText | None = None
    """GPU model."""
    gpu_count: Count = 0
    """GPUs in it."""
    gpu_resource: ResourceName = "nvidia.com/gpu"
    """Resource under which its node has the GPUs."""
    gpu_memory_gib: PositiveCount | None = field(name="gpuMemoryGiB", default=None)
    """Memory of one GPU in GiB."""
    boot_deadline: Duration | None = None
    """Time from the launch call until the node must be Ready with its GPUs, where this machine has its own."""


class PlannedNode(Part, frozen=True, kw_only=True):
    """The node that the instance will become. Forebay plans with it until the node has registered."""

    name: ObjectName
    """Name of the node."""
    labels: Annotated[dict[str, LabelValue], Meta(max_length=128)] = field(default_factory=dict)
    """Labels of the node."""
    taints: Taints = ()
    """Taints of the node."""
    startup_taints: Taints = ()
    """Taints of the node until it is ready."""
    allocatable: Figures = field(default_factory=dict)
    """Resources that pods can use."""
    annotations: Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)] = field(
        default_factory=dict
    )
    """Annotations that the node gets when it has registered."""


_Text = Annotated[str, Meta(max_length=4096)]


class PortRecord(Part, frozen=True, kw_only=True):
    """A port of a container."""

    port: Annotated[int, Meta(ge=1, le=65535)]
    """Number of the port."""
    protocol: ShortText = "TCP"
    """TCP or UDP."""


class ContainerRecord(Part, frozen=True, kw_only=True):
    """The container to run. Secret values of its environment are not here: Forebay reads them when it launches."""

    image: _Text
    """Image of the container."""
    command: Annotated[tuple[_Text, ...], Meta(max_length=256), ATOMIC_LIST] = ()
    """Entry point. Default: that of the image."""
    args: Annotated[tuple[_Text, ...], Meta(max_length=256), ATOMIC_LIST] = ()
    """Arguments. Default: those of the image."""
    env: Annotated[dict[str, Annotated[str, Meta(max_length=32768)]], Meta(max_length=512)] = field(
        default_factory=dict
    )
    """Environment variables without secrets."""
    ports: Annotated[tuple[PortRecord, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """Ports that it listens on."""
    disk_gib: PositiveCount | None = field(name="diskGiB", default=None)
    """Size of its disk in GiB. Default: the provider's."""
    registry_auth: ShortText | None = None
    """Id, at the provider, of the credentials with which it pulls the image."""
    pull_secrets: Names = field(name="imagePullSecrets", default=())
    """Secrets of the pod's namespace from which such credentials are made."""
    template: ShortText | None = None
    """Id, at the provider, of a template with settings that the pod does not state."""
    max_hourly_price: Figure | None = None
    """Most that its Job and its pool allowed when it was ordered, per hour in US dollars. Where the provider bills more
    for it, it is terminated. Absent: no limit."""
    node_name: ObjectName | None = None
    """Virtual node that its pod is bound to. While the pod is bound to another node, the container is not wanted."""
