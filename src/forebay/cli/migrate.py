"""`forebay migrate`: prints what manifests of a predecessor become, and what to know about it."""

import argparse
import asyncio
import os
import re
from copy import deepcopy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeVar

from forebay.cli.manifests import add_namespace_option, namespace_of, print_documents
from forebay.cli.output import print_line
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from forebay.kube.client import Client
    from forebay.migrate.notes import Migration
    from forebay.migrate.target import MachineGroups

_T = TypeVar("_T")

#: Exit code of --check where a person must do something first.
_INCOMPLETE: Final = 1
_ENDPOINT: Final = re.compile(r"[^:/ ]+:[0-9]{1,5}|\[[0-9a-f:]+\]:[0-9]{1,5}")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="manifests or Helm values to migrate: a file, a folder, or - for standard input; may be repeated. Give "
        "pools together with their classes",
    )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        help="environment variables that name machines (..._GPU_COUNT), as NAME=VALUE lines",
    )
    parser.add_argument(
        "--from-cluster",
        action="store_true",
        help="migrate the objects and Deployments of predecessors in the cluster; nothing is written, unless --apply",
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="create the result in the cluster, once the API server has admitted all of it in a dry run. Objects that "
        "are there already stay as they are",
    )
    parser.add_argument(
        "--values", action="store_true", help="print the values for Forebay's chart instead of the manifests"
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


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.migrate.migration import migrate
    from forebay.migrate.target import MigrationTarget
    from forebay.providers.admission import KNOWN

    endpoint = arguments.control_plane_endpoint
    if endpoint is not None and not _ENDPOINT.fullmatch(endpoint):
        raise UserError(f"--control-plane-endpoint is {endpoint!r}; give host and port, such as 10.0.0.1:6443")
    if arguments.apply and (arguments.check or arguments.values):
        raise UserError("--apply goes with neither --check nor --values: look first, then apply")
    target = MigrationTarget(
        capabilities=KNOWN,
        namespace=namespace_of(arguments),
        control_plane=endpoint,
        group_provider=arguments.group_provider,
        group_location=arguments.group_location,
        machine_groups=_machine_groups,
        broken_rules=_broken_rules,
    )
    documents = _documents(arguments, settings)
    variables = {} if arguments.env_file is None else _variables(arguments.env_file)
    done = migrate(documents, target, variables)
    if not done.manifests and not done.notes and not done.values:
        if arguments.from_cluster and arguments.check:
            # Done, as CI asks: what is left in files may well be a wrong file.
            print_line("There is nothing to migrate in the cluster.", error=True)
            return 0
        where = "the cluster" if arguments.from_cluster else "the files"
        raise UserError(f"there is nothing to migrate in {where}")
    if not arguments.check:
        print_documents([done.values] if arguments.values else [*done.manifests])
    _print_notes(done)
    if done.manifests and not _rules_can_be_checked():
        print_line(
            "Validation rules were not checked, which needs the extra `embedded`: kubectl apply --dry-run=server does.",
            error=True,
        )
    if done.values and not arguments.values:
        print_line("Values for Forebay's chart: run the command again with --values.", error=True)
    if arguments.apply:
        _apply(done, settings)
    return _INCOMPLETE if arguments.check and not done.complete else 0


def _documents(arguments: argparse.Namespace, settings: Settings) -> list[Any]:
    from forebay.cli.manifest_files import documents_in, named_files, read_data
    from forebay.migrate.deployments import is_predecessor

    if not (arguments.filename or arguments.from_cluster or arguments.env_file):
        raise UserError("give -f FILE, --env-file FILE or --from-cluster")
    files = [each for name in arguments.filename for each in named_files(name)]
    found = [document for name in files for _, document in documents_in(name, read_data(name))]
    if arguments.from_cluster:
        objects = asyncio.run(_with_client(settings, _former_objects))
        found += [each for each in objects if each["kind"] != "Deployment" or is_predecessor(each)]
    return found


async def _former_objects(client: "Client") -> list[dict[str, Any]]:
    from forebay.install.predecessors import former_objects

    return await former_objects(client)


def _apply(done: "Migration", settings: Settings) -> None:
    from forebay.install.predecessors import create_migrated
    from forebay.migrate.notes import NoteKind

    if not done.complete:
        todo = sum(each.kind is NoteKind.NEEDED for each in done.notes)
        print_line(f"Applying, although {todo} things are to do: see above.", error=True)
    made = asyncio.run(_with_client(settings, lambda client: create_migrated(client, done.manifests)))
    for each in made.created:
        print_line(f"created: {each}", error=True)
    for each in made.existing:
        print_line(f"there already, and left as it is: {each}", error=True)


async def _with_client(settings: Settings, do: "Callable[[Client], Awaitable[_T]]") -> "_T":
    from forebay.kube.connection import connected_client
    from forebay.wiring.cluster import cluster_config
    from forebay.wiring.logs import configure_logging

    client = connected_client(cluster_config(settings, os.environ), configure_logging(settings))
    try:
        return await do(client)
    finally:
        await client.close()


def _machine_groups(variables: "Mapping[str, str]") -> "MachineGroups":
    import msgspec

    from forebay.migrate.target import MachineGroups
    from forebay.providers.webhook.groups import read_groups

    groups = read_groups(variables)
    return MachineGroups(machines=[msgspec.to_builtins(each) for each in groups.machines], problems=groups.problems)


def _rules_can_be_checked() -> bool:
    return find_spec("celpy") is not None


def _broken_rules(manifest: "Mapping[str, Any]") -> list[str]:
    """Sentences of the API server, as far as this installation can evaluate its rules."""
    if not _rules_can_be_checked():
        return []
    from forebay.embedded.api.schema import default, validate
    from forebay.install.crds import custom_resource_definitions

    for definition in custom_resource_definitions():
        if definition["spec"]["names"]["kind"] == manifest["kind"]:
            schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            stored = deepcopy(dict(manifest))
            default(schema, stored)
            return [f"{cause}." for cause in validate(schema, stored)]
    return []


def _variables(name: str) -> dict[str, str]:
    from forebay.cli.manifest_files import read_data

    found = {}
    # Editors of Windows begin a file with a byte order mark, which would be part of the first name.
    for number, line in enumerate(read_data(name).decode("utf-8-sig", errors="replace").splitlines(), start=1):
        text = line.strip().removeprefix("export ").strip()
        if not text or text.startswith("#"):
            continue
        variable, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{name}, line {number} is not NAME=VALUE")
        found[variable.strip()] = value.strip().strip("\"'")
    return found


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
    description="Print the manifests of Forebay that those of a predecessor become (tgp.io, budget.zxuhan.dev,\n"
    "compute.baseten.co; Deployments of k8s-gpu-autoprovision and of the RunPod controller; Helm values of\n"
    "their charts), and on standard error what changed, what could never work, and what remains to be done.\n"
    "Nothing is applied, unless you say so:\n\n"
    "  forebay migrate -f tgp.yaml --control-plane-endpoint 10.0.0.1:6443 > forebay.yaml\n"
    "  forebay migrate -f values.yaml --values > forebay-values.yaml\n"
    "  forebay migrate --from-cluster --check      # what remains to be done, for CI: exit code 1\n"
    "  forebay migrate --from-cluster --apply      # after a dry run at the API server",
    options=add_options,
    run=run,
)
