"""`forebay simulate`: a trace of pods against offers: cost, waits and use, for Forebay and for other policies."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forebay.cli.output import add_output_option, print_document, print_line, print_paragraph, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.model.quantities import Usd
    from forebay.reporting.simulation import PolicyRow, SimulationReport
    from forebay.simulate.hindsight import AlwaysOn
    from forebay.simulate.price_history import PricesFrom
    from forebay.simulate.replay import Outcome
    from forebay.simulate.traces import Trace, TracedPod

_HOUR: Final = 3600
_DAY: Final = 86_400
_NEVER: Final = 2**62
#: GPU-hours from which on parts of one are not worth showing.
_MANY_HOURS: Final = 10
_NOTES: Final = (
    "forebay: the operator's planner, for all pods that wait.",
    "first fit: the cheapest machine for one pod after the other. Both use free and booting machines first.",
    "always on: the planner's machines for the busiest second, rented from the first pod to the last.",
    "hindsight bound: every pod pays for its own GPUs only, at the lowest price of any machine it fits on.",
    "A policy that costs less than the bound has not run all pods.",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    from forebay.cli.workload import span

    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", metavar="FILE", help="table of pods (CSV, plain or gzip): openb, Philly or your own")
    source.add_argument(
        "--from-cluster",
        type=_days,
        metavar="SPAN",
        help="the last days of your cluster (such as 7d) by the ledgers of its budgets",
    )
    parser.add_argument("--offers", required=True, metavar="FILE", help="table of offers (CSV, plain or gzip)")
    parser.add_argument("--provider", action="append", default=[], help="only offers of this provider; may be repeated")
    parser.add_argument(
        "--gpu", action="append", default=[], metavar="MODEL", help="GPU model by any of its names; may be repeated"
    )
    parser.add_argument("--after", type=_seconds, default=0, help="leave out pods before this second of the trace")
    parser.add_argument("--before", type=_seconds, default=_NEVER, help="leave out pods from this second on")
    parser.add_argument("--boot", type=span, default=span("3m"), help="from purchase to a ready node (default: 3m)")
    parser.add_argument(
        "--idle", type=span, default=span("30s"), help="time without pods before a machine ends (default: 30s)"
    )
    parser.add_argument("--max-nodes", type=int, help="most machines at a time")
    parser.add_argument("--max-hourly-cost", metavar="USD", help="most dollars an hour at a time")
    parser.add_argument(
        "--budget", metavar="GPU_HOURS/WINDOW", help="GPU-hours in a rolling window, such as 500/24h: beyond, pods wait"
    )
    parser.add_argument("--spot", action="store_true", help="use spot offers too")
    parser.add_argument(
        "--reclaims",
        default="0",
        metavar="RATE|FILE",
        help="reclaims of a spot machine an hour, or records of availability to measure it by (JSON lines, plain or "
        "gzip; default: 0)",
    )
    parser.add_argument(
        "--prices",
        action="append",
        default=[],
        metavar="FILE",
        help="history of prices and availability of these offers (CSV, plain or gzip); may be repeated",
    )
    parser.add_argument(
        "--prices-from",
        type=_time,
        metavar="TIME",
        help="moment of the history at which the trace begins (default: as late as it covers the trace)",
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="draw GPUs, waits and dollars over time into FILE.svg, FILE.png or FILE.html"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the reclaims: the same seed, the same run (default: 1)")
    add_output_option(parser)


def _seconds(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None


def _days(text: str) -> timedelta:
    from forebay.cli.workload import span

    return timedelta(days=int(text[:-1])) if text.endswith("d") and text[:-1].isdecimal() else span(text)


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@contextmanager
def _progress(task: str) -> Iterator[Callable[[float], None]]:
    """A bar on the terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        number = bar.add_task(task, total=1.0)
        yield lambda share: bar.update(number, completed=share)


