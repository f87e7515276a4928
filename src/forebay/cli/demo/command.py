"""`forebay demo`: Forebay on this machine alone."""

import argparse
import asyncio
import shlex
import signal
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forebay.cli.embedded import port, served
from forebay.cli.output import add_output_option, print_json, print_table
from forebay.cli.parser import Command, UserError
from forebay.settings import Settings

if TYPE_CHECKING:
    from forebay.cli.demo.recorder import Summary
    from forebay.cli.demo.world import Demo

DEFAULT_SPEED: Final = 60.0
FASTEST: Final = 10_000.0
DEFAULT_JOBS: Final = 18
MOST_JOBS: Final = 1000
#: Pictures in one of our seconds.
_PICTURES: Final = 5
INTERRUPTED: Final = 130


def speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= FASTEST:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed; give a number above 0, up to {FASTEST:g}")
    return number


def count(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else 0
    if not 0 < number <= MOST_JOBS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of Jobs; give 1 to {MOST_JOBS}")
    return number


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--speed",
        type=speed,
        help=f"seconds of the lab in one of yours (default: {DEFAULT_SPEED:g}; 1 with --serve)",
    )
    parser.add_argument("--seed", type=int, default=1, help="which stream of Jobs (default: 1)")
    parser.add_argument("--jobs", type=count, help=f"how many Jobs (default: {DEFAULT_JOBS}; no end with --serve)")
    parser.add_argument(
        "--until-idle", action="store_true", help="as fast as it goes, for scripts: the same for the same seed"
    )
    parser.add_argument("--serve", action="store_true", help="serve the cluster, print a kubeconfig, and go on")
    parser.add_argument("--port", type=port, help="the loopback port to serve on (default: any free one)")
    add_output_option(parser)


GREETING: Final = """\
A lab with five GPU machines, all off, is on {url},
and Forebay looks after it. In another terminal:

  export KUBECONFIG={kubeconfig}
{tries}

Ctrl-C ends it with a summary; nothing is left behind."""
_TRIES: Final = (
    ("kubectl get gpuinstances -w", "the story of each machine"),
    ("kubectl get jobs,pods", "who runs, who waits"),
    ("{forebay} status", "pools, machines, money"),
    ("{forebay} explain job/giant-05", "the fifth Job waits: why"),
)
_AGES: Final = "At this speed the ages that kubectl reckons by its own clock are wrong."


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    from forebay.simulate import paced_time, virtual_time
    from forebay.wiring import configure_logging

    check(arguments)
    # What goes wrong in the lab is part of the story, and told there; only faults of ours are not.
    configure_logging(settings, level="error")
    pace = arguments.speed or (1.0 if arguments.serve else DEFAULT_SPEED)
    if arguments.until_idle:
        summary, code = virtual_time.run(play(arguments, None))
    else:
        summary, code = paced_time.run(play(arguments, pace), speed=pace)
    report(summary, arguments.output)
    return code


def check(arguments: argparse.Namespace) -> None:
    if arguments.until_idle and arguments.speed is not None:
        raise UserError(
            "--until-idle runs as fast as it goes, so --speed has no meaning with it: leave out one of them"
        )
    if arguments.until_idle and arguments.serve:
        raise UserError("--until-idle leaves no time to look, and --serve is for looking: leave out one of them")
    if arguments.port is not None and not arguments.serve:
        raise UserError("--port says where to serve: add --serve")
    if arguments.serve and arguments.output == "json":
        raise UserError("--serve prints a greeting for people, so --output json has no meaning with it: leave out one")


async def play(arguments: argparse.Namespace, pace: float | None) -> "tuple[Summary, int]":
    """The whole story; `pace` is how fast people watch it, None that nobody does."""
    from forebay.cli.demo.recorder import summary
    from forebay.cli.demo.world import playing
    from forebay.embedded.server import EmbeddedCluster
    from forebay.net import clock

    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    jobs = arguments.jobs or (None if arguments.serve else DEFAULT_JOBS)
    async with AsyncExitStack() as stack:
        cluster = EmbeddedCluster(seed=arguments.seed)
        greeting = None
        if arguments.serve:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-demo-")))
            url = await stack.enter_async_context(served(cluster, arguments.port or 0, directory / "kubeconfig"))
            greeting = greet(url, directory / "kubeconfig", pace)
        else:
            await stack.enter_async_context(cluster)
        demo = await stack.enter_async_context(playing(cluster, arguments.seed))
        if greeting is not None:
            print(greeting, flush=True)
        ended = await watched(demo, interrupted, arguments, jobs, pace)
        found = summary(demo.chronicle, demo.world, seed=arguments.seed, begun=demo.begun, now=clock.now())
    if interrupted.is_set():
        return found, 0 if arguments.serve else INTERRUPTED
    return found, 0 if ended else 1


def greet(url: str, kubeconfig: Path, pace: float | None) -> str:
    forebay = shlex.quote(sys.argv[0] if Path(sys.argv[0]).name == "forebay" else "forebay")
    tries = [(command.format(forebay=forebay), why) for command, why in _TRIES]
    width = max(len(command) for command, _ in tries)
    lines = "\n".join(f"  {command:{width}}  # {why}" for command, why in tries)
    greeting = GREETING.format(url=url, kubeconfig=kubeconfig, tries=lines)
    return f"{greeting}\n" if pace == 1 else f"{greeting}\n{_AGES}\n"


async def watched(
    demo: "Demo", interrupted: asyncio.Event, arguments: argparse.Namespace, jobs: int | None, pace: float | None
) -> bool:
    """Whether the story came to its end. One that is served goes on until it is interrupted."""
    from forebay.cli.demo.view import view

    shown = view(demo, pace) if pace is not None and arguments.output == "text" else None
    stream = asyncio.create_task(demo.submit(jobs), name="stream of Jobs")
    stop = asyncio.create_task(interrupted.wait(), name="interruption")
    idle = asyncio.create_task(demo.until_idle(), name="until idle")
    over = stop if arguments.serve else idle
    try:
        while not (over.done() or stop.done() or demo.work.done()):
            pause = (pace or 60.0) / _PICTURES
            await asyncio.wait({over, stop, demo.work}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if shown is not None:
                shown.refresh()
    finally:
        if shown is not None:
            shown.close()
        for task in (stream, stop, idle):
            task.cancel()
        await asyncio.wait({stream, stop, idle})
    if demo.work.done():
        demo.work.result()  # it never ends by itself: this raises what ended it
    return idle.done() and not idle.cancelled() and idle.result()


def report(summary: "Summary", output: str) -> None:
    import msgspec

    from forebay.cli.demo.recorder import summary_lines

    if output == "json":
        print_json(msgspec.to_builtins(summary))
        return
    print()
    rows = summary_lines(summary)
    print_table(rows[0], rows[1:])


COMMAND = Command(
    name="demo",
    summary="everything on this machine: no cluster, no account",
    description="Play a lab with five GPU machines: Jobs come, Forebay switches machines on and off, and says why.\n"
    "It ends by itself with what it cost and what machines left on would have cost:\n\n"
    "  forebay demo\n"
    "  forebay demo --until-idle --output json --seed 7\n"
    "  forebay demo --serve",
    options=add_options,
    run=run,
    uses_settings=False,
)
