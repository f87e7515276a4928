"""Which predecessor a document is of, and all documents of a file together."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from forebay.api.codec import all_faults, unknown_fields
from forebay.api.names import API_VERSION
from forebay.migrate import chart_values, deployments, node_provisioners, tgp, workload_budgets
from forebay.migrate.notes import Document, Migration, MigrationNote, NoteKind, described
from forebay.migrate.target import MigrationTarget

#: By the group of its kinds: what migrates all objects of that predecessor in a file.
PREDECESSORS: Final[Mapping[str, Callable[[Sequence[Document], MigrationTarget], Migration]]] = {
    tgp.GROUP: tgp.migrate,
    workload_budgets.GROUP: workload_budgets.migrate,
    node_provisioners.GROUP: node_provisioners.migrate,
}


def migrate(
    documents: Iterable[Any], target: MigrationTarget, environment: Mapping[str, str] | None = None
) -> Migration:
    """Migrates the objects of every predecessor among the documents; Lists are opened, other objects are named.

    `environment`: variables that name machines.
    """
    by_group: dict[str, list[Document]] = {}
    notes: list[MigrationNote] = []
    controllers: list[Document] = []
    done: list[Migration] = []
    for document in _opened(documents):
        if not isinstance(document, dict):
            sentence = "is neither an object of Kubernetes nor values of a chart, and is not printed."
            notes.append(MigrationNote(NoteKind.CHANGED, "A document", sentence))
            continue
        group = str(document.get("apiVersion", "")).partition("/")[0]
        if group in PREDECESSORS:
            by_group.setdefault(group, []).append(document)
        elif document.get("kind") == "Deployment" and deployments.is_predecessor(document):
            controllers.append(document)
        elif chart_values.is_values(document):
            done.append(chart_values.migrate_values(document))
        else:
            why = "is an object of Forebay already" if document.get("apiVersion") == API_VERSION else "stays as it is"
            notes.append(MigrationNote(NoteKind.CHANGED, described(document), f"{why}, and is not printed."))
    done += [PREDECESSORS[group](found, target) for group, found in by_group.items()]
    done += [deployments.migrate(controllers, target)] if controllers else []
    done += [deployments.migrate_environment(environment, target, "environment variables")] if environment else []
    manifests = tuple(manifest for each in done for manifest in each.manifests)
    notes = [*(note for each in done for note in each.notes), *notes]
    values: Document = {}
    for each in done:
        values |= each.values
    return Migration(manifests=manifests, notes=(*notes, *_mistakes(manifests, target, notes)), values=values)


def _opened(documents: Iterable[Any]) -> Iterable[Any]:
    """Documents of the files and of Lists, without those that are empty."""
    for document in documents:
        if not isinstance(document, dict):
            if document is not None:
                yield document
        elif str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
            yield from _opened(document["items"])
        else:
            yield document


def _mistakes(
    manifests: Iterable[Document], target: MigrationTarget, notes: Iterable[MigrationNote]
) -> Iterable[MigrationNote]:
    """What the original had that Forebay's API server refuses, and no note has said."""
    said = {(each.about, each.field) for each in notes if each.field}
    for manifest in manifests:
        faults = all_faults(manifest)
        news = [each for each in faults if (described(manifest), each.path) not in said]
        # The API server evaluates rules only where the types are right.
        found = [
            *(f"{fault.path or 'object'}: {fault.problem}." for fault in news),
            *(() if faults else target.broken_rules(manifest)),
            *(
                f"{path} is no field of Forebay's{f'; did you mean {near}?' if near else ': remove it.'}"
                for path, near in unknown_fields(manifest).items()
            ),
        ]
        yield from (MigrationNote(NoteKind.NEEDED, described(manifest), each) for each in found)
