"""`forebay budgets`: usage, quota and forecast of every budget."""

import argparse
import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from forebay.cli.output import add_output_option, print_document, print_line, print_paragraph, print_table
from forebay.cli.parser import Command, UserError, namespace_and_name
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.reporting.budget_views import BudgetView


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show only this budget, with a plot of its window; also NAMESPACE/NAME"
    )
    parser.add_argument(
        "-n", "--namespace", help="namespace of the budgets (default: all; with NAME, the one of the context)"
    )
    add_output_option(parser)


async def read_budgets(settings: Settings, namespace: str | None, name: str | None) -> "tuple[list[BudgetView], str]":
    """Budgets by namespace and name, and a note, which is not empty where only their status could be read."""
    from forebay.budgets.assessment import Assessor
    from forebay.cli.cluster_reader import cluster_reader, object_not_found
    from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
    from forebay.kube.errors import Forbidden, NotFound
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
    from forebay.reporting.budget_views import budget_view
    from forebay.reporting.cluster_view import cluster_now

    async with cluster_reader(settings) as reader:
        where = namespace or (reader.namespace if name is not None else None)
        try:
            budgets = (await reader.client.list_all(GPU_WORKLOAD_BUDGETS, where)).items
        except NotFound:
            raise UserError(
                "Forebay is not installed in this cluster; install it: forebay manifests install | "
                "kubectl apply --server-side -f -"
            ) from None
        except Forbidden as error:
            if where is not None:
                raise
            raise UserError(f"{error}; budgets of one namespace: forebay budgets -n NAMESPACE") from None
        chosen = [each for each in budgets if name in {None, each.metadata.name}]
        if name is not None and not chosen:
            object_not_found("GPUWorkloadBudget", name, where)
        leaders = await reader.leaders()
        now = cluster_now(leaders, datetime.now(UTC))
        note, accounts = "", None
        try:
            accounts = (await read_ledgers(reader.client, reader.operator_namespace, budgets, now)).accounts
        except LedgersNotReadable as error:
            note = f"Usage is as the operator last reported it, without history: {error}."
        assessor = Assessor()
        found = [
            budget_view(each, None if accounts is None else accounts.get(each.key), assessor, now) for each in chosen
        ]
        return sorted(found, key=lambda each: (each.namespace, each.name)), note


def show(found: "list[BudgetView]", note: str, *, with_plot: bool) -> None:
    from forebay.cli.budgets.plot import plots, sparkline

    if not found:
        print("No budgets found. A GPUWorkloadBudget limits GPU-hours or dollars: docs/budgets.md")
        return
    print_table(
        (
            "BUDGET",
            "CONSUMED",
            "QUOTA",
            "LEFT",
            "USD",
            "WINDOW",
            "ACTION",
            "PODS",
            "HELD",
            "EXHAUSTED",
            "USAGE IN WINDOW",
        ),
        [
            (
                f"{each.namespace}/{each.name}",
                f"{_hours(each.consumed)} {each.unit}",
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
            for lines in plots(each):
                print()
                for line in lines:
                    print_line(line)
        if with_plot and each.room_at is not None:
            print_paragraph(
                f"{each.namespace}/{each.name} is used up, and has room again not before "
                f"{each.room_at:%Y-%m-%d %H:%M:%S} UTC; raise spec.quota for room now."
            )
        if each.error:
            print_paragraph(f"{each.namespace}/{each.name}: {each.error}")
    if note:
        print_paragraph(note)


def _hours(text: str | None) -> str:
    if text is None:
        return "-"
    rounded = f"{float(text):.3f}".rstrip("0").rstrip(".")
    # An amount that three decimals would show as 0.
    return rounded if rounded != "0" or not float(text) else f"{float(text):.1g}"


def _dollars(consumed: str, quota: str | None) -> str:
    if quota is None:
        return f"{float(consumed):,.2f}" if float(consumed) else "-"
    return f"{float(consumed):,.2f} of {float(quota):,.2f}"


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    namespace, name = arguments.namespace, arguments.name
    if name is not None:
        namespace, name = namespace_and_name(name, namespace)
    found, note = asyncio.run(read_budgets(settings, namespace, name))
    if arguments.output != "text":
        print_document({"budgets": msgspec.to_builtins(found), "note": note}, arguments.output)
    else:
        show(found, note, with_plot=arguments.name is not None)
    return 0


COMMAND = Command(
    name="budgets",
    summary="show usage, quota and forecast of every budget",
    description="Show every GPUWorkloadBudget: GPU-hours and dollars used in its window, what is left of the\n"
    "quota, how many pods count and how many are held, when the quota will be exhausted if usage\n"
    "continues as now, and usage over the window. With NAME, also plot the window: usage (bars),\n"
    "quota (line) and forecast (dots).",
    options=add_options,
    run=run,
    watchable=True,
)
