"""`forebay budgets` reads the ledgers that the operator has stored."""

import pytest
from msgspec.structs import replace

from forebay.api.instance_order import ContainerRecord
from forebay.budgets.assessment import Assessor
from forebay.engine.ledger.ledger_reader import read_ledgers
from forebay.kube.client import Client
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_WORKLOAD_BUDGETS
from forebay.model.sources import Delivery
from forebay.net import clock
from forebay.reporting.budget_views import budget_view
from forebay.simulate.power import Powered
from tests.engine.budget_world import hours, operator, passing, used, world
from tests.engine.power_world import SERVER
from tests.engine.views_world import watched_cluster
from tests.net.faults import Answer, Faulty
from tests.unit.demand.builders import record


async def test_deleted_and_running_pods_are_both_counted():
    async with world() as it, operator(it):
        it.budget()
        it.pod("gone", 1, runs="10m")
        it.pod("here", 1)
        await passing(700)
        ran = it.ran("gone")
        it.delete_pod("gone")
        await passing(60)
        budgets = (await it.user.list_all(GPU_WORKLOAD_BUDGETS)).items
        now = clock.now()
        accounts = (await read_ledgers(it.user, "kube-system", budgets, now)).accounts
        shown = budget_view(budgets[0], accounts.get(("default", "team-a")), Assessor(), now)
        assert abs(float(shown.consumed) - hours(ran + it.running_for("here"))) < 1e-6
        assert shown.pods == 2
        assert sum(float(each.gpu_hours) for each in shown.history) - float(shown.consumed) < 1e-4


async def _shown(it, client=None):
    budgets = (await it.user.list_all(GPU_WORKLOAD_BUDGETS)).items
    now = clock.now()
    accounts = (await read_ledgers(client or it.user, "kube-system", budgets, now)).accounts
    return float(budget_view(budgets[0], accounts.get(("default", "team-a")), Assessor(), now).consumed)


async def test_a_pod_on_a_machine_that_is_proven_off_counts_no_more_than_in_the_status():
    async with world(Powered(name="only", gpus=8, boot=60), nodes=()) as it, operator(it):
        it.budget(hours="1000", window=100)
        it.pod("train", 8)
        await passing(600)
        it.lab.power.lose_power("only")
        await passing(2400)
        assert (it.state("only"), it.phase("train")) == ("Gone", "Running")
        assert await _shown(it) == pytest.approx(used(it.status()), abs=0.001)
        refused = Faulty(it.user.transport, lambda request: Answer(403) if "/nodes" in request.url else None)
        assert await _shown(it, Client(refused, SERVER)) == pytest.approx(used(it.status()), abs=0.001)
        await passing(4000)
        assert it.state("only") is None, "the GPUInstance is deleted after an hour; the node's taint says the same"
        assert await _shown(it) == pytest.approx(used(it.status()), abs=0.001)


async def test_remote_containers_have_no_node_whose_pods_are_read():
    async with watched_cluster() as watched:
        node = replace(record("gpu-1", delivers=Delivery.NODE).spec, hourly_price="2.00")
        container = ContainerRecord(image="work:1", node_name="forebay-virtual")
        remote = replace(node, delivers=Delivery.CONTAINER, node=None, container=container)
        for name, spec in (("gpu-1", node), ("far-1", remote)):
            await watched.client.create(GPU_INSTANCES, {"metadata": {"name": name}, "spec": spec})

        asked = []
        watched.faults[:] = [lambda request: asked.append(request.url)]
        await read_ledgers(watched.client, "kube-system", (), clock.now())

        (pods,) = [each for each in asked if "/pods" in each]
        assert "spec.nodeName%3Dgpu-1" in pods
