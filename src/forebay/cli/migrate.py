"""`forebay migrate`: prints what manifests of a predecessor become, and what to know about it."""

import argparse
import re
from typing import TYPE_CHECKING, Final

from forebay.cli.manifests import add_namespace_option, namespace_of, print_documents
from forebay.cli.output import print_line
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.migrate.notes import Migration

#: Exit code of --check where a person must do something first.
_INCOMPLETE: Final = 1
_ENDPOINT: Final = re.compile(r"[^:/ ]+:[0-9]{1,5}|\[[0-9a-f:]+\]:[0-9]{1,5}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=True,
        metavar="FILE",
        help="manifests to migrate: a file, a folder, or - for standard input; may be repeated. Give pools together "
        "with their classes",
    )
    parser.add_argument(
        "--control-plane-endpoint",
        metavar="HOST:PORT",
        help="the API server as rented machines reach it, for machines that join by kubeadm or boot Talos",
    )
    parser.add_argument("--group-provider", metavar="NAME", help="provider of the instance groups of NodeProvisioners")
    parser.add_argument("--group-location", metavar="ZONE", help="zone or region of these instance groups")
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only what to know, and exit with 1 where a person must do something before the result is applied",
    )
    add_namespace_option(parser)


def run(arguments: argparse.Namespace, _settings: Settings) -> int:
    from forebay.cli.manifest_files import documents_in, named_files, read_data
    from forebay.migrate.migration import migrate
    from forebay.migrate.target import MigrationTarget
    from forebay.providers.admission import KNOWN

    endpoint = arguments.control_plane_endpoint
    if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
        raise UserError(f"--control-plane-endpoint is {endpoint!r}; give host and port, such as 10.0.0.1:6443")
    files = [each for name in arguments.filename for each in named_files(name)]
    documents = [document for name in files for _, document in documents_in(name, read_data(name))]
    target = MigrationTarget(
        capabilities=KNOWN,
        namespace=namespace_of(arguments),
        control_plane=endpoint,
        group_provider=arguments.group_provider,
        group_location=arguments.group_location,
    )
    done = migrate(documents, target)
    if not done.manifests and not done.notes:
        raise UserError("there is nothing to migrate in the files")
    if not arguments.check:
        print_documents([*done.manifests])
    _print_notes(done)
    return _INCOMPLETE if arguments.check and not done.complete else 0


def _print_notes(done: "Migration") -> None:
    from forebay.migrate.notes import NoteKind

    heads = {
        NoteKind.IMPOSSIBLE: "Could never work",
        NoteKind.CHANGED: "Changed",
        NoteKind.NEEDED: "To do before the result is applied",
    }
    for kind, head in heads.items():
        found = [each for each in done.notes if each.kind is kind]
        if found:
            print_line(f"{head}:", error=True)
        for each in found:
            print_line(f"  {each.about}: {each.sentence}", error=True)


COMMAND = Command(
    name="migrate",
    summary="print what manifests of a predecessor become",
    description="Print the manifests of Forebay that manifests of a predecessor become (tgp.io, budget.zxuhan.dev,\n"
    "compute.baseten.co), and on standard error what changed, what could never work, and what remains to\n"
    "be done. Nothing is applied:\n\n"
    "  forebay migrate -f tgp.yaml --control-plane-endpoint 10.0.0.1:6443 > forebay.yaml\n"
    "  kubectl get gpunodeclasses.tgp.io,gpunodepools.tgp.io -A -o yaml | forebay migrate -f -",
    options=add_options,
    run=run,
    uses_settings=False,
)
