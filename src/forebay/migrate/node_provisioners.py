"""Baseten's node-provisioner (`compute.baseten.co`): NodeProvisioners, which are Forebay's kind of the same name."""

from collections.abc import Sequence
from typing import Final

from forebay.migrate.notes import Document, Migration, MigrationNote, Notes, described, manifest, mapping
from forebay.migrate.notes import without_nothing as filled
from forebay.migrate.target import MigrationTarget

GROUP: Final = "compute.baseten.co"
_KIND: Final = "NodeProvisioner"


def migrate(documents: Sequence[Document], target: MigrationTarget) -> Migration:
    """The provisioners with the same fields, and the provider and place that the predecessor had only one of."""
    manifests: list[Document] = []
    notes: list[MigrationNote] = []
    for each in documents:
        said = Notes(described(each))
        if each.get("kind") == _KIND:
            spec = mapping(each, "spec")
            provider = mapping(spec, "provider") or _provider(target, said)
            manifests.append(manifest(_KIND, each, {**spec, "provider": provider}))
            said.changed(
                "The label nodeprovisioner.compute.baseten.co/provisioner-name of nodes goes on working, and nodes "
                "that lack it get it. Several instance groups may be named; pods' other resources count, too."
            )
            if "scaleDownDelay" not in spec:
                said.changed("Empty nodes are tainted for 10m before they are deleted; set scaleDownDelay otherwise.")
        else:
            said.needed("is of no kind that Forebay knows of this predecessor.")
        notes += said.found
    return Migration(manifests=tuple(manifests), notes=tuple(notes))


def _provider(target: MigrationTarget, notes: Notes) -> Document:
    possible = sorted(name for name, each in target.capabilities.items() if each.has_groups)
    if target.group_provider is None or target.group_location is None:
        notes.needed(
            f"Nothing says where the instance groups are: give --group-provider ({', '.join(possible)}) and "
            "--group-location, a zone or region.",
            field="spec.provider",
        )
    elif target.group_provider not in target.capabilities:
        notes.needed(
            f"{target.group_provider} is no provider of this release: give --group-provider one that has instance "
            f"groups ({', '.join(possible)}), or install the package that adds it."
        )
    return filled({"name": target.group_provider, "location": target.group_location})
