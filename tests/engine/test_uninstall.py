"""Forebay goes, and nothing in the cluster waits for it."""

import asyncio

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.meta import ObjectMeta
from forebay.api.names import VIRTUAL_NODE
from forebay.embedded.api import kinds
from forebay.install.admission_policies import admission_policies
from forebay.install.uninstall import MachinesRunning, Uninstalled, Uninstaller
from forebay.model.sources import Delivery
from forebay.simulate.power import Powered
from tests.engine.budget_world import operator, passing, world
from tests.unit.lifecycle.builders import rented_spec

BOX = Powered(name="box-1", gpus=1, boot=60)
MACHINE = {"name": "m", "gpuCount": 1, "scaleUpEndpoint": "http://m/on", "scaleDownEndpoint": "http://m/off"}
GATE = [{"name": "theirs"}, {"name": "forebay.dev/budget"}]


async def uninstalled(it, **options):
    said = []
    try:
        return await Uninstaller(it.user, ["kube-system"], progress=said.append).run(**options)
    finally:
        it.said = said


def policies(it):
    named = {(each["apiVersion"], each["kind"]) for each in admission_policies()}
    return [each for kind in named for each in it.store.list(it.store.kinds.named(*kind))]


def install_policies(it):
    for each in admission_policies():
        it.store.create(it.store.kinds.named(each["apiVersion"], each["kind"]), each)


def a_class(it):
    kind = it.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")
    metadata = {"name": "cloud", "finalizers": ["forebay.dev/nodeclass", "theirs/too"]}
    body = {"metadata": metadata, "spec": {"providers": [{"name": "webhook", "machines": [MACHINE]}]}}
    return kind, it.store.create(kind, body)


async def test_pods_jobs_and_classes_are_let_go_while_an_operator_still_runs():
    async with world() as it, operator(it) as made:
        install_policies(it)
        it.budget("exact", hours="100", accounting="Exact")
        it.budget("spent", hours="0.02", action="Pause", grace=0, labels={"team": "b"})
        it.pod("keeps", 1)
        it.store.create(kinds.JOB_KIND, _job("work"))
        await passing(300)
        it.pod("waits", 1, labels={"team": "b"}, schedulingGates=GATE)
        await passing(30)
        assert it.the_pod("keeps")["metadata"]["finalizers"] == ["forebay.dev/usage"]
        assert it.store.get(kinds.JOB_KIND, "default", "work")["spec"]["suspend"] is True
        done = await uninstalled(it)
        assert (done.policies, done.pods, done.jobs, done.machines) == (4, 2, 1, [])
        assert policies(it) == []
        await passing(60)
        assert not it.the_pod("keeps")["metadata"].get("finalizers")
        assert it.the_pod("waits")["spec"]["schedulingGates"] == [{"name": "theirs"}]
        job = it.store.get(kinds.JOB_KIND, "default", "work")
        assert job["spec"]["suspend"] is False
        assert "forebay.dev/paused" not in job["metadata"].get("labels", {})
        assert not made.elector.still_leader()
        it.delete_pod("keeps")
        await passing(60)
        assert not it.is_there("keeps")