def simulate(arguments: argparse.Namespace, settings: Settings) -> "tuple[SimulationReport, list[Outcome]]":
    from forebay.cli.simulate.inputs import (
        cheapest_ever,
        limits_of,
        read_candidates,
        read_pods,
        read_prices,
        read_reclaims,
        terms_of,
        trimmed,
    )
    from forebay.reporting.simulation import SimulationReport
    from forebay.simulate.hindsight import always_on, hindsight_bound
    from forebay.simulate.policies import FirstFitPolicy, PlannerPolicy
    from forebay.simulate.replay import Replay

    if arguments.trace is not None:
        trace = read_pods(arguments.trace, arguments.after, arguments.before)
    else:
        own = asyncio.run(_own_past(settings, arguments.from_cluster))
        trace = trimmed(own, "the cluster's ledgers", arguments.after, arguments.before)
    found = read_candidates(arguments)
    reclaims, measured = read_reclaims(arguments)
    terms, limits = terms_of(arguments, reclaims), limits_of(arguments)
    lasts = max(each.submitted + each.duration for each in trace.pods)
    prices = read_prices(arguments.prices, arguments.prices_from, lasts, [each.offer for each in found])
    outcomes = []
    for policy in (PlannerPolicy(found, limits), FirstFitPolicy(found, limits)):
        with _progress(policy.name) as progress:
            outcomes.append(Replay(trace.pods, policy, found, terms, prices.changes).run(progress))
    bound, always = hindsight_bound(trace.pods, cheapest_ever(found, prices.changes)), always_on(trace.pods, found)
    report = SimulationReport(
        pods=len(trace.pods),
        skipped=trace.skipped,
        gpu_hours=round(sum(_gpu_seconds(each) for each in trace.pods) / _HOUR, 3),
        days=round(always.seconds / _DAY, 2),
        seconds=always.seconds,
        offers=len(found),
        policies=(
            *(_row(each, bound) for each in outcomes),
            _always_row(always, bound),
        ),
        hindsight_bound=bound.decimals(2),
        notes=(
            *(() if prices.start is None else (_history_note(prices.changes, prices.start),)),
            *(() if measured is None else (measured,)),
        ),
    )
    return report, outcomes


async def _own_past(settings: Settings, span: timedelta) -> "Trace":
    """What pods of budgets have used of late. Raises `UserError` where no ledger can be read."""
    from forebay.cli.cluster_reader import cluster_reader
    from forebay.engine.ledger.ledger_reader import LedgersNotReadable, read_ledgers
    from forebay.kube.errors import NotFound
    from forebay.kube.own_kinds import GPU_WORKLOAD_BUDGETS
    from forebay.reporting.cluster_view import cluster_now
    from forebay.simulate.ledger_trace import ledger_trace

    async with cluster_reader(settings) as reader:
        now = cluster_now(await reader.leaders(), datetime.now(UTC))
        try:
            budgets = (await reader.client.list_all(GPU_WORKLOAD_BUDGETS)).items
            accounts = (await read_ledgers(reader.client, reader.operator_namespace, budgets, now)).accounts
        except NotFound:
            raise UserError("Forebay is not installed in this cluster; give --trace") from None
        except LedgersNotReadable as error:
            raise UserError(f"{error}; give --trace") from error
    if not budgets:
        raise UserError(
            "the cluster has no GPUWorkloadBudget, and only what budgets count is in the ledger; make one with a large "
            "quota and the action AlertOnly, or give --trace"
        )
    ledgers = [(account.key[0], account.ledger) for account in accounts]
    return ledger_trace(ledgers, int((now - span).timestamp()), int(now.timestamp()))


def _history_note(changes: "Sequence[PricesFrom]", start: datetime) -> str:
    told = len({key for change in changes for key in change.prices})
    return (
        f"Prices of {told:,} offers follow their history from {start:%Y-%m-%d %H:%M} UTC on, with {len(changes) - 1:,} "
        "changes. A spot machine that cannot be had any more is reclaimed; always on pays the table's prices."
    )


def _gpu_seconds(traced: "TracedPod") -> int:
    return traced.duration * int(traced.pod.shape.gpus())


def _row(outcome: "Outcome", bound: "Usd") -> "PolicyRow":
    from forebay.reporting.simulation import PolicyRow, percentile, ratio

    return PolicyRow(
        policy=outcome.policy,
        cost=outcome.cost.decimals(2),
        times_bound=ratio(outcome.cost, bound),
        machines=outcome.machines,
        gpu_utilisation=round(outcome.utilisation, 4),
        wait_median_s=percentile(outcome.waits, 0.5),
        wait_p95_s=percentile(outcome.waits, 0.95),
        wait_longest_s=percentile(outcome.waits, 1.0),
        unserved=outcome.unserved,
        left_waiting=outcome.left_waiting,
        interruptions=outcome.interruptions,
        gpu_hours_lost=round(outcome.gpu_seconds_lost / _HOUR, 3),
    )


