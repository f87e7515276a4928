"""`forebay support-bundle`: one file about the cluster for whoever helps, with no secret in it."""

import argparse
import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from forebay.cli.output import print_line
from forebay.cli.parser import Command, UserError
from forebay.model.counts import counted
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.net.redaction import Redactor
    from forebay.reconcile.snapshot import Snapshot

DEFAULT_FILE: Final = "forebay-support.tar.gz"
_README: Final = """\
A support bundle of Forebay, taken {now} by version {version}.

  forebay plan -f {file}                      # the plan for the pods that wait, replayed
  forebay explain pod/NAME -n NAMESPACE -f {file}

snapshot.json  what a tick of the operator is given: nodes, GPU pods, records, offers, budgets
status.json    forebay status --output json
budgets.json   forebay budgets --output json
plan.json      forebay plan --output json

Left out: templates and scripts of machines, environments, commands and arguments of containers, annotations of others,
credentials in URLs, and whatever looks like a secret. Names of pods, nodes and namespaces, labels and prices are in it.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="FILE", default=DEFAULT_FILE, help=f"file to write (default: {DEFAULT_FILE})")


def documents(snapshot: "Snapshot", settings: Settings, redactor: "Redactor") -> dict[str, Any]:
    """What the commands for people show, as JSON; where one cannot be read, why."""
    import msgspec

    from forebay.cli.budgets.command import read_budgets
    from forebay.cli.plan.command import report
    from forebay.cli.plan.inputs import PlanInput
    from forebay.cli.status import read_status

    def tried(read: Any) -> Any:
        try:
            return redactor.data(msgspec.to_builtins(read()))
        except UserError as error:
            return {"error": redactor.text(str(error))}

    return {
        "status.json": tried(lambda: asyncio.run(read_status(settings))),
        "budgets.json": tried(lambda: asyncio.run(read_budgets(settings, None, None))[0]),
        "plan.json": tried(lambda: report(PlanInput(where="the cluster", snapshot=snapshot), [])),
    }


def write_bundle(path: Path, files: Mapping[str, bytes]) -> None:
    """Writes a tar file that only its owner can read, because it shows what runs in the cluster."""
    from forebay.engine.support_bundle import packed

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path} exists: choose another file with --to") from None
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(packed(files))


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from forebay import __version__
    from forebay.cli.plan.inputs import read_cluster
    from forebay.engine.support_bundle import SNAPSHOT_FILE, redacted_snapshot
    from forebay.reconcile.saved_snapshot import load_snapshot
    from forebay.wiring.logs import configure_logging

    path = Path(arguments.to)
    redactor = configure_logging(settings)
    snapshot = read_cluster(settings, redactor).snapshot
    saved = redacted_snapshot(snapshot, redactor)
    load_snapshot(saved)  # a bundle that nobody can replay is worth nothing
    found = documents(snapshot, settings, redactor)
    readme = _README.format(now=f"{snapshot.now:%Y-%m-%d %H:%M:%S} UTC", version=__version__, file=path.name)
    files = {
        "README.txt": readme.encode(),
        SNAPSHOT_FILE: saved,
        **{name: msgspec.json.format(msgspec.json.encode(each)) for name, each in found.items()},
    }
    write_bundle(path, files)
    waiting = counted(len(snapshot.pending), "waiting pod")
    print_line(f"{path} has {waiting} and {counted(len(snapshot.records), 'GPUInstance')}.")
    print_line(f"Look at it before you send it: tar -xzOf {path}")
    return 0


COMMAND = Command(
    name="support-bundle",
    summary="write one file about the cluster for whoever helps, without secrets",
    description="Write a file with a snapshot of the cluster, its status, budgets and plan. Secrets, scripts and\n"
    "environments are left out. Whoever gets it can replay decisions without your cluster:\n\n"
    "  forebay support-bundle --to bundle.tar.gz\n"
    "  forebay plan -f bundle.tar.gz\n"
    "  forebay explain pod/train-0 -n team -f bundle.tar.gz",
    options=add_options,
    run=run,
)