def _job(name):
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
    template = {
        "metadata": {"labels": {"team": "b"}, "annotations": {"embedded.forebay.dev/run-time": "10000h"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}}


async def test_other_finalizers_stay():
    async with world() as it:
        kind, _ = a_class(it)
        it.pod("mine", 1)
        it.change(
            kinds.POD_KIND,
            "mine",
            lambda pod: pod["metadata"].update(finalizers=["theirs/too", "forebay.dev/usage"]),
            "default",
        )
        done = await uninstalled(it)
        assert (done.pods, done.classes) == (1, 1)
        assert it.the_pod("mine")["metadata"]["finalizers"] == ["theirs/too"]
        assert it.store.get(kind, None, "cloud")["metadata"]["finalizers"] == ["theirs/too"]


async def test_no_pod_is_asked_to_pause_by_a_budget_that_nobody_counts_any_more():
    async with world() as it:
        async with operator(it):
            it.budget("spent", hours="0.02", action="Pause", grace=0)
            it.pod("alone", 1, annotations={"theirs": "stays", "embedded.forebay.dev/run-time": "10000h"})
            await passing(300)
            assert it.the_pod("alone")["metadata"]["annotations"]["budget.zxuhan.dev/paused-by"] == "spent"
        done = await uninstalled(it)
        assert done.pods == 1
        annotations = it.the_pod("alone")["metadata"]["annotations"]
        assert annotations["theirs"] == "stays"
        assert not [name for name in annotations if name.startswith("budget.zxuhan.dev/")]
        assert any("pause requests removed from 1 pods" in each for each in it.said)


async def test_half_a_pause_request_goes_too():
    async with world() as it:
        it.pod("alone", 1, annotations={"budget.zxuhan.dev/paused-at": "2026-01-01T00:00:00+00:00"})
        assert (await uninstalled(it)).pods == 1
        assert "budget.zxuhan.dev/paused-at" not in it.the_pod("alone")["metadata"].get("annotations", {})


async def test_the_published_class_and_pool_of_the_environment_go_and_copies_of_them_stay():
    async with world(BOX, nodes=()) as it:
        async with operator(it):
            await passing(30)
        kind = it.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
        (published,) = it.store.list(kind)
        copy = {**published["metadata"], "name": "mine"}
        it.store.create(kind, {"metadata": copy, "spec": published["spec"]})
        done = await uninstalled(it)
        assert done.published == 2
        assert [each["metadata"]["name"] for each in it.store.list(kind)] == ["mine"]
        assert it.store.list(it.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")) == []
        assert any("environment variables deleted" in each for each in it.said)
        assert (await uninstalled(it)).published == 0


async def test_nothing_is_touched_while_a_machine_is_on():
    async with world(BOX, nodes=()) as it, operator(it) as made:
        install_policies(it)
        it.budget(accounting="Exact")
        it.pod("train", 1)
        await passing(200)
        with pytest.raises(MachinesRunning, match=r"^1 machine may still be on \(box-1\).*--leave-machines"):
            await uninstalled(it)
        assert len(policies(it)) == 4
        assert it.the_pod("train")["metadata"]["finalizers"] == ["forebay.dev/usage"]
        assert made.elector.still_leader()


@pytest.mark.parametrize(
    ("owned", "remote", "what"),
    [
        (0, 1, "1 remote container may still be on (c0), and without Forebay nothing powers off or terminates it."),
        (1, 2, "1 machine and 2 remote containers may still be on (m0, c0, c1), and"),
    ],
)
def test_remote_containers_are_called_that_and_the_owners_of_their_pods_are_to_go_first(owned, remote, what):
    records = [_record(f"m{each}", Delivery.POWER) for each in range(owned)]
    records += [_record(f"c{each}", Delivery.CONTAINER) for each in range(remote)]
    told = str(MachinesRunning(records))
    assert told.startswith(what)
    assert "first the Jobs and other owners" in told


def _record(name, delivery):
    return GPUInstance(metadata=ObjectMeta(name=name), spec=replace(rented_spec(), delivers=delivery))


async def test_a_machine_that_is_bought_meanwhile_is_not_left_behind():
    async with world(BOX, nodes=()) as it, operator(it) as made:
        await passing(30)
        install_policies(it)
        work = asyncio.create_task(uninstalled(it))
        await passing(0.05)
        it.pod("train", 1)
        # The leader acts until it notices.
        with pytest.raises(MachinesRunning):
            await work
        assert len(policies(it)) == 4
        await passing(120)
        assert made.elector.still_leader()
        assert it.phase("train") == "Running"


async def test_machines_may_be_left_on():
    async with world(BOX, nodes=()) as it:
        async with operator(it):
            it.budget(accounting="Exact")
            it.pod("train", 1)
            await passing(200)
        done = await uninstalled(it, leave_machines=True)
        assert done.machines == ["box-1"]
        assert not it.the_pod("train")["metadata"].get("finalizers")
        assert it.record("box-1")["metadata"]["finalizers"] == ["forebay.dev/instance"]
        assert it.asked("stop") == []


async def test_records_of_what_is_gone_do_not_keep_the_kinds():
    async with world(BOX, nodes=()) as it:
        async with operator(it):
            it.pod("train", 1, runs="1m")
            await passing(400)
            assert it.state("box-1") == "Gone"
        done = await uninstalled(it)
        assert done.records == 1
        it.give_back("box-1")
        assert it.records() == {}


async def test_it_can_be_repeated_and_where_nothing_is_installed_nothing_is_done():
    async with world() as it:
        for definition in it.store.list(kinds.CRD_KIND):
            it.store.delete(kinds.CRD_KIND, None, definition["metadata"]["name"])
        assert await uninstalled(it) == Uninstalled()
        assert await uninstalled(it) == Uninstalled()
        assert it.said == []


def virtual_node(it):
    it.store.create(kinds.NODE_KIND, {"metadata": {"name": VIRTUAL_NODE}, "spec": {}})
    lease = {"metadata": {"name": VIRTUAL_NODE, "namespace": "kube-node-lease"}, "spec": {}}
    it.store.create(it.store.kinds.named("coordination.k8s.io/v1", "Lease"), lease)


def nodes_and_leases(it):
    leases = it.store.list(it.store.kinds.named("coordination.k8s.io/v1", "Lease"))
    return {each["metadata"]["name"] for each in (*it.store.list(kinds.NODE_KIND), *leases)}


async def test_the_node_of_remote_pods_goes_with_its_lease():
    async with world() as it:
        virtual_node(it)
        assert (await uninstalled(it)).virtual_nodes == 1
        assert VIRTUAL_NODE not in nodes_and_leases(it)
        assert any("runpod-virtual-node deleted" in each for each in it.said)
        assert (await uninstalled(it)).virtual_nodes == 0


async def test_the_node_of_remote_pods_stays_while_one_of_them_runs():
    async with world() as it:
        virtual_node(it)
        it.pod("far", 1, nodeName=VIRTUAL_NODE)
        assert (await uninstalled(it, leave_machines=True)).virtual_nodes == 0
        assert VIRTUAL_NODE in nodes_and_leases(it)
        assert "Node runpod-virtual-node stays with 1 unfinished pod (default/far)." in it.said


async def test_a_node_that_was_kept_for_its_pods_is_open_to_all():
    async with world(nodes=()) as it:
        taints = [
            {"key": "forebay.dev/startup", "value": "uid-1", "effect": "NoSchedule"},
            {"key": "theirs", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            {"key": "forebay.dev/startup", "value": "uid-2", "effect": "PreferNoSchedule"},
        ]
        it.store.create(kinds.NODE_KIND, {"metadata": {"name": "m"}, "spec": {"taints": taints}})
        assert (await uninstalled(it)).nodes == 1
        assert it.store.get(kinds.NODE_KIND, None, "m")["spec"]["taints"] == [taints[1]]
        assert (await uninstalled(it)).nodes == 0
