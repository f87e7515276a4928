"""The demo runs the real operator on an embedded cluster: its events, its summary, and what users see meanwhile."""

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
from pathlib import Path

import pytest
from rich.console import Console

from forebay.api.gpu_instance import InstanceState
from forebay.cli.cluster_reader import ClusterReader
from forebay.cli.demo.command import intro_text
from forebay.cli.demo.recorder import demo_summary, summary_rows
from forebay.cli.demo.view import PlainView, render
from forebay.cli.demo.world import Scenario, running_demo
from forebay.cli.explain import command as explain
from forebay.cli.parser import UserError
from forebay.embedded.server import EmbeddedCluster
from forebay.kube.client import Client
from forebay.model.quantities import Usd
from forebay.model.spans import human
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.settings import Settings
from forebay.simulate import virtual_time
from forebay.simulate.lab import FAILS_FIRST_BOOT, arrivals

SEED = 1
#: The fifth is too large for every machine.
JOBS = 6


@asynccontextmanager
async def demo(jobs=JOBS, seed=SEED):
    async with EmbeddedCluster(seed=seed) as cluster, running_demo(cluster, seed) as made:
        submitting = asyncio.create_task(made.submit_jobs(jobs))
        yield made
        submitting.cancel()
        await asyncio.wait({submitting})


async def explained(made, kind, name):
    async with asyncio.timeout(5):
        reader = ClusterReader(Client(InProcess(made.cluster.handler), "http://embedded"), "default", "forebay-system")
        explanation, _ = await explain.explanation_of(reader, Settings(), kind, name, None)
        return explanation


async def until(condition, limit=3600):
    async with asyncio.timeout(limit):
        while not condition():  # noqa: ASYNC110 (polls a simulation in virtual time)
            await asyncio.sleep(1)


def records(made, state):
    return [each for each in made.views.instances.values() if each.state is state]


@pytest.fixture(scope="module")
def ended():
    """A demo that has ended, and its summary."""

    async def run_to_the_end():
        async with demo() as made:
            assert await made.until_idle()
            return made, demo_summary(made.recorder, made.world, seed=SEED, started=made.started, now=clock.now())

    return virtual_time.run(run_to_the_end())


def test_every_pod_that_fits_a_machine_runs_and_every_machine_is_off_at_the_end(ended):
    made, found = ended

    expected = sum(arrival.pods for arrival in islice(arrivals(SEED), JOBS))
    assert (found.pods, found.served, found.complete) == (expected, expected - 1, True)
    assert [(each.gpus, each.reason) for each in found.unserved] == [(16, "NoOfferFits")]
    assert made.world.on == frozenset()
    assert found.powered_on == found.powered_off >= 3
    assert (found.powered_off_in_use, found.powered_on_twice) == (0, 0)


def test_the_cost_is_that_of_the_time_machines_drew_power(ended):
    made, found = ended

    prices = {name: Fraction(machine.hourly_price) for name, machine in made.world.machines.items()}
    cost = sum(prices[each.machine] * hours(each.until - each.since) for each in made.world.periods)
    assert Fraction(found.cost_exact) == cost > 0
    assert Fraction(found.always_on_cost_exact) == sum(prices.values()) * Fraction(int(found.seconds), 3600)
    assert Fraction(found.cost) == round(cost, 6)
    # GPUInstances are billed from before the call until absence is proven.
    assert cost <= Fraction(found.cost_on_record_exact) < cost * Fraction(11, 10)
    assert Fraction(found.gpu_hours_used) < Fraction(found.gpu_hours_powered)
    assert dict(summary_rows(found))["Cost"].startswith(f"${found.cost[:3]}")


