"""`forebay budgets`: what every budget has used, what is left, and when there will be none."""

import argparse
import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_json, print_paragraph, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.reporting.budget_views import BudgetView


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="one budget, with a plot of its window")
    parser.add_argument("-n", "--namespace", help="the namespace of that budget, or of those to list (default: all)")
    add_output_option(parser)


async def look(settings: Settings, namespace: str | None, name: str | None) -> "tuple[list[BudgetView], str]":
    """With a note where the ledgers cannot be read, so that only what the operator has written is known."""
    from forebay.budgets.assessment import Assessor
    from forebay.cli.budgets.waits import home
    from forebay.cli.cluster_reader import absent, cluster_reader
    from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
    from forebay.kube.errors import NotFound
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
    from forebay.reporting.budget_views import view
    from forebay.reporting.cluster_view import present

    async with cluster_reader(settings) as reader:
        where = namespace or (reader.namespace if name is not None else None)
        try:
            budgets = (await reader.client.list_all(GPU_WORKLOAD_BUDGETS, where)).items
        except NotFound:
            raise UserError("Forebay's kinds are not installed here: forebay manifests install") from None
        chosen = [each for each in budgets if name in {None, each.metadata.name}]
        if name is not None and not chosen:
            absent("GPUWorkloadBudget", name, where)
        leaders = await reader.leaders()
        now = present(leaders, datetime.now(UTC))
        note, accounts = "", None
        try:
            accounts = (await read_ledgers(reader.client, home(settings, leaders), budgets, now)).accounts
        except LedgersNotReadable as error:
            note = f"Figures are those of the last report, and without history: {error}."
        assessor = Assessor()
        found = [view(each, None if accounts is None else accounts.get(each.key), assessor, now) for each in chosen]
        return sorted(found, key=lambda each: (each.namespace, each.name)), note


def show(found: "list[BudgetView]", note: str, *, with_plot: bool) -> None:
    from forebay.cli.budgets.plot import plot, sparkline

    if not found:
        print("There are no budgets.")
        return
    print_table(
        (
            "BUDGET",
            "USED",
            "QUOTA",
            "LEFT",
            "DOLLARS",
            "WINDOW",
            "ACTION",
            "PODS",
            "HELD",
            "USED UP",
            "USE IN THE WINDOW",
        ),
        [
            (
                f"{each.namespace}/{each.name}",
                _hours(each.consumed),
                _hours(each.quota),
                _hours(each.remaining),
                _dollars(each.consumed_usd, each.quota_usd),
                f"{each.window_hours}h",
                each.action,
                str(each.pods),
                str(each.held),
                "now" if each.exceeded else f"{each.exhausted:%m-%d %H:%M}" if each.exhausted else "-",
                sparkline([float(one.gpu_hours) for one in each.history]) or "-",
            )
            for each in found
        ],
    )
    for each in found:
        if with_plot and each.history:
            print()
            print("\n".join(plot(each)))
        if each.error:
            print_paragraph(f"{each.namespace}/{each.name}: {each.error}")
    if note:
        print_paragraph(note)


def _hours(text: str | None) -> str:
    return "-" if text is None else f"{float(text):.3f}".rstrip("0").rstrip(".")


def _dollars(consumed: str, quota: str | None) -> str:
    if quota is None:
        return f"{float(consumed):,.2f}" if float(consumed) else "-"
    return f"{float(consumed):,.2f} of {float(quota):,.2f}"


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    found, note = asyncio.run(look(settings, arguments.namespace, arguments.name))
    if arguments.output == "json":
        print_json({"budgets": msgspec.to_builtins(found), "note": note})
    else:
        show(found, note, with_plot=arguments.name is not None)
    return 0


COMMAND = Command(
    name="budgets",
    summary="what every budget has used, what is left, and when there will be none",
    description="Show every GPUWorkloadBudget: GPU-hours and dollars used in its window, what is left of the quota,\n"
    "the pods that count and those that wait, when it will be used up if everything goes on, and how the window\n"
    "has filled. With a name, its window is drawn, with the line of the quota and the forecast (dots).",
    options=add_options,
    run=run,
)
