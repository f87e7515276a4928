"""The demo is the operator itself on an embedded cluster: its story, its sums, and what users read meanwhile."""

import asyncio
import io
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import timedelta
from fractions import Fraction
from itertools import islice

import pytest
from rich.console import Console

from forebay.api.gpu_instance import InstanceState
from forebay.cli.cluster_reader import ClusterReader
from forebay.cli.demo.recorder import summary, summary_lines
from forebay.cli.demo.view import PlainView, picture
from forebay.cli.demo.world import playing
from forebay.cli.explain import command as explain
from forebay.cli.parser import UserError
from forebay.embedded.server import EmbeddedCluster
from forebay.kube.client import Client
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.settings import Settings
from forebay.simulate import virtual_time
from forebay.simulate.lab import SULKS, stream

SEED = 1
#: The fifth is the one that nothing can serve.
JOBS = 6


@asynccontextmanager
async def demo(jobs=JOBS, seed=SEED):
    async with EmbeddedCluster(seed=seed) as cluster, playing(cluster, seed) as made:
        submitting = asyncio.create_task(made.submit(jobs))
        yield made
        submitting.cancel()
        await asyncio.wait({submitting})


async def explained(made, kind, name):
    async with asyncio.timeout(5):
        reader = ClusterReader(Client(InProcess(made.cluster.handler), "http://embedded"), "default")
        story, _ = await explain.explanation_of(reader, Settings(), kind, name, None)
        return story


async def until(condition, limit=3600):
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 (a story is watched from outside)
            await asyncio.sleep(1)


def records(made, state):
    return [each for each in made.views.instances.values() if each.state is state]


@pytest.fixture(scope="module")
def ended():
    """A whole demo, and its summary."""

    async def play():
        async with demo() as made:
            assert await made.until_idle()
            return made, summary(made.chronicle, made.world, seed=SEED, begun=made.begun, now=clock.now())

    return virtual_time.run(play())


def test_every_pod_that_can_be_served_is_and_every_machine_is_off_at_the_end(ended):
    made, found = ended

    asked = sum(arrival.pods for arrival in islice(stream(SEED), JOBS))
    assert (found.pods, found.served, found.complete) == (asked, asked - 1, True)
    assert [(each.gpus, each.reason) for each in found.unserved] == [(16, "NoOfferFits")]
    assert made.world.on == frozenset()
    assert found.switched_on == found.switched_off >= 3
    assert (found.powered_off_in_use, found.powered_on_twice) == (0, 0)


def test_the_sums_are_those_of_the_machines_own_meters(ended):
    made, found = ended

    prices = {name: Fraction(machine.hourly_price) for name, machine in made.world.machines.items()}
    cost = sum(prices[each.machine] * hours(each.until - each.since) for each in made.world.periods)
    assert Fraction(found.cost_exact) == cost > 0
    assert Fraction(found.always_on_cost_exact) == sum(prices.values()) * Fraction(int(found.seconds), 3600)
    assert Fraction(found.cost) == round(cost, 6)
    # Forebay's own records count from before the call until there is proof.
    assert cost <= Fraction(found.cost_on_record_exact) < cost * Fraction(11, 10)
    assert Fraction(found.gpu_hours_used) < Fraction(found.gpu_hours_powered)
    assert dict(summary_lines(found))["Cost"].startswith(f"${found.cost[:3]}")