def hours(span):
    return Fraction(span // timedelta(microseconds=1), 3600 * 10**6)


async def test_a_machine_that_does_not_become_a_node_is_powered_off_and_others_are_used():
    async with demo(jobs=7) as made:
        assert await made.until_idle()

    reasons = [event.reason for event in made.recorder.events if event.name == FAILS_FIRST_BOOT]
    assert "JoinTimeout" in reasons
    assert reasons.index("JoinTimeout") < reasons.index("Terminated")
    assert all(each.finished for each in made.recorder.pods.values() if int(each.gpus) <= 8)


async def test_while_a_machine_boots_its_pod_shows_the_instance_and_its_deadline():
    async with demo() as made:
        await until(lambda: records(made, InstanceState.LAUNCHED))
        (record,) = records(made, InstanceState.LAUNCHED)
        pod = record.spec.pods[0].name

        explanation = await explained(made, "pod", pod)
        assert explanation.reason == "CapacityLaunching"
        assert f"{record.metadata.name} must be a Ready node with its GPUs by" in explanation.next
        assert "CapacityNeeded" in {event.reason for event in explanation.events}

        of_job = await explained(made, "job", pod.rpartition("-")[0])
        assert [each.about for each in of_job.pods] == [f"Pod default/{pod}"]
        assert of_job.next == explanation.next


async def test_a_ready_instance_shows_its_history_its_cost_and_when_it_is_powered_off():
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

        await until(lambda: all(each.finished for each in made.recorder.pods.values()))
        await asyncio.sleep(30)
        idle = await explained(made, "node", record.metadata.name)
        assert "consolidateAfter of pool lab is 3m" in idle.next
        assert idle.answer.startswith(f"Forebay powered on {record.metadata.name} for default/")

        own = await explained(made, "node", "control")
        assert own.reason == "NotManaged"


async def test_the_pod_that_is_too_large_shows_what_would_help():
    async with demo() as made:
        await until(lambda: any(int(each.gpus) == 16 for each in made.recorder.pods.values()))
        await asyncio.sleep(10)
        (name,) = [each.name for each in made.recorder.pods.values() if int(each.gpus) == 16]

        explanation = await explained(made, "pod", name)

    assert explanation.next.startswith("NoOfferFits: None of 5 offers")
    assert "request less" in explanation.next


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("pod", 'Pod "x" not found in namespace "default"; choose another namespace with -n'),
        ("job", 'Job "x" not found in namespace "default"; choose another namespace with -n'),
        ("node", 'Node "x" not found'),
        ("gi", 'GPUInstance "x" not found'),
    ],
)
async def test_explaining_an_object_that_does_not_exist_is_an_error_of_one_sentence(kind, sentence):
    async with demo(jobs=1) as made:
        with pytest.raises(UserError) as refusal:
            await explained(made, kind, "x")

    assert str(refusal.value) == sentence


async def test_the_screen_fits_eighty_columns_without_colour_and_shows_all_parts():
    async with demo() as made:
        await until(lambda: any(int(each.gpus) == 16 for each in made.recorder.pods.values()))
        await asyncio.sleep(10)
        screen = io.StringIO()
        console = Console(file=screen, width=80, height=24, no_color=True, force_terminal=False)
        console.print(render(made, 60, 80, 24))

    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24
    text = "\n".join(lines)
    assert lines[0].startswith("Forebay demo  0:")
    for part in (
        "MACHINE",
        "rack-8",
        "GPUs: █ used  ░ free  · off",
        "WAITING",
        "giant-05-",
        "OBJECT",
        "NoOfferFits: None of 5 offers",
    ):
        assert part in text


def test_the_greeting_says_from_when_on_the_fifth_job_is_there():
    greeting = intro_text("https://127.0.0.1:1", Path("k"), 1.0, SEED, 120)
    seconds = sum(each.after for each in islice(arrivals(SEED), 5))

    assert f"why the fifth Job waits, from {human(timedelta(seconds=seconds))} on" in greeting


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_greeting_fits_on_the_terminal(columns):
    greeting = intro_text("https://127.0.0.1:33075", Path("/tmp/demo/kubeconfig"), 60.0, SEED, columns)

    assert max(map(len, greeting.splitlines())) <= columns
    assert " forebay status" in greeting


async def test_without_a_terminal_each_event_is_a_line(capsys):
    async with demo(jobs=1) as made:
        lines = PlainView(made)
        await made.until_idle()
        lines.close()

    # Without the lines of the operator's log, which go to standard output too.
    event_lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("0:")]
    assert event_lines[0].startswith("0:00:05   desk-1  CapacityNeeded: ")
    assert [line.split()[2].rstrip(":") for line in event_lines][-1] == "Terminated"


def run_demo(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "forebay", "demo", "--until-idle", "--output", "json", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **variables},
        timeout=100,
        check=False,
    )


def test_the_same_seed_gives_the_same_summary_in_every_process():
    first, second = (run_demo("--jobs", "4", "--seed", "3", PYTHONHASHSEED=hashes) for hashes in ("1", "2"))

    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    assert json.loads(first.stdout)["seed"] == 3
    assert first.stdout == second.stdout


