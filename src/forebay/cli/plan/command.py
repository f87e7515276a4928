"""`forebay plan`: what the operator would buy for the waiting pods, why, and how close that is to the cheapest plan."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_document
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.plan.inputs import PlanInput
    from forebay.reconcile.snapshot import Snapshot
    from forebay.reporting.plans import Report

SOME_LEFT_OUT = 1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="plan for these manifests (YAML or JSON; a folder of them; - is standard input), or for one saved "
        "snapshot, instead of the cluster; may be repeated",
    )
    parser.add_argument(
        "--offers",
        metavar="FILE",
        help="table of offers (CSV, plain or gzip) instead of the live offers of the same providers",
    )
    parser.add_argument(
        "--spot", action="store_true", help="without any GPUNodeClass: use spot offers of the table too"
    )
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="plan with price=NAME:FACTOR (NAME: provider, instance type or GPU model), without=PROVIDER, "
        "budget=USD_PER_HOUR or budget=NAMESPACE/NAME:GPU_HOURS (in dollars: NAMESPACE/NAME:50usd), and show the "
        "difference; may be repeated",
    )
    parser.add_argument("--save", metavar="FILE", help="save the snapshot that the plan is made from, for -f")
    add_output_option(parser)


def read_input(arguments: argparse.Namespace, settings: Settings) -> "PlanInput":
    from msgspec.structs import replace

    from forebay.cli.manifest_files import STDIN
    from forebay.cli.plan.inputs import read_cluster, read_files, read_offers
    from forebay.providers.registry import deliveries
    from forebay.reporting.what_if import with_table

    if [*arguments.filename, arguments.offers].count(STDIN) > 1:
        raise UserError("standard input can be read only once: give - to one of -f and --offers")
    table = read_offers(arguments.offers) if arguments.offers is not None else None
    given = read_files(arguments.filename, settings) if arguments.filename else read_cluster(settings)
    if table is None:
        return given
    snapshot = with_table(given.snapshot, (row.offer for row in table), deliveries(), spot=arguments.spot)
    return replace(given, snapshot=snapshot)


def report(given: "PlanInput", supposed: list[str]) -> "Report":
    from forebay.reconcile.remote_orders import container_providers
    from forebay.reporting.defragmentation import planned_moves, unmoved_notes
    from forebay.reporting.plans import Report, plan_report, what_if_report
    from forebay.reporting.what_if import WhatIfError, dry_run, parse_supposition, suppose

    try:
        changes = [parse_supposition(text) for text in supposed]
        there = suppose(given.snapshot, changes) if changes else None
    except WhatIfError as error:
        raise UserError(f"--what-if {error}") from error
    found = dry_run(given.snapshot)
    containers = container_providers(given.snapshot)
    plan, moves = plan_report(found, containers), planned_moves(given.snapshot, found.reservations)
    changed = plan_report(dry_run(*there), containers) if there is not None else None
    what_if = what_if_report(supposed, plan, changed) if changed is not None else None
    notes = [*given.notes, *_notes(given), *unmoved_notes(given.snapshot, moves)]
    return Report(where=given.where, now=given.snapshot.now, plan=plan, what_if=what_if, moves=moves, notes=notes)


def _notes(given: "PlanInput") -> list[str]:
    """Notes on what the plan does not take into account."""
    from forebay.reporting.offers import NO_PROVIDERS

    snapshot = given.snapshot
    notes = [f"GPUNodeClass {key.node_class}: {why}" for key, why in snapshot.unusable.items()]
    notes += [
        f"Offers of {key.provider} in GPUNodeClass {key.node_class} are unknown: {source.error}"
        for key, source in snapshot.sources.items()
        if source.offers is None and source.error is not None
    ]
    containers = sorted(
        {
            key.provider
            for key, each in snapshot.sources.items()
            if not all(delivery.has_node for delivery in each.capabilities.deliveries)
        }
    )
    if containers:
        notes.append(f"Offers of {', '.join(containers)} are ignored: they run containers, not nodes.")
    if snapshot.budgets and snapshot.budget_state is None:
        notes.append(
            "GPUWorkloadBudgets are ignored, because their ledgers cannot be read: allow this user to list ConfigMaps "
            "in the operator's namespace."
        )
    if given.live and not (snapshot.sources or snapshot.unusable):
        notes.append(NO_PROVIDERS)
    elif not snapshot.sources:
        notes.append("There are no offers: give a table with --offers, or a GPUNodeClass with machines of your own.")
    return notes


def save(snapshot: "Snapshot", name: str) -> None:
    """Writes the snapshot to a file that only its owner can read, because it shows what runs in the cluster."""
    from forebay.reconcile import saved_snapshot

    path = Path(name)
    try:
        if path.exists() and not saved_snapshot.is_snapshot(path.read_bytes()):
            raise UserError(f"{name} exists and is not a saved snapshot: choose another file")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(saved_snapshot.save_snapshot(snapshot))
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror or error}") from error


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    given = read_input(arguments, settings)
    result = report(given, arguments.what_if)
    if arguments.save is not None:
        save(given.snapshot, arguments.save)
    if arguments.output != "text":
        print_document(msgspec.to_builtins(result), arguments.output)
    else:
        from forebay.cli.plan.view import show

        show(result)
    return SOME_LEFT_OUT if result.answer.left_out else 0


COMMAND = Command(
    name="plan",
    summary="what the operator would buy now, why, and how close that is to the cheapest plan",
    description="Show what the operator would buy for the waiting pods, why each machine was chosen over others,\n"
    "the cost with a proven lower bound, and why pods are left out. Nothing is bought or written:\n\n"
    "  forebay plan\n"
    "  forebay plan --what-if budget=20 --what-if without=aws\n"
    "  forebay plan -f jobs.yaml --offers prices.csv\n"
    "  kubectl get pods,nodes -A -o yaml | forebay plan -f - --offers prices.csv.gz\n\n"
    "Exit codes: 0 all waiting pods would be served; 1 some are left out; 2 bad input, or no cluster.",
    options=add_options,
    run=run,
    watchable=True,
)