def hours(span):
    return Fraction(span // timedelta(microseconds=1), 3600 * 10**6)


async def test_a_machine_that_does_not_come_up_is_switched_off_and_others_serve():
    async with demo(jobs=7) as made:
        assert await made.until_idle()

    words = [word.reason for word in made.chronicle.words if word.name == SULKS]
    assert "JoinTimeout" in words
    assert words.index("JoinTimeout") < words.index("Terminated")
    assert all(life.finished for life in made.chronicle.pods.values() if int(life.gpus) <= 8)


async def test_a_user_who_asks_while_a_machine_boots_hears_which_and_by_when():
    async with demo() as made:
        await until(lambda: records(made, InstanceState.LAUNCHED))
        (record,) = records(made, InstanceState.LAUNCHED)
        pod = record.spec.pods[0].name

        story = await explained(made, "pod", pod)
        assert story.reason == "Unschedulable"
        assert f"{record.metadata.name} must be a ready node with its GPUs by" in story.next
        assert "CapacityNeeded" in {event.reason for event in story.events}

        of_job = await explained(made, "job", pod.rpartition("-")[0])
        assert [each.about for each in of_job.pods] == [f"Pod default/{pod}"]
        assert of_job.next == story.next


async def test_a_machine_in_service_tells_its_history_its_cost_and_when_it_goes():
    async with demo(jobs=1) as made:
        await until(lambda: records(made, InstanceState.READY))
        (record,) = records(made, InstanceState.READY)
        await asyncio.sleep(60)

        busy = await explained(made, "gi", record.metadata.name)
        (machine,) = busy.machines
        assert [step.state for step in machine.history] == ["Requested", "Launching", "Launched", "Joined", "Ready"]
        span = clock.now() - machine.billed_from
        assert Fraction(machine.cost_exact) == Fraction(machine.price_per_hour) * hours(span)
        assert "stays while pods run on it" in busy.next

        await until(lambda: all(life.finished for life in made.chronicle.pods.values()))
        await asyncio.sleep(30)
        idle = await explained(made, "node", record.metadata.name)
        assert "consolidateAfter of pool lab is 3m" in idle.next
        assert idle.answer.startswith("Forebay obtained it for default/")

        own = await explained(made, "node", "control")
        assert own.reason == "NotObtained"


async def test_the_pod_that_nothing_can_serve_is_told_what_would_help():
    async with demo() as made:
        await until(lambda: any(int(life.gpus) == 16 for life in made.chronicle.pods.values()))
        await asyncio.sleep(10)
        (name,) = [life.name for life in made.chronicle.pods.values() if int(life.gpus) == 16]

        story = await explained(made, "pod", name)

    assert story.next.startswith("NoOfferFits, said ")
    assert "ask for less" in story.next


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("pod", 'there is no Pod "x" in namespace "default"; another is chosen with -n'),
        ("job", 'there is no Job "x" in namespace "default"; another is chosen with -n'),
        ("node", 'there is no Node "x"'),
        ("gi", 'there is no GPUInstance "x"'),
    ],
)
async def test_what_does_not_exist_is_said_in_one_sentence(kind, sentence):
    async with demo(jobs=1) as made:
        with pytest.raises(UserError) as refusal:
            await explained(made, kind, "x")

    assert str(refusal.value) == sentence


async def test_the_picture_fits_eighty_columns_without_colour_and_shows_all_parts():
    async with demo() as made:
        await until(lambda: any(int(life.gpus) == 16 for life in made.chronicle.pods.values()))
        await asyncio.sleep(10)
        screen = io.StringIO()
        console = Console(file=screen, width=80, height=24, no_color=True, force_terminal=False)
        console.print(picture(made, 60, 80, 24))

    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert lines[0].startswith("Forebay demo  0:")
    for part in ("MACHINE", "rack-8", "WAITING", "giant-05-", "DECIDED ABOUT", "NoOfferFits: None of 5 offers"):
        assert part in text


async def test_where_there_is_no_terminal_each_decision_is_a_line(capsys):
    async with demo(jobs=1) as made:
        lines = PlainView(made)
        await made.until_idle()
        lines.close()

    # Without the operator's own log, which tests do not send elsewhere.
    told_lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("0:")]
    assert told_lines[0].startswith("0:00:05   desk-1  CapacityNeeded: ")
    assert [line.split()[2].rstrip(":") for line in told_lines][-1] == "Terminated"


def run_demo(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "forebay", "demo", "--until-idle", "--output", "json", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
        timeout=100,
        check=False,
    )


def test_the_same_seed_tells_the_same_story_in_every_process():
    first, second = (run_demo("--jobs", "4", "--seed", "3", PYTHONHASHSEED=hashes) for hashes in ("1", "2"))

    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert json.loads(first.stdout)["seed"] == 3
    assert first.stdout == second.stdout
