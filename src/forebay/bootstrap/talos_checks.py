"""What Talos accepts in a machine config although no machine could ever join with it.

Talos' own validation is stricter about everything else; `make parts` runs both on what Forebay writes.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import yaml
from cryptography import x509

from forebay.bootstrap.templates import UnusableTemplate, filled_in

#: What stands for a value in the check of a template.
_PLACEHOLDER: Final = "forebay-checks-{}"


def documents_of(text: str) -> list[Mapping[str, Any]]:
    """The documents of a machine config. Raises `UnusableTemplate`."""
    try:
        found = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise UnusableTemplate(f"the machine config is not YAML: {getattr(error, 'problem', None)}{where}") from None
    except (ValueError, RecursionError):
        # Of a date that does not exist, of `!!int text`, and of more nested brackets than can be read. Without the text
        # of the error, which may quote a secret.
        raise UnusableTemplate(
            "the machine config is not YAML: a value is not of the type that it is written as, or nested too deeply"
        ) from None
    if not all(isinstance(each, dict) for each in found):
        raise UnusableTemplate("the machine config has a document that is no mapping")
    return found


@lru_cache(maxsize=64)
def template_fault(template: str, known: frozenset[str], *, endpoint: bool) -> str | None:
    """What is wrong with a machine config template, as far as its text tells; None: nothing. `endpoint`: the class has
    a control plane endpoint.
    """
    values = {name: _PLACEHOLDER.format(name) for name in known}
    values["ControlPlaneEndpoint"] = "https://forebay-checks:6443" if endpoint else ""
    try:
        text = filled_in(template, values)
        return config_problem(text, node_name=values["NodeName"], placeholders=values)
    except UnusableTemplate as error:
        return str(error).rstrip(".")


def config_problem(text: str, *, node_name: str, placeholders: Mapping[str, str] | None = None) -> str | None:
    """Why no machine could join with this config; None: it could. `placeholders` stand for values not known yet."""
    documents = documents_of(text)
    main = next((each for each in documents if "kind" not in each), None)
    if main is None:
        return "it has no document with machine and cluster"
    machine, cluster = _mapping(main, "machine"), _mapping(main, "cluster")
    standing_in = frozenset((placeholders or {}).values())
    faults = (
        *_machine_faults(machine, standing_in),
        *_cluster_faults(cluster, standing_in),
        *_authority_faults(machine, cluster, placeholders or {}),
        *_name_faults(machine, documents, node_name),
        *(fault for each in documents for fault in _service_faults(each)),
    )
    return next((each for each in faults if each), None)


def _machine_faults(machine: Mapping[str, Any], standing_in: frozenset[str]) -> Sequence[str]:
    found = []
    if machine.get("type") != "worker":
        found.append("machine.type is not worker: write type: worker")
    if not machine.get("token"):
        found.append("machine.token is missing: it must be {{.MachineToken}}")
    found.append(_certificate_fault(_mapping(machine, "ca").get("crt"), "machine.ca.crt", "MachineCA", standing_in))
    if "systemd" in machine:
        found.append("machine.systemd: Talos has no systemd; remove that section")
    for file in _entries(machine, "files"):
        if not isinstance(file, dict):
            found.append("machine.files has an entry that is no mapping: give each path, permissions, op and content")
            continue
        path = str(file.get("path", ""))
        if file.get("op") == "create" and not path.startswith("/var/"):
            found.append(f"machine.files: Talos lets nobody create {path}, only files below /var")
    return found


def _cluster_faults(cluster: Mapping[str, Any], standing_in: frozenset[str]) -> Sequence[str]:
    endpoint = str(_mapping(cluster, "controlPlane").get("endpoint") or "")
    found = [_certificate_fault(_mapping(cluster, "ca").get("crt"), "cluster.ca.crt", "ClusterCA", standing_in)]
    if not cluster.get("token"):
        found.append("cluster.token is missing: it must be {{.BootstrapToken}}")
    if not endpoint.startswith("https://"):
        found.append(
            "cluster.controlPlane.endpoint is no https URL: write {{.ControlPlaneEndpoint}}, and set "
            "talosConfig.controlPlaneEndpoint"
        )
    return found


def _certificate_fault(text: object, where: str, variable: str, standing_in: frozenset[str]) -> str:
    remedy = f"write crt: {{{{.{variable}}}}}"
    if not isinstance(text, str) or not text:
        return f"{where} is missing: {remedy}"
    if text in standing_in:
        return ""
    try:
        x509.load_pem_x509_certificate(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        return f"{where} is not a certificate in base64: {remedy}"
    return ""


def _authority_faults(
    machine: Mapping[str, Any], cluster: Mapping[str, Any], placeholders: Mapping[str, str]
) -> Sequence[str]:
    own, kubernetes = _mapping(machine, "ca").get("crt"), _mapping(cluster, "ca").get("crt")
    if own and (own == kubernetes or own == placeholders.get("ClusterCA")):
        return ["machine.ca.crt is the CA of Kubernetes, which signs nothing for Talos: write crt: {{.MachineCA}}"]
    if kubernetes and kubernetes == placeholders.get("MachineCA"):
        return ["cluster.ca.crt is the CA of Talos' own API: write crt: {{.ClusterCA}}"]
    return []


def _name_faults(machine: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], node_name: str) -> Sequence[str]:
    names = [_mapping(machine, "network").get("hostname")]
    names += [each.get("hostname") for each in documents if each.get("kind") == "HostnameConfig"]
    told = [each for each in names if each is not None]
    if told and all(each == node_name for each in told):
        return []
    return ["the hostname is not the name of the node: write hostname: {{.NodeName}}, in one place"]


def _service_faults(document: Mapping[str, Any]) -> Sequence[str]:
    if document.get("kind") != "ExtensionServiceConfig":
        return []
    return [
        f"environment of the extension {document.get('name')} has an entry without ="
        for each in _entries(document, "environment")
        if "=" not in str(each)
    ]


def _entries(document: Mapping[str, Any], name: str) -> Sequence[Any]:
    """The list of this name. Anything else in its place is one entry, and a wrong one."""
    found = document.get(name)
    return found if isinstance(found, list) else [] if not found else [str(found)]


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
