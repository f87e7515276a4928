"""Machine config templates of tgp-operator: what Talos never did with them is taken out, what is missing is added."""

import re
from typing import Any, Final

import yaml

from forebay.migrate.notes import Notes, items, listed, mapping

_VARIABLE: Final = re.compile(r"\{\{-?\s*\.([A-Za-z]+)\s*-?\}\}")
_STAND_IN: Final = "forebay-variable-{}-"
_STANDING_IN: Final = re.compile(r"forebay-variable-([A-Za-z]+)-")
#: Talos lets a machine config create files only there.
_WRITABLE: Final = "/var/"


class UnreadableTemplate(ValueError):
    """The template is no YAML, or has logic: nothing is concluded from it."""


def read_template(text: str) -> dict[str, Any]:
    """The template's document, with stand-ins for its variables."""
    stood_in = _VARIABLE.sub(lambda found: _STAND_IN.format(found[1]), text)
    if "{{" in stood_in:
        raise UnreadableTemplate("it has logic of Go templates; Forebay knows variables such as {{.NodeName}} only")
    try:
        found = yaml.safe_load(stood_in)
    except yaml.YAMLError as error:
        raise UnreadableTemplate(f"it is not YAML ({getattr(error, 'problem', None) or 'no reason given'})") from None
    if not isinstance(found, dict):
        raise UnreadableTemplate("it is no mapping with machine and cluster")
    if strange := [name for name in ("machine", "cluster") if not isinstance(found.get(name) or {}, dict)]:
        raise UnreadableTemplate(f"{listed(strange)} in it is no mapping")
    return found


def written(config: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=False)
    return _STANDING_IN.sub(lambda found: "{{." + found[1] + "}}", text)


def corrected(config: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """The machine config of a worker that can join, with what was wrong in the notes."""
    machine, cluster = mapping(config, "machine"), mapping(config, "cluster")
    note_systemd(config, notes)
    machine.pop("systemd", None)
    kept = [
        each for each in items(machine, "files") if str(mapping({"f": each}, "f").get("path")).startswith(_WRITABLE)
    ]
    machine.pop("files", None)
    added: list[str] = []
    if machine.get("type") != "worker":
        machine, added = {"type": "worker", **machine}, [*added, "machine.type: worker"]
    machine["ca"] = {"crt": _variable("MachineCA")}
    network = mapping(machine, "network")
    if network.get("hostname") != _variable("NodeName"):
        machine["network"] = {**network, "hostname": _variable("NodeName")}
        added.append("machine.network.hostname: {{.NodeName}}")
    kubelet = mapping(machine, "kubelet")
    arguments = {"provider-id": _variable("ProviderID"), **mapping(kubelet, "extraArgs")}
    machine["kubelet"] = {**kubelet, "extraArgs": arguments}
    if kept:
        machine["files"] = kept
    if not cluster.get("token"):
        cluster["token"] = _variable("BootstrapToken")
        added.append("cluster.token: {{.BootstrapToken}}")
    if not mapping(cluster, "ca").get("crt"):
        cluster["ca"] = {"crt": _variable("ClusterCA")}
        added.append("cluster.ca.crt: {{.ClusterCA}}")
    if added:
        notes.changed(f"The machine config now has what a worker cannot join without: {listed(added)}.")
    notes.changed("machine.ca.crt is {{.MachineCA}}: ClusterCA is the CA of Kubernetes, which signs nothing for Talos.")
    return {**config, "machine": machine, "cluster": cluster}


def note_systemd(config: dict[str, Any], notes: Notes) -> None:
    """Says what in the config Talos has never done."""
    machine = mapping(config, "machine")
    paths = [str(each.get("path")) for each in items(machine, "files") if isinstance(each, dict)]
    refused = [path for path in paths if not path.startswith(_WRITABLE)]
    if "systemd" in machine or any("systemd" in path for path in paths):
        notes.impossible(
            "Talos has neither systemd nor a shell: the units of the machine config never ran, so no machine ever "
            "entered the tailnet. Forebay takes them out; tailscaleConfig enters it by Talos' Tailscale extension, or "
            "by a step of the boot script where machines boot another Linux."
        )
    if refused:
        notes.impossible(f"Talos lets nobody create {listed(refused)}, only files below /var. They are taken out.")


def node_labels(config: dict[str, Any]) -> dict[str, str]:
    """Labels of nodes that the config states and that do not differ from machine to machine."""
    found = mapping(mapping(config, "machine"), "nodeLabels")
    own = ("tgp.io/", "kubernetes.io/", "k8s.io/")
    return {
        str(key): str(value)
        for key, value in found.items()
        if not _STANDING_IN.search(str(value)) and not any(part in str(key) for part in own)
    }


def _variable(name: str) -> str:
    return _STAND_IN.format(name)
