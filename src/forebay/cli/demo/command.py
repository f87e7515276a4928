"""`forebay demo`: runs the operator on a simulated lab, without a cluster or an account."""

import argparse
import asyncio
import shlex
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forebay.cli.embedded import port, serving_cluster
from forebay.cli.end_signals import on_end_signals
from forebay.cli.output import add_output_option, print_document, print_table, terminal_width
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.demo.recorder import Summary
    from forebay.cli.demo.world import Demo

DEFAULT_SPEED: Final = 60.0
FASTEST: Final = 10_000.0
DEFAULT_JOBS: Final = 18
MOST_JOBS: Final = 1000
#: How often a second of real time the display is refreshed.
_REFRESHES: Final = 5
INTERRUPTED: Final = 130


def speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; give a number above 0, up to {FASTEST:g}")
    return number


def count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 0 < number <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of Jobs; give 1 to {MOST_JOBS}")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        type=speed,
        help=f"simulated seconds per real second (default: {DEFAULT_SPEED:g}; with --serve: 1)",
    )
    parser.add_argument(
        "--scenario",
        choices=("lab", "burst", "offload"),
        default="lab",
        help="lab: five machines of your own; burst: two of your own and two clouds; offload: one of your own, and "
        "remote containers for Jobs that are marked for it (default: lab)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random Jobs (default: 1)")
    parser.add_argument("--jobs", type=count, help=f"number of Jobs (default: {DEFAULT_JOBS}; with --serve: no limit)")
    parser.add_argument(
        "--until-idle",
        action="store_true",
        help="run as fast as possible and print only the summary; the same for the same seed",
    )
    parser.add_argument(
        "--serve", action="store_true", help="serve the cluster's API, print its kubeconfig, and run until Ctrl-C"
    )
    parser.add_argument("--port", type=port, help="loopback port for --serve (default: any free port)")
    parser.add_argument("--web-port", type=port, help="loopback port of the dashboard (default: any free port)")
    add_output_option(parser)


_INTRO: Final = (
    "A simulated lab with five GPU machines, all off, is served on {url}; Forebay manages it. A team, interns, has a "
    "budget of a quarter of a GPU-hour per hour. In another terminal:"
)
_END: Final = "Ctrl-C ends the demo with a summary; nothing is left behind."
_COMMANDS_TO_TRY: Final = (
    ("kubectl get gpuinstances -w", "state of each machine"),
    ("kubectl get jobs,pods", "what runs, what waits"),
    ("{forebay} status", "pools, machines, cost"),
    ("{forebay} budgets", "the budget of the team interns"),
    ("{forebay} explain job/giant-05", "why the fifth Job waits, from {fifth} on"),
)
_WRONG_AGES: Final = "The ages that kubectl shows are wrong at this speed: kubectl uses the real clock."


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.simulate import paced_time, virtual_time
    from forebay.wiring.logs import configure_logging

    check(arguments)
    # Simulated faults are shown in the demo itself; only errors of the demo's own code are logged.
    configure_logging(settings, level="error")
    pace = arguments.speed or (1.0 if arguments.serve else DEFAULT_SPEED)
    if arguments.until_idle:
        demo_summary, code = virtual_time.run(run_demo(arguments, None))
    else:
        demo_summary, code = paced_time.run(run_demo(arguments, pace), speed=pace, keeps_step=arguments.serve)
    print_summary(demo_summary, arguments.output)
    return code


def check(arguments: argparse.Namespace) -> None:
    if arguments.until_idle and arguments.speed is not None:
        raise UserError("--until-idle runs as fast as possible, so --speed has no effect: leave out one of them")
    if arguments.until_idle and arguments.serve:
        raise UserError(
            "--until-idle ends before anybody could connect, and --serve is for connecting: leave out one of them"
        )
    if arguments.port is not None and not arguments.serve:
        raise UserError("--port is the port of --serve: add --serve, or leave out --port")
    if arguments.scenario != "lab" and (arguments.serve or arguments.jobs is not None):
        raise UserError(
            f"--scenario {arguments.scenario} has its own few Jobs and an end: leave out --jobs and --serve"
        )
    if arguments.serve and arguments.output != "text":
        raise UserError("--serve prints text for people: leave out --serve or --output json (or yaml)")


async def run_demo(arguments: argparse.Namespace, pace: float | None) -> "tuple[Summary, int]":
    """Run the demo; returns its summary and the exit code. `pace`: the speed of the display, None for no display."""
    from forebay.cli.demo.recorder import demo_summary
    from forebay.cli.demo.world import Scenario, running_demo
    from forebay.embedded.server import EmbeddedCluster
    from forebay.net import clock

    interrupted = asyncio.Event()
    on_end_signals(interrupted.set)
    jobs = arguments.jobs or (None if arguments.serve else DEFAULT_JOBS)
    async with AsyncExitStack() as stack:
        cluster = EmbeddedCluster(seed=arguments.seed)
        intro = None
        if arguments.serve:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-demo-")))
            url = await stack.enter_async_context(
                serving_cluster(cluster, arguments.port or 0, directory / "kubeconfig")
            )
            intro = intro_text(url, directory / "kubeconfig", pace, arguments.seed, terminal_width() or 120)
        else:
            await stack.enter_async_context(cluster)
        demo = await stack.enter_async_context(running_demo(cluster, arguments.seed, Scenario(arguments.scenario)))
        if intro is not None:
            print(intro, flush=True)
        if pace is not None and arguments.output == "text":
            page = await stack.enter_async_context(serving_dashboard(demo, arguments.web_port or 0, pace))
            print(f"Dashboard: {page}")
            if pace != 1:
                print(f"A second here is {pace:g} s of simulated time, from {demo.started:%H:%M:%S} UTC on.")
            print(flush=True)
        ended = await display_until_end(demo, interrupted, arguments, jobs, pace)
        found = demo_summary(
            demo.recorder, demo.world, demo.markets, seed=arguments.seed, started=demo.started, now=clock.now()
        )
    if interrupted.is_set():
        return found, 0 if arguments.serve else INTERRUPTED
    return found, 0 if ended else 1


