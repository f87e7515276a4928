"""How a rented machine joins the cluster: what it boots and which network it enters."""

from typing import Annotated, ClassVar

from msgspec import Meta, field

from forebay.api.parts import Part, SecretKeyRef
from forebay.api.rules import AS_SET, ATOMIC_LIST, CIDR, RefusalCause, ValidationRule, checked
from forebay.api.values import Duration, NamespaceName, ObjectName, ShortText, Url

_TEMPLATE = Meta(min_length=1, max_length=262144)
_VERSION = Meta(max_length=64, pattern="^v[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}([-+][-+0-9A-Za-z.]+)?$")


def _talos(pattern: str, remedy: str) -> ValidationRule:
    """A check of the text: the template is YAML only after its variables are filled in, long after admission."""
    return ValidationRule(f"self.matches('(?m)^{pattern}')", f"is not a Talos machine config: {remedy}")


class TalosConfig(Part, frozen=True, kw_only=True):
    """Machines boot Talos Linux and join with the cluster's own machine secrets."""

    rules: ClassVar = (
        ValidationRule(
            "has(self.machineConfigTemplate) || has(self.secretsRef)",
            "set machineConfigTemplate, or secretsRef and let Forebay write the machine config, or both",
            reason=RefusalCause.REQUIRED,
            field_path=".machineConfigTemplate",
        ),
        ValidationRule(
            "has(self.secretsRef) || !has(self.machineConfigTemplate) || !self.machineConfigTemplate"
            ".matches('[{][{]-? *[.](MachineToken|MachineCA|ClusterCA|ClusterID|ClusterSecret) *-?[}][}]')",
            "machineConfigTemplate uses MachineToken, MachineCA, ClusterCA, ClusterID or ClusterSecret:"
            " set secretsRef to the Secret they come from",
            reason=RefusalCause.REQUIRED,
            field_path=".secretsRef",
        ),
    )

    image: ShortText | None = None
    """Image that machines boot: the name of a Talos image at the provider, made by Talos' Image Factory with the NVIDIA
    extensions, and with the Tailscale extension where tailscaleConfig is set."""
    version: Annotated[str, _VERSION] = "v1.13.9"
    """Talos version that the machine config is written for."""
    machine_config_template: (
        Annotated[
            str,
            _TEMPLATE,
            checked(
                _talos("version: *.?v1alpha1", "the line version: v1alpha1 is missing"),
                _talos("machine:", "the section machine is missing"),
                _talos(" +token:", "machine.token is missing; write token: {{.MachineToken}}"),
                _talos("cluster:", "the section cluster is missing"),
                _talos(" +id:", "cluster.id is missing; write id: {{.ClusterID}}"),
                _talos(" +secret:", "cluster.secret is missing; write secret: {{.ClusterSecret}}"),
                _talos(
                    " +controlPlane:", "cluster.controlPlane is missing; give it endpoint: {{.ControlPlaneEndpoint}}"
                ),
                ValidationRule(
                    "self.matches('[{][{]-? *[.]NodeName *-?[}][}]')",
                    "must set the hostname to {{.NodeName}}, or Forebay cannot tell which node is which machine",
                ),
                ValidationRule(
                    "!self.matches('(?m)^ +systemd:')",
                    "Talos has no systemd: remove that section; with tailscaleConfig Forebay adds Tailscale by itself",
                ),
            ),
        ]
        | None
    ) = None
    """Talos machine config of a worker, as a template. Variables such as {{.NodeName}} are filled in for every machine:
    MachineToken, MachineCA, ClusterCA, ClusterID, ClusterSecret, BootstrapToken, ControlPlaneEndpoint, ClusterName,
    NodeName, NodePool, NodePoolName, NodeIndex, NodeLabels, NodeTaints, InstanceType, Region, ProviderID, TalosImage,
    KubeletImage, TailscaleAuthKey, TailscaleHostname, TailscaleTags and TailscaleFlags; there is no logic. Default:
    written by Forebay from secretsRef."""
    secrets_ref: SecretKeyRef | None = None
    """The cluster's machine secrets, in the form that talosctl gen secrets writes."""
    kubelet_image: ShortText | None = None
    """Kubelet image. Default: the one of the cluster's own version."""
    control_plane_endpoint: Url | None = None
    """URL of the API server as the machines reach it, such as https://10.0.0.1:6443. Needed unless the template states
    it."""
    cluster_name: ShortText = "kubernetes"
    """Name of the cluster in machine configs."""


