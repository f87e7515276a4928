"""Tailscale on a rented machine: how it enters the network before it joins the cluster."""

import hashlib
import re
import shlex
from collections.abc import Mapping
from typing import Final

from forebay.api.gpu_instance import GPUInstance
from forebay.api.joining import TailscaleConfig
from forebay.bootstrap.node_registration import node_variables
from forebay.bootstrap.scripts import file_step
from forebay.bootstrap.templates import filled_in, variables_of

#: Variable of the machine's own key.
AUTH_KEY: Final = "TailscaleAuthKey"
#: Names of the template variables that need tailscaleConfig.
TAILSCALE_VARIABLES: Final = frozenset({AUTH_KEY, "TailscaleHostname", "TailscaleTags", "TailscaleFlags"})
_KEY_FILE: Final = "/run/forebay/tailscale-key"
_LONGEST_HOSTNAME: Final = 63
_NOT_IN_HOSTNAME: Final = re.compile(r"[^a-z0-9-]+")
#: Characters that tell machines apart whose names would be the same.
_OWN_PART: Final = 10


def hostname(record: GPUInstance, config: TailscaleConfig) -> str:
    """Name of the machine in the tailnet, which no other machine has. Raises `UnusableTemplate`.

    Devices are found and deleted by it: where the template does not name the node, or a long name is cut off, it ends
    with what the record alone has. Control servers change other characters than these in ways of their own.
    """
    template = config.hostname or "{{.NodeName}}"
    named = _NOT_IN_HOSTNAME.sub("-", filled_in(template, node_variables(record)).lower()).strip("-")
    if "NodeName" in variables_of(template) and len(named) <= _LONGEST_HOSTNAME:
        return named
    own = hashlib.sha256(record.uid.encode()).hexdigest()[:_OWN_PART]
    return f"{named[: _LONGEST_HOSTNAME - _OWN_PART - 1].rstrip('-')}-{own}".lstrip("-")


def flags(config: TailscaleConfig) -> list[str]:
    """Arguments of `tailscale up` besides key and hostname. Tags are not among them: the key has them, and a control
    server may refuse a machine that asks for tags itself.
    """
    found = []
    if config.control_url is not None:
        found.append(f"--login-server={config.control_url}")
    found.append(f"--accept-routes={'true' if config.accept_routes else 'false'}")
    if config.advertise_routes:
        found.append(f"--advertise-routes={','.join(sorted(config.advertise_routes))}")
    return found


def tailscale_variables(record: GPUInstance, config: TailscaleConfig | None) -> Mapping[str, str]:
    """Values of the template variables that follow from tailscaleConfig, but for the key."""
    if config is None:
        return {}
    return {
        "TailscaleHostname": hostname(record, config),
        "TailscaleTags": ",".join(sorted(config.tags)),
        "TailscaleFlags": " ".join(map(shlex.quote, flags(config))),
    }


def tailscale_step(record: GPUInstance, config: TailscaleConfig, key: str) -> str:
    """The step of a boot script that enters the network; `node_ip` is the machine's address there."""
    up = shlex.join(["tailscale", "up", f"--auth-key=file:{_KEY_FILE}", f"--hostname={hostname(record, config)}"])
    arguments = shlex.join(flags(config))
    return f"""\
# The tailnet, by a key that works once and expires soon.
if ! command -v tailscale > /dev/null; then
  fetch https://tailscale.com/install.sh /var/lib/forebay/install-tailscale.sh
  sh /var/lib/forebay/install-tailscale.sh
fi
systemctl enable --now tailscaled
if ! tailscale status --peers=false > /dev/null 2>&1; then
{file_step(_KEY_FILE, key)}  {up} {arguments} --timeout=180s
fi
rm -f {_KEY_FILE}
node_ip=""
for _ in $(seq 60); do
  node_ip=$(tailscale ip -4 2> /dev/null | head -n 1) || true
  [ -z "$node_ip" ] || break
  sleep 2
done
if [ -z "$node_ip" ]; then
  say "this machine got no address in the tailnet"
  exit 1
fi
"""


def extension_service(record: GPUInstance, config: TailscaleConfig, key: str) -> Mapping[str, object]:
    """The document that configures Talos' Tailscale extension, which reads nothing else."""
    environment = [
        f"TS_AUTHKEY={key}",
        f"TS_HOSTNAME={hostname(record, config)}",
        "TS_AUTH_ONCE=true",
        f"TS_ACCEPT_ROUTES={'true' if config.accept_routes else 'false'}",
    ]
    if config.advertise_routes:
        environment.append(f"TS_ROUTES={','.join(sorted(config.advertise_routes))}")
    if config.control_url is not None:
        environment.append(f"TS_EXTRA_ARGS=--login-server={config.control_url}")
    return {"apiVersion": "v1alpha1", "kind": "ExtensionServiceConfig", "name": "tailscale", "environment": environment}