@asynccontextmanager
async def serving_dashboard(demo: "Demo", port_number: int, pace: float) -> AsyncIterator[str]:
    """Serve the dashboard on a loopback port while the block runs; yields its address. Timeouts are in real time."""
    from forebay.net.redaction import Redactor
    from forebay.net.serve import PUBLIC, ServerLimits, serving
    from forebay.web.access import for_this_machine
    from forebay.web.dashboard import Dashboard

    dashboard = Dashboard(demo.operator.observation, Redactor(), refresh=pace)
    limits = ServerLimits(
        body=PUBLIC.body, connections=PUBLIC.connections, header_timeout=(PUBLIC.header_timeout or 0) * pace
    )
    try:
        async with serving(for_this_machine(dashboard.handle), port=port_number, limits=limits) as url:
            yield f"{url}/"
    except OSError as error:
        raise UserError(f"cannot serve the dashboard on port {port_number}: {error.strerror}") from error


def intro_text(url: str, kubeconfig: Path, pace: float | None, seed: int, columns: int) -> str:
    """What to do in another terminal. Where a command and its comment do not fit on a line, the comment comes first."""
    from forebay.model.spans import human
    from forebay.simulate.lab import arrivals

    fifth = human(timedelta(seconds=sum(each.after for each in islice(arrivals(seed), 5)) / (pace or 1)))
    forebay = shlex.quote(sys.argv[0] if Path(sys.argv[0]).name == "forebay" else "forebay")
    commands = [(command.format(forebay=forebay), what.format(fifth=fifth)) for command, what in _COMMANDS_TO_TRY]
    width = max(len(command) for command, _ in commands)
    lines = [f"  {command:{width}}  # {what}" for command, what in commands]
    if max(map(len, lines)) > columns:
        lines = [line for command, what in commands for line in (f"  # {what}", f"  {command}")]
    intro, *ending = (
        textwrap.fill(each, columns, break_on_hyphens=False, break_long_words=False)
        for each in (_INTRO.format(url=url), _END, *(() if pace == 1 else (_WRONG_AGES,)))
    )
    return "\n".join((intro, "", f"  export KUBECONFIG={kubeconfig}", *lines, "", *ending, ""))


async def display_until_end(
    demo: "Demo", interrupted: asyncio.Event, arguments: argparse.Namespace, jobs: int | None, pace: float | None
) -> bool:
    """Submit Jobs and refresh the display until the demo ends; True if it ended by itself, with everything off.

    A demo with --serve runs until it is interrupted.
    """
    from forebay.cli.demo.view import view

    display = view(demo, pace) if pace is not None and arguments.output == "text" else None
    submission = asyncio.create_task(demo.submit_jobs(jobs), name="submission of Jobs")
    stop = asyncio.create_task(interrupted.wait(), name="interruption")
    idle = asyncio.create_task(demo.until_idle(), name="until idle")
    end = stop if arguments.serve else idle
    try:
        while not (end.done() or stop.done() or demo.operator_task.done()):
            pause = (pace or 60.0) / _REFRESHES
            await asyncio.wait({end, stop, demo.operator_task}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if display is not None:
                display.refresh()
    finally:
        if display is not None:
            display.close()
        for task in (submission, stop, idle):
            task.cancel()
        await asyncio.wait({submission, stop, idle})
    if demo.operator_task.done():
        demo.operator_task.result()  # the operator ends only with an exception: raise it
    return idle.done() and not idle.cancelled() and idle.result()


def print_summary(summary: "Summary", output: str) -> None:
    import msgspec

    from forebay.cli.demo.recorder import summary_rows

    if output != "text":
        print_document(msgspec.to_builtins(summary), output)
        return
    print()
    rows = summary_rows(summary)
    print_table(rows[0], rows[1:], titles=False)


COMMAND = Command(
    name="demo",
    summary="run the operator on a simulated lab: no cluster, no account",
    description="Simulate a lab with five GPU machines: Jobs arrive, and Forebay powers machines on and off and\n"
    "says why. One machine fails to boot, one Job is too large for the lab, and one team uses up its\n"
    "budget and waits. The demo ends by itself, and prints the cost and what the same machines would\n"
    "have cost if left on:\n\n"
    "  forebay demo\n"
    "  forebay demo --scenario burst\n"
    "  forebay demo --scenario offload\n"
    "  forebay demo --until-idle --output json --seed 7\n"
    "  forebay demo --serve",
    options=add_options,
    run=run,
    uses_settings=False,
)
