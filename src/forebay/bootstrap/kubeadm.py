"""Machines that join by kubeadm."""

import shlex
from collections.abc import Collection
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from forebay.api.gpu_instance import GPUInstance
from forebay.api.joining import KubeadmConfig
from forebay.bootstrap.node_registration import kubelet_labels, node_variables, registered_taints
from forebay.bootstrap.scripts import file_step, script

_CONFIG: Final = "/run/forebay/join.yaml"
_NODE_IP: Final = "FOREBAY_NODE_IP"
_RELEASES: Final = "https://dl.k8s.io/release"

_PREPARE: Final = """\
# What kubelets expect of a machine.
swapoff --all
printf 'overlay\\nbr_netfilter\\n' > /etc/modules-load.d/forebay.conf
modprobe overlay
modprobe br_netfilter
printf 'net.ipv4.ip_forward = 1\\nnet.bridge.bridge-nf-call-iptables = 1\\n' > /etc/sysctl.d/90-forebay.conf
sysctl --quiet --load=/etc/sysctl.d/90-forebay.conf

missing=()
for tool in containerd conntrack iptables; do
  command -v "$tool" > /dev/null || missing+=("$tool")
done
if [ "${#missing[@]}" -gt 0 ]; then
  say "installing ${missing[*]}"
  apt-get -o DPkg::Lock::Timeout=600 update --quiet
  apt-get -o DPkg::Lock::Timeout=600 install --quiet --yes "${missing[@]}"
fi

# containerd as kubelets need it; an image that is set up for Kubernetes already is left as it is.
if ! grep --quiet --no-messages 'SystemdCgroup = true' /etc/containerd/config.toml; then
  mkdir -p /etc/containerd
  containerd config default | sed 's/SystemdCgroup = false/SystemdCgroup = true/' > /etc/containerd/config.toml
  if command -v nvidia-ctk > /dev/null; then
    nvidia-ctk runtime configure --runtime=containerd --set-as-default
  else
    say "no NVIDIA container toolkit in this image: pods get no GPUs until something in the cluster installs it"
  fi
  systemctl restart containerd
fi
systemctl enable --now containerd
"""

_UNIT: Final = """\
[Unit]
Description=kubelet
Wants=network-online.target
After=network-online.target containerd.service tailscaled.service

[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/local/bin/kubelet \\
  --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
  --kubeconfig=/etc/kubernetes/kubelet.conf \\
  --config=/var/lib/kubelet/config.yaml \\
  $KUBELET_KUBEADM_ARGS
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


def authority_hashes(pem: bytes) -> tuple[str, ...]:
    """Hashes of the public keys in a bundle of certificates, as kubeadm pins them. Raises `ValueError`."""
    return tuple(sorted({_pin(each) for each in x509.load_pem_x509_certificates(pem)}))


def _pin(certificate: x509.Certificate) -> str:
    key = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key)
    return f"sha256:{digest.finalize().hex()}"


def join_configuration(
    record: GPUInstance, config: KubeadmConfig, *, token: str, pins: Collection[str], node_ip: str | None = None
) -> str:
    """The JoinConfiguration of one machine. `pins` are the CA keys to trust where the class names none."""
    registration = node_variables(record)
    labels = ",".join(f"{key}={value}" for key, value in kubelet_labels(record).items())
    arguments = {"node-labels": labels, "provider-id": registration["ProviderID"]}
    if node_ip is not None:
        arguments["node-ip"] = node_ip
    taints = [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in registered_taints(record)]
    document: dict[str, Any] = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {
            "bootstrapToken": {
                "apiServerEndpoint": config.control_plane_endpoint,
                "token": token,
                "caCertHashes": sorted(config.ca_cert_hashes or pins),
            },
            "tlsBootstrapToken": token,
        },
        "nodeRegistration": {
            "name": registration["NodeName"],
            "criSocket": "unix:///run/containerd/containerd.sock",
            "taints": taints,
            "kubeletExtraArgs": [{"name": name, "value": value} for name, value in arguments.items()],
        },
    }
    return yaml.safe_dump(document, sort_keys=False, width=10_000)


def kubeadm_script(
    record: GPUInstance,
    config: KubeadmConfig,
    *,
    token: str,
    version: str,
    pins: Collection[str],
    network: str | None = None,
) -> str:
    """The boot script. `network` is the step that enters a network first, and sets `node_ip`."""
    node_ip = _NODE_IP if network is not None else None
    configuration = join_configuration(record, config, token=token, pins=pins, node_ip=node_ip)
    binaries = f"""\
version={shlex.quote(version)}
for program in kubeadm kubelet; do
  if ! grep --quiet --no-messages --line-regexp --fixed-strings "$version" "/var/lib/forebay/$program.version"; then
    say "fetching $program $version for $arch"
    fetch "{_RELEASES}/$version/bin/linux/$arch/$program" "/usr/local/bin/$program"
    fetch "{_RELEASES}/$version/bin/linux/$arch/$program.sha256" "/var/lib/forebay/$program.sha256"
    verify "/usr/local/bin/$program" "$(cat "/var/lib/forebay/$program.sha256")"
    chmod 755 "/usr/local/bin/$program"
    echo "$version" > "/var/lib/forebay/$program.version"
  fi
done
"""
    address = f'sed --in-place "s/{_NODE_IP}/$node_ip/" {_CONFIG}\n' if network is not None else ""
    join = f"""\
systemctl daemon-reload
systemctl enable kubelet.service
if [ -e /etc/kubernetes/kubelet.conf ]; then
  say "this machine has joined before"
  rm -f {_CONFIG}
  systemctl start --no-block kubelet.service
else
  rm -f /etc/kubernetes/bootstrap-kubelet.conf /etc/kubernetes/pki/ca.crt
  /usr/local/bin/kubeadm join --config {_CONFIG}
  rm -f {_CONFIG}
fi
"""
    return script(
        *([network] if network is not None else []),
        _PREPARE,
        binaries,
        file_step("/etc/systemd/system/kubelet.service", _UNIT, mode="644"),
        file_step(_CONFIG, configuration) + address,
        join,
    )
