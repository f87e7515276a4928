"""`forebay plan`: what would be bought for the pods that wait, why, and how near that is to the cheapest possible."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_json
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.plan.inputs import Looked
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
        "--offers", metavar="FILE", help="table of offers (CSV, plain or gzip) in place of what its providers say"
    )
    parser.add_argument(
        "--spot", action="store_true", help="without any GPUNodeClass: use spot offers of the table too"
    )
    parser.add_argument(
        "--what-if",
        action="append",
        default=[],
        metavar="CHANGE",
        help="suppose price=NAME:FACTOR (NAME: provider, instance type or GPU model), without=PROVIDER or "
        "budget=USD_PER_HOUR or budget=NAMESPACE/NAME:GPU_HOURS (in dollars: NAMESPACE/NAME:50usd), and show the "
        "difference; may be repeated",
    )
    parser.add_argument("--save", metavar="FILE", help="write what was seen to a file, for -f")
    add_output_option(parser)


def look(arguments: argparse.Namespace, settings: Settings) -> "Looked":
    from msgspec.structs import replace

    from forebay.cli.plan.inputs import STDIN, look_at_cluster, look_at_files, read_offers
    from forebay.reporting.what_if import with_table

    if [*arguments.filename, arguments.offers].count(STDIN) > 1:
        raise UserError("standard input can be read only once: give - to one of -f and --offers")
    table = read_offers(arguments.offers) if arguments.offers is not None else None
    looked = look_at_files(arguments.filename, settings) if arguments.filename else look_at_cluster(settings)
    if table is None:
        return looked
    snapshot = with_table(looked.snapshot, (row.offer for row in table), spot=arguments.spot)
    return replace(looked, snapshot=snapshot)


def report(looked: "Looked", supposed: list[str]) -> "Report":
    from forebay.reporting.plans import Report, plan_report, what_if_report
    from forebay.reporting.what_if import WhatIfError, outlook, parse, suppose

    try:
        changes = [parse(text) for text in supposed]
        there = suppose(looked.snapshot, changes) if changes else None
    except WhatIfError as error:
        raise UserError(f"--what-if {error}") from error
    plan = plan_report(outlook(looked.snapshot))
    what_if = what_if_report(supposed, plan, plan_report(outlook(*there))) if there is not None else None
    notes = [*looked.notes, *_notes(looked.snapshot)]
    return Report(where=looked.where, now=looked.snapshot.now, plan=plan, what_if=what_if, notes=notes)


def _notes(snapshot: "Snapshot") -> list[str]:
    """What was not taken into account."""
    from forebay.model.sources import Delivery

    notes = [f"GPUNodeClass {key.node_class}: {why}" for key, why in snapshot.unusable.items()]
    notes += [
        f"Of {key.provider} in GPUNodeClass {key.node_class} no offers are known: {source.error}"
        for key, source in snapshot.sources.items()
        if source.offers is None and source.error is not None
    ]
    containers = sorted(
        {key.provider for key, each in snapshot.sources.items() if each.capabilities.delivers is Delivery.CONTAINER}
    )
    if containers:
        notes.append(f"Offers of {', '.join(containers)} are left aside: they run containers, which are no nodes.")
    if snapshot.budgets and snapshot.budget_state is None:
        notes.append(
            "What GPUWorkloadBudgets have used is not known here, so that they are not looked at: their ledgers are "
            "ConfigMaps in the operator's namespace, which this user may not list."
        )
    if not snapshot.sources:
        notes.append("No offers are known: give a table with --offers, or a GPUNodeClass with machines of your own.")
    return notes


def save(snapshot: "Snapshot", name: str) -> None:
    """For its owner's eyes: it tells what runs in the cluster."""
    from forebay.reconcile import saved_snapshot

    path = Path(name)
    try:
        if path.exists() and not saved_snapshot.is_snapshot(path.read_bytes()):
            raise UserError(f"{name} is there and is no saved snapshot: it is not overwritten")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(saved_snapshot.save(snapshot))
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror or error}") from error


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    looked = look(arguments, settings)
    told = report(looked, arguments.what_if)
    if arguments.save is not None:
        save(looked.snapshot, arguments.save)
    if arguments.output == "json":
        print_json(msgspec.to_builtins(told))
    else:
        from forebay.cli.plan.view import show

        show(told)
    return SOME_LEFT_OUT if told.answer.left_out else 0


COMMAND = Command(
    name="plan",
    summary="what would be bought now, why, and how near that is to the cheapest possible",
    description="Show what the operator would buy for the pods that wait, why each machine was chosen and over what,\n"
    "the cost and what no plan can cost less than, and why pods are left out. Nothing is bought or written:\n\n"
    "  forebay plan\n"
    "  forebay plan --what-if budget=20 --what-if without=aws\n"
    "  forebay plan -f jobs.yaml --offers prices.csv\n"
    "  kubectl get pods,nodes -A -o yaml | forebay plan -f - --offers prices.csv.gz\n\n"
    "Exit codes: 0 every pod that waits would be served; 1 some are left out; 2 bad input, or no cluster.",
    options=add_options,
    run=run,
)
