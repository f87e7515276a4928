"""Machines that join as k3s agents."""

import shlex
from typing import Final

import yaml

from forebay.api.gpu_instance import GPUInstance
from forebay.api.joining import K3sConfig
from forebay.bootstrap.node_registration import kubelet_labels, node_variables, registered_taints, taint_text
from forebay.bootstrap.scripts import file_step, script

_CONFIG: Final = "/etc/rancher/k3s/config.yaml"
_UNIT: Final = "/etc/systemd/system/k3s-agent.service"
_RELEASES: Final = "https://github.com/k3s-io/k3s/releases/download"
#: What marks an API server as one of k3s: v1.36.4+k3s1.
_MARK: Final = "+k3s"


def is_k3s(version: str) -> bool:
    """True where an API server of this version takes bootstrap tokens of single agents: every k3s that Forebay
    supports.
    """
    return _MARK in version


def join_token(agent_token: str, bootstrap_token: str | None) -> str:
    """The token that the machine joins with: its own where it has one, with the CA hash of the class's agent token, by
    which the machine knows the server.
    """
    if bootstrap_token is None:
        return agent_token
    prefix, separator, _ = agent_token.partition("::")
    pinned = separator and prefix.startswith("K10")
    return f"{prefix}::{bootstrap_token}" if pinned else bootstrap_token


def k3s_script(record: GPUInstance, config: K3sConfig, *, token: str, version: str, network: str | None = None) -> str:
    """The boot script of a k3s agent. `network` is the step that enters a network first, and sets `node_ip`."""
    registration = node_variables(record)
    settings = {
        "server": config.server_url,
        "token": token,
        "node-name": registration["NodeName"],
        "node-label": [f"{key}={value}" for key, value in kubelet_labels(record).items()],
        "node-taint": [taint_text(each) for each in registered_taints(record)],
        "kubelet-arg": [f"provider-id={registration['ProviderID']}"],
    }
    command = " ".join(("/usr/local/bin/k3s agent", *map(_unit_word, config.extra_args)))
    unit = f"""\
[Unit]
Description=k3s agent of Forebay
Wants=network-online.target
After=network-online.target tailscaled.service

[Service]
Type=exec
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart={command}
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s

[Install]
WantedBy=multi-user.target
"""
    release = f"{_RELEASES}/{version.replace('+', '%2B')}"
    binary = f"""\
version={shlex.quote(version)}
if ! /usr/local/bin/k3s --version 2> /dev/null | grep --quiet --fixed-strings "$version"; then
  say "fetching k3s $version for $arch"
  file=k3s
  if [ "$arch" != amd64 ]; then
    file="k3s-$arch"
  fi
  fetch {shlex.quote(release)}/"$file" /usr/local/bin/k3s
  fetch {shlex.quote(release)}/"sha256sum-$arch.txt" /var/lib/forebay/k3s.sha256
  verify /usr/local/bin/k3s "$(awk -v file="$file" '$2 == file {{ print $1 }}' /var/lib/forebay/k3s.sha256)"
  chmod 755 /usr/local/bin/k3s
fi
"""
    runtime = f"""\
if command -v nvidia-container-runtime > /dev/null; then
  echo 'default-runtime: nvidia' >> {_CONFIG}
else
  say "no nvidia-container-runtime in this image: pods get no GPUs until something in the cluster installs it"
fi
"""
    address = f'echo "node-ip: $node_ip" >> {_CONFIG}\n' if network is not None else ""
    return script(
        *([network] if network is not None else []),
        binary,
        file_step(_CONFIG, yaml.safe_dump(settings, sort_keys=False, width=10_000)),
        address + runtime,
        file_step(_UNIT, unit, mode="644"),
        "systemctl daemon-reload\nsystemctl enable k3s-agent.service\nsystemctl restart --no-block k3s-agent.service\n",
    )


def _unit_word(argument: str) -> str:
    """One argument as systemd reads it in ExecStart."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
