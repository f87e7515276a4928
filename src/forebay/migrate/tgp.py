"""tgp-operator (`tgp.io/v1`): GPUNodeClass and GPUNodePool, which are Forebay's kinds of the same names.

Most of their fields were defined and never used there; here they work, and the notes say so where that changes what
happens. What could never work is left out and explained.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from forebay.api.names import GPU_TYPE_LABEL
from forebay.migrate.gpu_types import clouds_of, note_geforce, types_required
from forebay.migrate.notes import Document, Migration, MigrationNote, Notes, described, items, listed, manifest, mapping
from forebay.migrate.notes import without_nothing as filled
from forebay.migrate.talos_template import UnreadableTemplate, corrected, node_labels, note_systemd, read_template
from forebay.migrate.talos_template import written as template_text
from forebay.migrate.target import UNKNOWN_ENDPOINT, MigrationTarget
from forebay.model.sources import Capabilities, Join

GROUP: Final = "tgp.io"
_LABELS: Final = "forebay.dev/"
#: Where the predecessor ran, and its Secrets were.
_FORMER_NAMESPACE: Final = "tgp-system"
#: A part of a continent. Providers' own names have a number or are in capitals.
_VAGUE_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)?")
#: Fields that are carried over, or that a note says something about; all others are left out with a note.
_CLASS_FIELDS: Final = frozenset(
    {"providers", "talosConfig", "tailscaleConfig", "instanceRequirements", "limits", "tags"}
)
_TALOS_FIELDS: Final = frozenset(
    {"image", "version", "kubeletImage", "machineConfigTemplate", "machineConfigSecretRef"}
)
_PROVIDER_FIELDS: Final = frozenset({"name", "priority", "enabled", "credentialsRef", "regions"})
_POOL_FIELDS: Final = frozenset({"nodeClassRef", "template", "disruption", "limits", "maxHourlyPrice", "weight"})
_TEMPLATE_FIELDS: Final = frozenset({"metadata", "spec"})
#: Of the second class, where one class becomes two.
_LINUX: Final = "linux"


def migrate(documents: Sequence[Document], target: MigrationTarget) -> Migration:
    """All objects of the predecessor: classes know which namespaces have pools of theirs, pools what became of their
    classes.
    """
    classes = [each for each in documents if each.get("kind") == "GPUNodeClass"]
    pools = [each for each in documents if each.get("kind") == "GPUNodePool"]
    manifests: list[Document] = []
    notes: list[MigrationNote] = []
    labels: dict[str, dict[str, str]] = {}
    names: dict[str, list[str]] = {}
    clouds: dict[str, list[str]] = {}
    for each in classes:
        said = Notes(described(each))
        name = str(mapping(each, "metadata").get("name", ""))
        namespaces = sorted({_namespace(pool) for pool in pools if _class_of(pool) == name})
        made, labels[name] = _classes(each, namespaces, target, said)
        names[name] = [str(each_made["metadata"].get("name", "")) for each_made in made]
        clouds[name] = clouds_of(
            (entry for made_class in made for entry in made_class["spec"]["providers"]), target.capabilities
        )
        wanted = items(mapping(mapping(each, "spec"), "instanceRequirements"), "gpuTypes")
        note_geforce("instanceRequirements.gpuTypes", wanted, clouds[name], said)
        manifests += made
        notes += said.found
    for each in pools:
        said = Notes(described(each))
        referred = _class_of(each)
        if referred not in names:
            said.needed(f"GPUNodeClass {referred} is not among the files: migrate it, too, in the same call.")
        required = types_required(each, (f"{GROUP}/gpu-type", GPU_TYPE_LABEL))
        note_geforce(f"requirement {GROUP}/gpu-type", required, clouds.get(referred, ()), said)
        for class_name in names.get(referred, [referred]):
            manifests.append(_pool(each, class_name, labels.get(referred, {}), said))
        notes += said.found
    for each in documents:
        if each not in classes and each not in pools:
            notes += _without_counterpart(each)
    return Migration(manifests=tuple(manifests), notes=tuple(notes))


def _classes(
    document: Document, namespaces: Sequence[str], target: MigrationTarget, notes: Notes
) -> tuple[list[Document], dict[str, str]]:
    """The classes that become of one, and labels for nodes of its pools."""
    spec = mapping(document, "spec")
    _note_others(spec, _CLASS_FIELDS, "spec", notes)
    entries = [_provider(each, target, notes) for each in items(spec, "providers") if isinstance(each, dict)]
    tailscale = _tailscale(spec, entries, notes)
    common = filled(
        {
            "tailscaleConfig": tailscale,
            "instanceRequirements": _requirements(mapping(spec, "instanceRequirements"), notes),
            "limits": _limits(mapping(spec, "limits"), notes),
            "tags": mapping(spec, "tags"),
            **_admitted(namespaces, target, notes),
        }
    )
    labels: dict[str, str] = {}
    talos = mapping(spec, "talosConfig")
    if talos:
        labels = _labels_of(talos)
    made = []
    for suffix, part, join in _ways(entries, talos, target, notes):
        if not join:
            # Containers join no network.
            common = {key: value for key, value in common.items() if key != "tailscaleConfig"}
        made.append(manifest("GPUNodeClass", document, {"providers": part, **join, **common}, suffix))
    if len(made) > 1 and common.get("limits"):
        notes.needed("One class has become two, and each has the limits of the former: divide them between the two.")
    return made, labels


def _ways(
    entries: Sequence[Document], talos: Mapping[str, Any], target: MigrationTarget, notes: Notes
) -> list[tuple[str, list[Document], Document]]:
    """Providers that join alike: suffix of the class, entries, and how they join."""
    known = {each["name"]: target.capabilities.get(each["name"]) for each in entries}
    machines = [each for each in entries if _has_nodes(known[each["name"]])]
    if containers := [each["name"] for each in entries if each not in machines]:
        run, serve = ("run", "they serve") if len(containers) > 1 else ("runs", "it serves")
        notes.changed(
            f"{listed(containers)} {run} containers, which are no nodes: {serve} Jobs that are marked for it "
            "(docs/providers/), never other pods."
        )
    if not machines:
        if talos:
            _note_talos(talos, [each["name"] for each in entries], notes)
        return [("", list(entries), {})]
    bootable = [each for each in machines if (found := known[each["name"]]) is None or Join.TALOS in found.joins]
    others = [each for each in entries if each not in bootable]
    if not talos:
        notes.needed("Nothing says how machines join: set talosConfig, k3sConfig, kubeadmConfig or cloudInit.")
        return [("", list(entries), {})]
    if not others:
        return [("", list(entries), {"talosConfig": _talos(talos, target, notes)})]
    _note_talos(talos, [each["name"] for each in others], notes)
    scripted = {"kubeadmConfig": {"controlPlaneEndpoint": _endpoint(target, notes)}}
    notes.changed(
        "Machines boot their provider's own Linux and join by kubeadm (docs/joining.md). A control plane of Talos has "
        "no ConfigMaps of kubeadm: create cluster-info, kubeadm-config and kubelet-config, or replace kubeadmConfig "
        "by k3sConfig or cloudInit."
    )
    if not bootable:
        return [("", list(entries), scripted)]
    moved = listed(each["name"] for each in others)
    own = "their own: they cannot" if len(others) > 1 else "its own: it cannot"
    notes.changed(f"{moved} moved to a class of {own} boot Talos.")
    return [("", bootable, {"talosConfig": _talos(talos, target, notes)}), (_LINUX, others, scripted)]


def _has_nodes(capabilities: Capabilities | None) -> bool:
    return capabilities is None or any(each.has_node for each in capabilities.deliveries)


def _note_talos(talos: Mapping[str, Any], names: Sequence[str], notes: Notes) -> None:
    notes.impossible(
        f"{listed(names)} cannot boot Talos: no machine rented there has ever joined. talosConfig is left out there."
    )
    try:
        note_systemd(read_template(str(talos.get("machineConfigTemplate", ""))), notes)
    except UnreadableTemplate:
        return


def _labels_of(talos: Mapping[str, Any]) -> dict[str, str]:
    try:
        return node_labels(read_template(str(talos.get("machineConfigTemplate", ""))))
    except UnreadableTemplate:
        return {}


def _endpoint(target: MigrationTarget, notes: Notes) -> str:
    if target.control_plane is None:
        notes.needed(
            f"controlPlaneEndpoint is {UNKNOWN_ENDPOINT}, where nothing is: give --control-plane-endpoint HOST:PORT, "
            "the address of the API server as rented machines reach it."
        )
    return target.control_plane or UNKNOWN_ENDPOINT


def _talos(talos: Mapping[str, Any], target: MigrationTarget, notes: Notes) -> Document:
    _note_others(talos, _TALOS_FIELDS, "spec.talosConfig", notes)
    made: Document = {key: talos.get(key) for key in ("image", "version", "kubeletImage")}
    notes.needed(
        f"talosConfig.image is {talos.get('image')!r}: name an image at the provider, made by Talos' Image Factory "
        "with the NVIDIA extensions."
    )
    if talos.get("machineConfigSecretRef"):
        notes.needed("machineConfigSecretRef has no counterpart: write the template into machineConfigTemplate.")
    text = str(talos.get("machineConfigTemplate") or "")
    if text:
        try:
            made["machineConfigTemplate"] = template_text(corrected(read_template(text), notes))
        except UnreadableTemplate as error:
            made["machineConfigTemplate"] = text
            notes.needed(f"machineConfigTemplate is printed as it is: {error}.")
    made["secretsRef"] = {"name": "talos-secrets", "key": "secrets.yaml"}
    notes.needed("Create the Secret talos-secrets with the key secrets.yaml, as talosctl gen secrets writes it.")
    made["controlPlaneEndpoint"] = f"https://{_endpoint(target, notes)}"
    return filled(made)


def _provider(entry: Mapping[str, Any], target: MigrationTarget, notes: Notes) -> Document:
    name = str(entry.get("name", ""))
    _note_others(entry, _PROVIDER_FIELDS, f"provider {name}", notes)
    if name not in target.capabilities:
        notes.needed(f"{name} is no provider of this release: remove it, or install the package that adds it.")
    credentials = mapping(entry, "credentialsRef")
    if credentials and not credentials.get("namespace"):
        notes.needed(
            f"Copy Secret {credentials.get('name')} from {_FORMER_NAMESPACE} to {target.namespace}, and name it in "
            f"--secret {credentials.get('name')} of forebay manifests or secrets of the Helm chart."
        )
    made = {
        "name": name,
        "priority": entry.get("priority") or None,
        "enabled": False if entry.get("enabled") is False else None,
        "credentialsRef": credentials,
        "regions": _regions(items(entry, "regions"), f"providers {name}: regions", notes),
    }
    return filled(made) if made["enabled"] is None else {**filled(made), "enabled": False}


def _tailscale(spec: Mapping[str, Any], entries: Sequence[Document], notes: Notes) -> Document:
    config = mapping(spec, "tailscaleConfig")
    if not config:
        return {}
    if config.pop("operatorConfig", None):
        notes.changed("tailscaleConfig.operatorConfig is left out: Forebay deploys no Tailscale connector; keep yours.")
    if not config.get("oauthCredentialsSecretRef"):
        name = next(
            (each["credentialsRef"]["name"] for each in entries if each.get("credentialsRef")), "tailscale-oauth"
        )
        config["oauthCredentialsSecretRef"] = {"name": name}
        notes.needed(
            f"tailscaleConfig had no oauthCredentialsSecretRef, without which no key can be made. It is Secret {name} "
            "now: see that it has client-id and client-secret, of a client with the scopes auth_keys and devices:core."
        )
    return filled(config) | ({"ephemeral": False} if config.get("ephemeral") is False else {})


def _requirements(found: Document, notes: Notes) -> Document:
    return filled({**found, "regions": _regions(items(found, "regions"), "instanceRequirements.regions", notes)})


def _limits(found: Document, notes: Notes) -> Document:
    if found:
        notes.changed("limits were never looked at; Forebay keeps to them: nothing is bought beyond.")
    return filled(found)


def _regions(names: Sequence[Any], where: str, notes: Notes) -> list[str]:
    kept = [str(each) for each in names if not _VAGUE_REGION.fullmatch(str(each))]
    dropped = [str(each) for each in names if str(each) not in kept]
    if dropped:
        notes.changed(
            f"{where}: {listed(dropped)} left out. Regions were never looked at; Forebay does, by the providers' own "
            "names (forebay offers shows them), and no provider has these. Without them machines come from any region, "
            "as before."
        )
    return kept


def _admitted(namespaces: Sequence[str], target: MigrationTarget, notes: Notes) -> Document:
    """Pools of the predecessor were in any namespace and served all."""
    others = [each for each in namespaces if each != target.namespace]
    if not others:
        return {}
    notes.changed(
        f"allowedNamespaces lets {listed(others)} have pools of this class, and allowedPodNamespaces lets those serve "
        "pods of every namespace, as before. Narrow it where teams should not spend for each other."
    )
    name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": others}
    return {"allowedNamespaces": {"matchExpressions": [name]}, "allowedPodNamespaces": {"matchLabels": {}}}


def _pool(document: Document, class_name: str, labels: Mapping[str, str], notes: Notes) -> Document:
    spec = mapping(document, "spec")
    template = mapping(spec, "template")
    _note_others(spec, _POOL_FIELDS, "spec", notes)
    _note_others(template, _TEMPLATE_FIELDS, "spec.template", notes)
    metadata, node = mapping(template, "metadata"), mapping(template, "spec")
    requirements = [made for each in items(node, "requirements") if (made := _requirement(each, notes))]
    made = filled(
        {
            "metadata": filled({**metadata, "labels": {**labels, **mapping(metadata, "labels")}}),
            "spec": filled({**node, "requirements": requirements}),
        }
    )
    suffix = _LINUX if class_name != _class_of(document) else ""
    disruption = mapping(spec, "disruption")
    if not disruption:
        notes.changed("Idle nodes are terminated after 5m (disruption.consolidateAfter); before, they never were.")
    return manifest(
        "GPUNodePool",
        document,
        filled(
            {
                "nodeClassRef": {"name": class_name},
                "template": made,
                "disruption": disruption,
                "limits": _limits(mapping(spec, "limits"), notes),
                "maxHourlyPrice": spec.get("maxHourlyPrice"),
                "weight": spec.get("weight"),
            }
        ),
        suffix,
    )


def _requirement(entry: Any, notes: Notes) -> Document:
    if not isinstance(entry, dict):
        return {}
    key = str(entry.get("key", ""))
    name = key.removeprefix(f"{GROUP}/")
    made = {**entry, "key": f"{_LABELS}{name}" if key != name else key}
    if name == "region" and entry.get("operator") == "In":
        kept = _regions(items(entry, "values"), f"requirement {key}", notes)
        return {**made, "values": kept} if kept else {}
    return made


def _without_counterpart(document: Document) -> list[MigrationNote]:
    notes = Notes(described(document))
    notes.needed(
        "has no counterpart: capacity follows the pods. Create the pod or Job that needs the GPU, and a GPUNodePool "
        "that may serve it; idleTimeout is disruption.consolidateAfter, maxLifetime is disruption.expireAfter."
        if document.get("kind") == "GPURequest"
        else "is of no kind that Forebay knows of this predecessor."
    )
    return notes.found


def _note_others(found: Mapping[str, Any], known: Collection[str], where: str, notes: Notes) -> None:
    others = {
        str(each): get_close_matches(str(each), set(known) - found.keys(), 1) for each in found if each not in known
    }
    # What looks like a typing error may be a limit, or a Secret.
    for name, near in others.items():
        if near:
            notes.needed(f"{where}: {name} left out; did you mean {near[0]}?")
    if strange := [name for name, near in others.items() if not near]:
        notes.changed(f"{where}: {listed(strange)} left out, because Forebay has no such field.")


def _class_of(pool: Document) -> str:
    return str(mapping(mapping(pool, "spec"), "nodeClassRef").get("name", ""))


def _namespace(pool: Document) -> str:
    return str(mapping(pool, "metadata").get("namespace") or "default")
