"""Machines you own, switched on and off by HTTP calls."""

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
    """Secret of type kubernetes.io/tls with the certificate that Forebay shows."""
    server_name: ShortText | None = None
    """Name the server's certificate must be valid for. Default: the host of the URL."""
    insecure_skip_verify: bool = False
    """Accept any certificate. Only for a network that nobody else is in."""


class Machine(Part, frozen=True, kw_only=True):
    """One machine. Forebay posts {} to switch it on or off; any answer but 2xx is a failure."""

    rules: ClassVar = (
        ValidationRule(
            "self.scaleUpEndpoint != self.scaleDownEndpoint",
            "scaleUpEndpoint and scaleDownEndpoint are the same URL: one must switch on, the other off",
            field_path=".scaleDownEndpoint",
        ),
    )

    name: ObjectName
    """Name of the Kubernetes node that the machine is."""
    gpu_count: PositiveCount
    """GPUs in the machine."""
    scale_up_endpoint: Url
    """URL that switches the machine on."""
    scale_down_endpoint: Url
    """URL that switches the machine off."""
    status_endpoint: Url | None = None
    """URL that tells by GET whether the machine is on. Default: Forebay judges by the node alone."""
    headers_secret_ref: SecretRef | None = None
    """Every key of this Secret is sent as a header, such as Authorization."""
    hmac_secret_ref: SecretKeyRef | None = None
    """Key with which calls are signed, in the form of Standard Webhooks: webhook-id, webhook-timestamp,
    webhook-signature."""
    timeout: Duration = "5s"
    """How long one call may take."""
    boot_timeout: Duration = "15m"
    """From the call to a node that is ready with its GPUs. A machine that takes longer is switched off and left alone
    for a while."""
    tls: MachineTLS | None = None
    """How calls to https endpoints are secured."""
    gpu_type: ShortText | None = None
    """Model of the GPUs, such as RTX4090: pods may ask for it by the label forebay.dev/gpu-type. Default: learned from
    the node."""
    gpu_resource_name: ResourceName = "nvidia.com/gpu"
    """Resource by which pods ask for the GPUs."""
    cpu: PositiveQuantity | None = None
    """CPUs that pods can use, such as 30. Default: learned from the node once it has been seen."""
    memory: PositiveQuantity | None = None
    """Memory that pods can use, such as 240Gi. Default: learned from the node once it has been seen."""
    labels: NodeLabels = field(default_factory=dict)
    """Labels the node is known to have, for pods that ask for them. Default: learned from the node."""
    taints: Taints = ()
    """Taints the node is known to have. Default: learned from the node."""
    hourly_price: Dollars = 0
    """What an hour of it costs in US dollars, for power and cooling. Machines that cost the same are taken smallest
    first."""
