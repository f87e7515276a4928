"""Machines you own, powered on and off by HTTP calls."""

from typing import ClassVar

from msgspec import field

from forebay.api.parts import NodeLabels, Part, SecretKeyRef, SecretRef, Taints
from forebay.api.rules import RefusalCause, ValidationRule
from forebay.api.values import (
    Dollars,
    Duration,
    ObjectName,
    PositiveCount,
    PositiveQuantity,
    ResourceName,
    ShortText,
    Url,
)


class MachineTLS(Part, frozen=True, kw_only=True):
    """How calls to the machine's https endpoints are secured."""

    rules: ClassVar = (
        ValidationRule(
            "!(self.insecureSkipVerify && has(self.caSecretRef))",
            "caSecretRef has no effect with insecureSkipVerify: set one of them",
            reason=RefusalCause.FORBIDDEN,
            field_path=".insecureSkipVerify",
        ),
    )

    ca_secret_ref: SecretKeyRef | None = None
    """PEM certificates to trust instead of the system's."""
    client_certificate_secret_ref: SecretRef | None = None
    """Secret of type kubernetes.io/tls with Forebay's client certificate."""
    server_name: ShortText | None = None
    """Name the server's certificate must be valid for. Default: the host of the URL."""
    insecure_skip_verify: bool = False
    """Accept any certificate. Only for a network that nobody else can reach."""


class Machine(Part, frozen=True, kw_only=True):
    """One machine. Forebay sends POST with the body {} to power it on or off; any answer but 2xx is a failure."""

    rules: ClassVar = (
        ValidationRule(
            "!has(self.scaleUpEndpoint) || !has(self.scaleDownEndpoint)"
            " || self.scaleUpEndpoint != self.scaleDownEndpoint",
            "scaleUpEndpoint and scaleDownEndpoint are the same URL: one must power the machine on, the other off",
            field_path=".scaleDownEndpoint",
        ),
    )

    name: ObjectName
    """Name of the Kubernetes node that the machine registers as."""
    gpu_count: PositiveCount
    """GPUs in the machine."""
    scale_up_endpoint: Url | None = None
    """URL that powers the machine on. Required, unless endpointsFrom of the provider is Environment."""
    scale_down_endpoint: Url | None = None
    """URL that powers the machine off. Required, unless endpointsFrom of the provider is Environment."""
    status_endpoint: Url | None = None
    """URL that answers GET with the power state of the machine. Default: Forebay goes by the readiness of the node."""
    headers_secret_ref: SecretRef | None = None
    """Secret whose keys are sent as headers, such as Authorization."""
    hmac_secret_ref: SecretKeyRef | None = None
    """Key that signs the calls, in the form of Standard Webhooks: headers webhook-id, webhook-timestamp,
    webhook-signature."""
    timeout: Duration = "5s"
    """How long one call may take."""
    boot_timeout: Duration = "15m"
    """Time from the power-on call until the node must be Ready with its GPUs. A machine that takes longer is powered
    off and cools down before the next attempt."""
    tls: MachineTLS | None = None
    """How calls to https endpoints are secured."""
    gpu_type: ShortText | None = None
    """Model of the GPUs, such as RTX4090: pods may select it by the label forebay.dev/gpu-type. Default: read from the
    node."""
    gpu_resource_name: ResourceName = "nvidia.com/gpu"
    """Resource name by which pods request the GPUs."""
    cpu: PositiveQuantity | None = None
    """CPUs that pods can use, such as 30. Default: read from the node once it has registered."""
    memory: PositiveQuantity | None = None
    """Memory that pods can use, such as 240Gi. Default: read from the node once it has registered."""
    labels: NodeLabels = field(default_factory=dict)
    """Labels that the node has, for pods that select by them. Default: read from the node."""
    taints: Taints = ()
    """Taints that the node has. Default: read from the node."""
    hourly_price: Dollars = 0
    """Cost of one hour in US dollars, for power and cooling. Of machines that cost the same, the smallest is used
    first."""