def _always_row(always: "AlwaysOn", bound: "Usd") -> "PolicyRow":
    from forebay.reporting.simulation import PolicyRow, ratio

    rented = always.gpus * always.seconds
    return PolicyRow(
        policy="always on",
        cost=always.cost.decimals(2),
        times_bound=ratio(always.cost, bound),
        machines=always.machines,
        gpu_utilisation=round(always.gpu_seconds_used / rented, 4) if rented else 0.0,
        wait_median_s=0,
        wait_p95_s=0,
        wait_longest_s=0,
        unserved=always.unserved,
        left_waiting=0,
    )


def show(report: "SimulationReport") -> None:
    from forebay.model.counts import counted
    from forebay.model.spans import human

    hours = f"{report.gpu_hours:,.0f}" if report.gpu_hours >= _MANY_HOURS else f"{report.gpu_hours:.2g}"
    skipped = counted(report.skipped, "row of the trace requests", "rows of the trace request")
    print_paragraph(
        f"{counted(report.pods, 'pod')}, {hours} GPU-hours in {report.length}, on "
        f"{counted(report.offers, 'offer')}" + (f"; {skipped} no GPU or never ran." if report.skipped else ".")
    )
    print_line("")
    rows = [
        (
            each.policy,
            f"${float(each.cost):,.2f}",
            f"{each.times_bound:.2f}" if each.times_bound is not None else "-",
            f"{each.machines:,}",
            f"{each.gpu_utilisation:.0%}",
            *(human(timedelta(seconds=wait)) for wait in (each.wait_median_s, each.wait_p95_s, each.wait_longest_s)),
            str(each.interruptions),
            str(each.unserved + each.left_waiting),
        )
        for each in report.policies
    ]
    rows.append(("hindsight bound", f"${float(report.hindsight_bound):,.2f}", "1.00", *("-",) * 7))
    print_table(
        ("POLICY", "COST", "X BOUND", "MACHINES", "GPUS USED", "WAIT", "P95", "LONGEST", "RECLAIMS", "NOT RUN"), rows
    )
    print_line("")
    for note in (*report.notes, *_NOTES):
        print_paragraph(note, hanging=2)


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    draw = None if arguments.plot is None else _drawer(arguments.plot)
    report, outcomes = simulate(arguments, settings)
    if draw is not None:
        _write(arguments.plot, draw(report, outcomes))
    if arguments.output != "text":
        print_document(msgspec.to_builtins(report), arguments.output)
    else:
        show(report)
    return 0


def _drawer(name: str) -> "Callable[[SimulationReport, Sequence[Outcome]], bytes]":
    """What draws a file of this name. Raises `UserError` where nothing does, before hours are simulated."""
    from forebay.cli.simulate.plot import drawing, html, svg

    match Path(name).suffix:
        case ".svg":
            return lambda report, outcomes: svg(drawing(report, outcomes)).encode()
        case ".html":
            return lambda report, outcomes: html(report, drawing(report, outcomes)).encode()
        case ".png":
            try:
                from forebay.cli.simulate.png import png
            except ImportError:
                raise UserError(
                    f"--plot {name}: PNG needs Pillow, which the extra plots brings (pip install 'forebay[plots]'); "
                    "or give a name that ends in .svg or .html"
                ) from None
            return lambda report, outcomes: png(drawing(report, outcomes))
    raise UserError(f"--plot is {name!r}; give a name that ends in .svg, .png or .html")


def _write(name: str, data: bytes) -> None:
    try:
        Path(name).write_bytes(data)
    except OSError as error:
        raise UserError(f"{name} cannot be written: {error.strerror or error}") from error


COMMAND = Command(
    name="simulate",
    summary="replay a trace of pods against offers: cost, waits and use, and what other policies would cost",
    description="Replay a trace of pods against a table of offers, and show what the operator's planner would have\n"
    "cost, how long pods would have waited, and the same for other policies:\n\n"
    "  forebay simulate --trace pods.csv --offers prices.csv.gz\n"
    "  forebay simulate --trace pods.csv --offers prices.csv.gz --gpu A100 --max-hourly-cost 20 --budget 500/24h\n"
    "  forebay simulate --from-cluster 7d --offers prices.csv.gz --spot --prices history.csv.gz --plot week.html\n\n"
    "A trace of your own has the columns submitted (seconds or a time), duration (seconds) and gpus, and where you\n"
    "know them cpu, memory, namespace and name (docs/simulate.md).\n\n"
    "Exit codes: 0; 2 bad input.",
    options=add_options,
    run=run,
)
