"""gpu-k8s-operator (`budget.zxuhan.dev`): GPUWorkloadBudgets, which are Forebay's kind of the same name."""

from collections.abc import Sequence
from typing import Final

from forebay.migrate.notes import Document, Migration, MigrationNote, Notes, described, manifest, mapping

GROUP: Final = "budget.zxuhan.dev"
_KIND: Final = "GPUWorkloadBudget"


def migrate(documents: Sequence[Document], _target: object) -> Migration:
    """The budgets with the same fields; what they do differently is noted."""
    manifests: list[Document] = []
    notes: list[MigrationNote] = []
    for each in documents:
        said = Notes(described(each))
        if each.get("kind") == _KIND:
            spec = mapping(each, "spec")
            manifests.append(manifest(_KIND, each, spec))
            _note_differences(str(mapping(spec, "enforcement").get("action", "")), said)
        else:
            said.needed("is of no kind that Forebay knows of this predecessor.")
        notes += said.found
    return Migration(manifests=tuple(manifests), notes=tuple(notes))


def _note_differences(action: str, notes: Notes) -> None:
    notes.changed(
        "Hours of deleted pods count: before, whoever deleted a pod got its hours back. Usage begins with the first "
        "pod that Forebay sees; earlier hours are not in its ledger."
    )
    if action == "Evict":
        notes.changed(
            "After an eviction, new pods of the budget wait until older usage leaves the window; before, the owner's "
            "next pod went on at once. gracePeriodSeconds is only the time until the first eviction, no longer also "
            "that of the pod."
        )
    if action == "Pause":
        notes.changed(
            "Pause suspends the Jobs of the pods and resumes them when the window has room; before, a pod only got an "
            f"annotation ({GROUP}/paused-at), which stopped nothing."
        )
