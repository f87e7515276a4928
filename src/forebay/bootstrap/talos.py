"""Talos machine configs: from a class's template, or written from the cluster's machine secrets."""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.joining import TalosConfig
from forebay.bootstrap.node_registration import NODE_VARIABLES, kubelet_labels, node_variables, registered_taints
from forebay.bootstrap.tailscale import AUTH_KEY, TAILSCALE_VARIABLES, extension_service, tailscale_variables
from forebay.bootstrap.talos_checks import config_problem, documents_of
from forebay.bootstrap.templates import UnusableTemplate, filled_in

#: Variables that come from the machine secrets.
SECRET_VARIABLES: Final = frozenset({"MachineToken", "MachineCA", "ClusterCA", "ClusterID", "ClusterSecret"})
#: Variables that come from talosConfig and the cluster.
_CLUSTER_VARIABLES: Final = frozenset(
    {"ControlPlaneEndpoint", "ClusterName", "TalosImage", "KubeletImage", "BootstrapToken"}
)
#: Kernel modules of the NVIDIA driver; the image must have them, by its extensions.
_NVIDIA_MODULES: Final = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")
#: From this version on the name of a machine is a document of its own.
_HOSTNAME_DOCUMENT: Final = (1, 12)


class UnusableMachineSecrets(ValueError):
    """The Secret does not hold what `talosctl gen secrets` writes. The text holds no secret."""


class _Pair(msgspec.Struct, frozen=True):
    crt: str


class _Certificates(msgspec.Struct, frozen=True):
    k8s: _Pair
    os: _Pair


class _Cluster(msgspec.Struct, frozen=True):
    id: str
    secret: str


class _Trustd(msgspec.Struct, frozen=True):
    token: str


class MachineSecrets(msgspec.Struct, frozen=True):
    """What workers need of the cluster's machine secrets. The keys of its authorities are not read."""

    cluster: _Cluster
    trustdinfo: _Trustd
    certs: _Certificates

    def __repr__(self) -> str:
        return "MachineSecrets()"


def machine_secrets(text: str) -> MachineSecrets:
    """The secrets in the form of `talosctl gen secrets`. Raises `UnusableMachineSecrets`."""
    try:
        return msgspec.convert(yaml.safe_load(text), MachineSecrets)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The text of any other error may show the line that it stumbled on.
        reason = str(error) if isinstance(error, msgspec.ValidationError) else "it is not YAML"
        raise UnusableMachineSecrets(f"this is not what talosctl gen secrets writes: {reason}") from None


def known_talos_variables(spec: GPUNodeClassSpec) -> frozenset[str]:
    """Names that the machine config template of the class may use."""
    talos, known = spec.talos_config, NODE_VARIABLES | _CLUSTER_VARIABLES
    if talos is not None and talos.secrets_ref is not None:
        known |= SECRET_VARIABLES
    return known | TAILSCALE_VARIABLES if spec.tailscale_config is not None else known


def cluster_values(config: TalosConfig, secrets: MachineSecrets | None, kubelet_image: str) -> Mapping[str, str]:
    """Values of the variables that are the same for all machines of the class, which may name no kubelet image."""
    values = {
        "ControlPlaneEndpoint": config.control_plane_endpoint or "",
        "ClusterName": config.cluster_name,
        "TalosImage": config.image or f"ghcr.io/siderolabs/installer:{config.version}",
        "KubeletImage": config.kubelet_image or kubelet_image,
    }
    if secrets is None:
        return values
    return values | {
        "MachineToken": secrets.trustdinfo.token,
        "MachineCA": secrets.certs.os.crt,
        "ClusterCA": secrets.certs.k8s.crt,
        "ClusterID": secrets.cluster.id,
        "ClusterSecret": secrets.cluster.secret,
    }


def machine_config(record: GPUInstance, spec: GPUNodeClassSpec, values: Mapping[str, str]) -> str:
    """The machine config of one machine. `values` are those of `cluster_values` and of its join credentials.

    Raises `UnusableTemplate`, also where Talos would take the config and the machine could never join.
    """
    config, tailscale = spec.talos_config, spec.tailscale_config
    assert config is not None
    if config.machine_config_template is None:
        text = _written(record, config, values)
    else:
        text = filled_in(
            config.machine_config_template,
            {**node_variables(record), **tailscale_variables(record, tailscale), **values},
        )
    if tailscale is not None and AUTH_KEY in values and not _configures_tailscale(text):
        text = f"{text.rstrip()}\n---\n{_yaml(extension_service(record, tailscale, values[AUTH_KEY]))}"
    if (problem := config_problem(text, node_name=record.node_name or "")) is not None:
        raise UnusableTemplate(f"the machine config cannot work: {problem}")
    return text


def _written(record: GPUInstance, config: TalosConfig, values: Mapping[str, str]) -> str:
    taints = [{"key": each.key, "value": each.value, "effect": str(each.effect)} for each in registered_taints(record)]
    machine: dict[str, Any] = {
        "type": "worker",
        "token": values["MachineToken"],
        "ca": {"crt": values["MachineCA"], "key": ""},
        "kubelet": {
            "image": values["KubeletImage"],
            "extraArgs": {"provider-id": node_variables(record)["ProviderID"]},
            # Taints by registration: a kubelet may not add any later.
            "extraConfig": {"registerWithTaints": taints},
        },
        "nodeLabels": dict(kubelet_labels(record)),
        "kernel": {"modules": [{"name": each} for each in _NVIDIA_MODULES]},
        "sysctls": {"net.core.bpf_jit_harden": "1"},
    }
    name = record.node_name
    documents: list[dict[str, Any]] = []
    if _version(config.version) >= _HOSTNAME_DOCUMENT:
        documents.append({"apiVersion": "v1alpha1", "kind": "HostnameConfig", "hostname": name, "auto": "off"})
    else:
        machine["network"] = {"hostname": name}
    cluster = {
        "id": values["ClusterID"],
        "secret": values["ClusterSecret"],
        "controlPlane": {"endpoint": values["ControlPlaneEndpoint"]},
        "clusterName": values["ClusterName"],
        "token": values["BootstrapToken"],
        "ca": {"crt": values["ClusterCA"], "key": ""},
        "discovery": {"enabled": True},
    }
    first = {"version": "v1alpha1", "persist": True, "machine": machine, "cluster": cluster}
    return "---\n".join(map(_yaml, (first, *documents)))


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=10_000)


def _configures_tailscale(text: str) -> bool:
    return any(
        each.get("kind") == "ExtensionServiceConfig" and each.get("name") == "tailscale" for each in documents_of(text)
    )


def _version(text: str) -> tuple[int, int]:
    found = re.match(r"v(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found is not None else _HOSTNAME_DOCUMENT