async def test_the_team_with_a_budget_uses_it_up_and_its_other_pods_wait_with_the_reason_and_run_later():
    async with demo(jobs=8) as made:
        await until(lambda: any(each.held for each in made.recorder.pods.values()), 1800)
        (name,) = [each.name for each in made.recorder.pods.values() if each.held]
        explanation = await explained(made, "pod", name)
        console = Console(file=io.StringIO(), width=200)
        console.print(render(made, 60.0, 200, 60))
        assert await made.until_idle()
        found = demo_summary(made.recorder, made.world, seed=SEED, started=made.started, now=clock.now())

    assert explanation.reason == "HeldByBudget"
    assert "GPUWorkloadBudget interns has too little headroom for the pod" in explanation.next
    assert "of 0.25 GPU-h used in the last 1h" in console.file.getvalue()
    assert "HeldByBudget: GPUWorkloadBudget interns" in console.file.getvalue()
    assert (found.complete, found.held) == (True, 2)
    assert 2400 < found.held_longest_s < 3600
    assert found.wait_longest_s < 1200
    assert dict(summary_rows(found))["Budget"].startswith("2 pods of interns, not among these waits, ran when")
    told = [each.reason for each in made.recorder.events if each.kind == "GPUWorkloadBudget"]
    assert "QuotaExceeded" in told


@pytest.mark.parametrize("seed", [2, 7, 11])
def test_the_budget_of_the_demo_runs_out_whatever_the_seed(seed):
    jobs = {each.name: each for each in islice(arrivals(seed), 18)}

    assert {"interns-02", "giant-05", "interns-06", "interns-08"} <= jobs.keys()
    assert all(
        each.job(ttl=1)["spec"]["template"]["metadata"]["labels"] == {"team": each.team} for each in jobs.values()
    )


def test_marked_jobs_run_in_containers_elsewhere_and_others_wait_for_the_machine():
    async def run_to_the_end():
        async with EmbeddedCluster(seed=SEED) as cluster, running_demo(cluster, SEED, Scenario.OFFLOAD) as made:
            await made.submit_jobs(None)
            assert await made.until_idle()
            return made, demo_summary(
                made.recorder, made.world, made.markets, seed=SEED, started=made.started, now=clock.now()
            )

    made, found = virtual_time.run(run_to_the_end())

    assert (found.complete, found.unserved) == (True, [])
    (remote,) = found.clouds
    assert (remote.rented, remote.refused) == (4, 1), "three pods of one Job and one of another; one launch refused"
    assert remote.bill_exact == remote.on_record_exact
    rows = dict(summary_rows(found)[1:])
    assert rows["Cloud remote"].startswith("4 containers rented (0 reclaimed), 1 launch without capacity: $")
    assert {each.sku.instance_type for each in made.markets[0].instances.values()} == {"a40", "rtx4090"}
    assert [call.machine for call in made.world.calls if call.asked == "start"] == ["rack-2"]


def test_a_burst_goes_to_own_machines_first_and_then_to_clouds_by_price_and_is_billed_to_the_cent():
    async def run_to_the_end():
        async with EmbeddedCluster(seed=SEED) as cluster, running_demo(cluster, SEED, Scenario.BURST) as made:
            await made.submit_jobs(None)
            assert await made.until_idle()
            summary = demo_summary(
                made.recorder, made.world, made.markets, seed=SEED, started=made.started, now=clock.now()
            )
            return made, summary

    made, found = virtual_time.run(run_to_the_end())

    assert (found.complete, found.unserved) == (True, [])
    order = [call.machine for call in made.world.calls if call.asked == "start"]
    assert order == ["desk-2", "rack-4"], "the first Jobs run on machines of one's own"
    alpha, beta = found.clouds
    assert (alpha.refused, alpha.reclaimed, beta.rented) == (1, 1, 1)
    assert alpha.rented > beta.rented, "alpha is cheaper"
    assert [each.bill_exact for each in found.clouds] == [each.on_record_exact for each in found.clouds]
    reasons = {event.reason for event in made.recorder.events}
    assert {"NoCapacity", "Reclaimed"} <= reasons
    rows = dict(summary_rows(found)[1:])
    assert rows["Cloud beta"].startswith("1 machine rented (0 reclaimed), 0 launches without capacity: $")
    assert rows["Cloud beta"].endswith(", as Forebay counted")
    total = Usd.from_exact(found.cost_exact) + Usd.from_exact(alpha.bill_exact) + Usd.from_exact(beta.bill_exact)
    assert rows["Cost"] == f"{total} in all", "own machines and clouds together"
    assert rows["Own machines"].startswith(str(Usd.from_exact(found.cost_exact)))