class K3sConfig(Part, frozen=True, kw_only=True):
    """Machines boot the provider's Linux and join as k3s agents."""

    server_url: Url = field(name="serverURL")
    """URL of the k3s server as the machines reach it, such as https://10.0.0.1:6443."""
    token_secret_ref: SecretKeyRef
    """The agent token. Forebay never shows it anywhere."""
    version: Annotated[str, _VERSION] | None = None
    """k3s version to install, such as v1.36.4+k3s1. Default: the version of the cluster."""
    extra_args: Annotated[tuple[ShortText, ...], Meta(max_length=64), ATOMIC_LIST] = ()
    """More arguments for k3s agent, such as --flannel-iface=tailscale0."""


class KubeadmConfig(Part, frozen=True, kw_only=True):
    """Machines boot the provider's Linux and join by kubeadm, each with its own short-lived bootstrap token."""

    control_plane_endpoint: Annotated[
        str, Meta(max_length=253, pattern="^[^:/ ]+:[0-9]{1,5}$|^\\[[0-9a-f:]+\\]:[0-9]{1,5}$")
    ]
    """Host and port of the API server as the machines reach it, such as 10.0.0.1:6443."""
    kubernetes_version: Annotated[str, _VERSION] | None = None
    """Kubernetes version to install, such as v1.36.4. Default: the version of the cluster."""
    ca_cert_hashes: Annotated[
        tuple[Annotated[str, Meta(max_length=71, pattern="^sha256:[0-9a-f]{64}$")], ...], Meta(max_length=8), AS_SET
    ] = ()
    """Hashes of the CA keys that machines may trust. Default: the hash of the cluster's own CA."""
    token_ttl: Duration = field(name="tokenTTL", default="1h")
    """How long a machine's bootstrap token lives. It is deleted as soon as the machine has joined."""


class CloudInit(Part, frozen=True, kw_only=True):
    """Machines boot the provider's Linux with user data of yours."""

    template: Annotated[str, _TEMPLATE]
    """Cloud-init user data, or a script that begins with #!, as a template. It must make the machine join the cluster
    under the name {{.NodeName}}. Further variables: BootstrapToken, NodeLabels, NodeTaints, ProviderID, NodePool,
    NodePoolName, NodeIndex, InstanceType, Region, and with tailscaleConfig TailscaleAuthKey, TailscaleHostname,
    TailscaleTags and TailscaleFlags; there is no logic."""


class OAuthCredentialsSecretRef(Part, frozen=True, kw_only=True):
    """The Secret with the client of Tailscale's API. The client needs the scopes auth_keys and devices:core."""

    name: ObjectName
    """Name of the Secret."""
    namespace: NamespaceName | None = None
    """Namespace of the Secret. Default: the namespace Forebay runs in."""
    client_id_key: ShortText = "client-id"
    """Key of the client id."""
    client_secret_key: ShortText = "client-secret"  # noqa: S105 (the name of a key, not a secret)
    """Key of the client secret."""


class TailscaleConfig(Part, frozen=True, kw_only=True):
    """Machines enter a Tailscale network before they join, each with its own single-use key. Forebay removes their
    devices and unused keys again.
    """

    hostname: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Name in the tailnet, as a template. Default: {{.NodeName}}."""
    tags: Annotated[
        tuple[Annotated[str, Meta(max_length=128, pattern="^tag:[A-Za-z][-A-Za-z0-9]*$")], ...],
        Meta(min_length=1, max_length=16),
        AS_SET,
    ] = ("tag:k8s",)
    """Tags of the devices. They must be owned by the OAuth client's own tags."""
    ephemeral: bool = True
    """Tailscale forgets the device soon after it goes offline."""
    accept_routes: bool = False
    """Machines use the subnet routes that other devices advertise."""
    advertise_routes: Annotated[tuple[Annotated[str, Meta(max_length=64), CIDR], ...], Meta(max_length=32), AS_SET] = ()
    """Subnets that the machines advertise, such as 10.1.0.0/16."""
    oauth_credentials_secret_ref: OAuthCredentialsSecretRef
    """The OAuth client that makes the keys."""
    control_url: Url | None = field(name="controlURL", default=None)
    """Control server of your own, such as Headscale. Default: Tailscale's."""
