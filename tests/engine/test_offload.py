"""A marked Job runs at RunPod and looks like a Job: bound, run, ended by its exit code, billed, and nothing left."""

import asyncio
import base64
import random
from collections import Counter
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
import pytest

from forebay.api.names import VIRTUAL_NODE
from forebay.embedded.api.kinds import NODE_KIND, POD_KIND, SECRET_KIND
from forebay.model.quantities import UsdPerHour
from forebay.net.clock import now
from forebay.offload.departure import OffloadRules
from forebay.providers.registry import read_environment
from forebay.simulate import market_faults
from forebay.simulate.market_goods import RUN_TIME, Sku
from forebay.simulate.market_responses import MarketCall
from forebay.simulate.power import Powered
from tests.contract.providers.runpod.server import REGISTRIES
from tests.engine.market_world import cloud_operator, market
from tests.engine.offload_world import A40, KEY, MANAGED, RTX, offload, runpod
from tests.engine.test_markets import until
from tests.net.faults import Answer, Faulty, LoseAnswer, Reset

WORK = {
    "name": "main",
    "image": "work:1",
    "command": ["train"],
    "env": [{"name": RUN_TIME, "value": "30s"}],
    "resources": {"limits": {"nvidia.com/gpu": 1}},
}
#: Seconds that the ledger may have beyond the bill of one container.
MOST_OVER = 4


def settled(far):
    """Nothing is left, and the ledger has all of the bill."""
    assert far.runpod.bill() > 0
    assert 0 <= far.overcharge() <= MOST_OVER
    return True


async def test_a_marked_job_runs_remotely_to_its_end_and_nothing_is_left():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="90s")
            await until(lambda: far.phase("train") == "Running")
            pod = far.the_pod("train")
            assert pod["spec"]["nodeName"] == VIRTUAL_NODE
            assert pod["metadata"]["labels"]["runpod.io/managed"] == "true"
            (rented,) = far.runpod.instances
            assert pod["metadata"]["annotations"]["runpod.io/pod-id"] == rented
            assert pod["metadata"]["annotations"]["runpod.io/cost-per-hr"] == "0.39"
            assert far.runpod.orders[rented]["gpu"]["id"] == A40
            await until(lambda: "runpod.io/offloaded" in far.the_job("train")["metadata"]["annotations"])
            marks = far.the_job("train")["metadata"]["annotations"]
            assert (marks["runpod.io/pod-id"], marks["runpod.io/cost-per-hr"]) == (rented, "0.39")
            await until(lambda: far.ended("train") is not None)
            assert far.ended("train") == "Complete"
            assert far.the_job("train")["status"]["succeeded"] == 1
            await until(lambda: far.is_idle)
            # Nothing was said that was not so.
            assert far.world.events("NoCapacityConfigured") == []
        assert settled(far)


@pytest.mark.parametrize("variable", ["RUNPOD_KEY", "RUNPOD_API_KEY"])
async def test_a_key_in_the_environment_is_enough(variable):
    configured = read_environment({variable: KEY, "RUNPOD_ENDPOINT": "http://runpod"})
    async with offload() as far:
        async with cloud_operator(far.cloud, configured=configured) as operator:
            await until(lambda: operator.error() is None)
            far.job("train")
            await until(lambda: far.ended("train") == "Complete")
            await until(lambda: far.is_idle)
            published = msgspec.json.encode(
                far.store.list(far.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass"))
            )
            assert b'"runpod"' in published
            assert KEY.encode() not in published
            # The key was withdrawn: not ready, and the sentence says which variable to correct.
            far.runpod.key = "another"
            await until(lambda: operator.error() is not None, 300)
            assert f"environment variable {variable}" in operator.error()
        assert settled(far)


async def test_its_exit_code_reaches_the_job():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", exit_code=3, backoff=1)
            await until(lambda: far.ended("train") is not None, 300)
            assert far.ended("train") == "Failed"
            assert far.the_job("train")["status"]["failed"] == 2
            codes = [
                each["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] for each in far.pods("train")
            ]
            assert codes == [3, 3]
            await until(lambda: far.is_idle)
        assert len(far.runpod.instances) == 2
        assert settled(far)


@asynccontextmanager
async def train(**job):
    """A Job `train` that runs remotely, until the block ends; then the ledger is compared with the bill."""
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", **job)
            await until(lambda: far.phase("train") == "Running")
            yield far
            await until(lambda: far.is_idle)
        assert settled(far)


async def test_a_job_that_is_deleted_midway_leaves_no_container_and_no_pod():
    async with train(runs="10h") as far:
        far.delete_job("train")
        await until(lambda: far.is_idle and not far.pods())
        assert far.the_job("train") is None
    assert len(far.runpod.instances) == 1


async def test_a_job_that_is_deleted_in_the_foreground_goes_after_its_container():
    async with train(runs="10h") as far:
        far.delete_job("train", "Foreground")
        await until(lambda: far.the_job("train") is None)
        assert far.is_idle
        assert far.pods() == []


async def test_the_pod_of_a_job_that_was_deleted_without_it_runs_to_its_end():
    async with train(runs="60s") as far:
        far.delete_job("train", "Orphan")
        await until(lambda: far.is_idle)
        assert far.the_job("train") is None
        assert far.phase("train") == "Succeeded"
    assert len(far.runpod.instances) == 1


async def test_the_pod_of_a_job_that_was_deleted_without_it_before_a_container_ran_says_that_none_comes():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.script(MarketCall.LAUNCH, *[far.runpod.no_capacity()] * 2)
            far.job("train")
            await until(lambda: far.pods("train") and far.the_pod("train")["spec"].get("nodeName"))
            far.delete_job("train", "Orphan")
            await asyncio.sleep(600)
            reason, sentence = far.capacity("train")
            assert reason == "OffloadNotPossible"
            assert "its Job is gone" in sentence
            assert "Delete the pod" in sentence
        assert far.runpod.instances == {}


async def test_a_pod_that_is_deleted_by_force_leaves_no_container_and_its_job_gets_the_next():
    async with train(runs="60s", backoff=1) as far:
        far.store.delete(POD_KIND, "default", far.the_pod("train")["metadata"]["name"], grace=0)
        await until(lambda: far.ended("train") == "Complete", 300)
    assert len(far.runpod.instances) == 2


async def test_a_suspended_job_gives_its_container_back_and_gets_another_when_it_is_resumed():
    async with train(runs="60s") as far:
        far.suspend("train")
        await until(lambda: far.is_idle and not far.pods())
        far.suspend("train", suspended=False)
        await until(lambda: far.ended("train") == "Complete", 300)
    assert len(far.runpod.instances) == 2


async def test_an_operator_that_was_away_while_the_command_ended_still_learns_its_exit_code():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud, "a"):
            await asyncio.sleep(10)
            far.job("good", runs="120s")
            far.job("bad", runs="120s", exit_code=7)
            await until(lambda: (far.phase("good"), far.phase("bad")) == ("Running", "Running"))
        # Longer than any node may be silent before its pods are evicted.
        await asyncio.sleep(900)
        assert far.phase("good") == "Running"
        async with cloud_operator(far.cloud, "b"):
            await until(lambda: far.ended("good") and far.ended("bad"), 120)
            assert (far.ended("good"), far.ended("bad")) == ("Complete", "Failed")
            await until(lambda: far.is_idle)
        assert len(far.runpod.instances) == 2
        assert settled(far)


async def test_an_operator_that_dies_between_order_and_launch_is_continued_by_the_next():
    async with offload() as far:
        far.pool()
        for number in range(12):
            async with cloud_operator(far.cloud, f"r{number}"):
                if number == 0:
                    await asyncio.sleep(10)
                    far.job("train", runs="60s")
                await asyncio.sleep(0.4 + 0.3 * number)
        async with cloud_operator(far.cloud, "last"):
            await until(lambda: far.ended("train") == "Complete", 300)
            await until(lambda: far.is_idle)
        assert len(far.runpod.instances) == 1
        assert settled(far)


async def test_where_there_is_none_left_the_next_gpu_type_is_tried_at_once():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.script("create_pod", far.runpod.no_capacity())
            far.job("train")
            await until(lambda: far.ended("train") == "Complete", 200)
            (rented,) = far.runpod.instances
            assert far.runpod.orders[rented]["gpu"]["id"] == RTX
            await until(lambda: far.is_idle)


async def test_a_job_says_how_often_it_failed_and_when_it_is_tried_again():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.script("create_pod", far.runpod.no_capacity(), far.runpod.no_capacity())
            far.job("train", runs="30s")
            await until(lambda: far.the_job("train")["metadata"]["annotations"].get("runpod.io/failure-count") == "2")
            marks = far.the_job("train")["metadata"]["annotations"]
            assert datetime.fromisoformat(marks["runpod.io/retry-after"]) > now()
            assert "runpod.io/offloaded" not in marks
            await until(lambda: far.ended("train") == "Complete")
            marks = far.the_job("train")["metadata"]["annotations"]
            assert (marks["runpod.io/offloaded"], marks["runpod.io/failure-count"]) == ("true", "2")
            assert "runpod.io/retry-after" not in marks


async def test_only_marked_jobs_leave():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("plain", marks={})
            far.job("refused", marks={"runpod.io/managed": "false"})
            await asyncio.sleep(120)
            assert far.runpod.instances == {}
            assert far.world.records() == {}
            reason, sentence = far.capacity("plain")
            assert reason == "NoCapacityConfigured"
            assert (
                "only remote containers (runpod), which run pods of Jobs that are marked runpod.io/managed" in sentence
            )
            assert "Mark the Job" in sentence


async def test_what_cannot_be_carried_is_said_before_a_cent_is_spent():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", pod={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]})
            await asyncio.sleep(60)
            reason, sentence = far.capacity("train")
            assert reason == "OffloadNotPossible"
            assert "Volume data is a persistentVolumeClaim" in sentence
            assert far.world.records() == {}
        assert far.runpod.instances == {}


async def test_a_job_costs_no_more_than_its_mark_the_operator_and_the_pool_allow():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud, offload=OffloadRules(max_gpu_price=UsdPerHour("0.40"))):
            await asyncio.sleep(10)
            far.job("cheap", marks={**MANAGED, "runpod.io/max-price": "0.20"})
            far.job("large", marks={**MANAGED, "runpod.io/gpu-types": "RTX 4090"})
            far.job("right")
            await until(lambda: far.ended("right") == "Complete", 200)
            assert far.capacity("cheap")[0] == "PriceTooHigh"
            assert far.capacity("large")[0] == "PriceTooHigh"
            assert "$0.44" in far.capacity("large")[1]
        assert len(far.runpod.instances) == 1


async def test_an_outage_of_the_catalogue_is_the_reason_and_costs_seconds():
    async with offload() as far:
        far.pool()
        for _ in range(2):
            far.runpod.script("list_gpus", far.runpod.refusal(503, "try again"))
        async with cloud_operator(far.cloud):
            far.job("train")
            await until(lambda: far.pods("train") and far.capacity("train") is not None, 20)
            reason, sentence = far.capacity("train")
            assert reason == "ProviderUnavailable"
            assert sentence.startswith("As a remote container: runpod of GPUNodeClass runpod: RunPod answered 503")
            assert ".;" not in sentence
            assert "create a GPUNodeClass" not in sentence
            await until(lambda: far.phase("train") == "Running", 60)
            await until(lambda: far.ended("train") == "Complete")
            await until(lambda: far.is_idle)


async def test_a_job_that_asks_for_the_community_cloud_runs_there_and_no_other_does():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("home", marks={**MANAGED, "runpod.io/cloud-type": "COMMUNITY"})
            far.job("train")
            await until(lambda: far.ended("home") == far.ended("train") == "Complete")
            shown = {each["cloud"]: each["gpu"]["id"] for each in far.runpod.orders.values()}
            assert shown == {"COMMUNITY": RTX, "SECURE": A40}
            assert far.the_job("home")["metadata"]["annotations"]["runpod.io/cost-per-hr"] == "0.31"
            # Its stock is not known beforehand: RunPod refuses, and says why.
            far.runpod.restock(RTX, 0)
            far.job("again", marks={**MANAGED, "runpod.io/cloud-type": "COMMUNITY"})
            await until(lambda: far.world.events("NoCapacity"))
            await until(lambda: far.is_idle)


async def test_a_pod_with_three_gpus_gets_three():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", pod={"containers": [{**WORK, "resources": {"limits": {"nvidia.com/gpu": 3}}}]})
            await until(lambda: far.ended("train") == "Complete")
            (order,) = far.runpod.orders.values()
            assert order["gpu"] == {"id": RTX, "count": 3}
            await until(lambda: far.is_idle)


async def test_limits_of_the_pool_hold():
    async with offload() as far:
        far.pool(limits={"maxNodes": 2})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            for number in range(4):
                far.job(f"train-{number}", runs="60s")
            most = 0
            for _ in range(200):
                await asyncio.sleep(2)
                most = max(most, len(far.runpod.running))
                reasons = {(far.capacity(f"train-{n}") or ("",))[0] for n in range(4) if far.phase(f"train-{n}")}
                if "LimitReached" in reasons:
                    break
            else:
                raise AssertionError("nobody was told of the limit")
            await until(lambda: all(far.ended(f"train-{number}") for number in range(4)), 900)
            assert len(far.runpod.running) <= 2
            await until(lambda: far.is_idle)
        assert most <= 2
        assert settled(far)


async def test_a_gpu_of_the_cluster_is_used_before_one_is_rented():
    async with offload(machines=(Powered(name="own", gpus=1, boot=60),)) as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train")
            await until(lambda: far.ended("train") == "Complete", 600)
            assert far.pods("train")[0]["spec"]["nodeName"] == "own"
        assert far.runpod.instances == {}


async def test_a_cheaper_machine_is_rented_instead():
    sku = Sku(instance_type="l4.1x", gpus=1, gpu_type="L4", gpu_memory_gib=24, hourly_price="0.20", boot=30)
    async with offload(market("alpha", sku)) as far:
        far.pool()
        far.cloud.pool("alpha")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train")
            far.job("forced", marks={**MANAGED, "runpod.io/offload": "true"})
            await until(lambda: far.ended("train") == "Complete" and far.ended("forced") == "Complete", 600)
            assert far.pods("train")[0]["spec"]["nodeName"] != VIRTUAL_NODE
            assert far.pods("forced")[0]["spec"]["nodeName"] == VIRTUAL_NODE


async def test_an_operator_that_may_not_list_jobs_says_so_to_the_pods_that_no_machine_is_for():
    def forbidden(request):
        # Paused Jobs are another list, which the operator needs for its budgets.
        jobs = "/apis/batch/v1/jobs" in request.url and "labelSelector" not in request.url
        return Answer(403) if jobs else None

    async with offload() as far:
        far.pool()
        far.job("train")
        async with cloud_operator(far.cloud, wrap=lambda transport: Faulty(transport, forbidden)):
            await asyncio.sleep(120)
            reason, sentence = far.capacity("train")
            assert reason == "NoCapacityConfigured"
            assert "The operator cannot list Jobs, so none runs remotely: " in sentence
            assert "offload.enabled" in sentence
            assert far.runpod.instances == {}


async def test_an_operator_that_may_not_read_pods_says_so_and_asks_now_and_then():
    asked = []

    def forbidden(request):
        if request.method != "GET" or "/namespaces/default/pods/" not in request.url:
            return None
        asked.append(request.url)
        return Answer(403)

    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud, wrap=lambda transport: Faulty(transport, forbidden)):
            await asyncio.sleep(10)
            far.job("train")
            await asyncio.sleep(120)
            reason, sentence = far.capacity("train")
            assert reason == "OffloadNotPossible"
            assert "could not read the pod" in sentence
            assert "offload.enabled of the chart" in sentence
            assert 10 <= len(asked) <= 15
        assert far.runpod.instances == {}


async def test_without_a_provider_of_containers_there_is_no_virtual_node():
    sku = Sku(instance_type="l4.1x", gpus=1, gpu_type="L4", hourly_price="0.20", boot=30)
    async with offload(market("alpha", sku)) as far:
        far.cloud.pool("alpha")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(30)
            far.job("train")
            await until(lambda: far.ended("train") == "Complete", 600)
            assert far.store.find(NODE_KIND, None, VIRTUAL_NODE) is None


async def test_a_budget_that_is_exceeded_pauses_the_job_and_ends_its_container():
    async with offload() as far:
        far.pool()
        far.budget(action="Pause", gpuHours="0.1")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="5h")
            await until(lambda: far.phase("train") == "Running")
            await until(lambda: far.the_job("train")["spec"].get("suspend"), 1200)
            await until(lambda: far.is_idle and not far.pods(), 300)
            assert far.consumed("consumedGpuHours") >= 0.1
            await asyncio.sleep(600)
            assert far.is_idle
        assert settled(far)


async def test_faults_on_every_side_cost_time_and_never_a_second_container():
    def shaky(transport):
        rng = random.Random(5)
        return Faulty(transport, lambda _request: rng.choice((Reset(), LoseAnswer())) if rng.random() < 0.1 else None)

    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud, wrap=shaky):
            await asyncio.sleep(30)
            for number in range(6):
                far.job(f"train-{number}", runs="120s", exit_code=number % 2)
            await until(lambda: all(far.ended(f"train-{number}") for number in range(6)), 3600)
            found = [far.ended(f"train-{number}") for number in range(6)]
            assert found == ["Complete", "Failed"] * 3
            await until(lambda: far.is_idle, 3600)
        owners = [each.order.owner for each in far.runpod.instances.values()]
        assert len(owners) == len(set(owners)) == 6


PRIVATE = {"imagePullSecrets": [{"name": "registry"}]}


async def test_pull_secrets_become_credentials_that_are_shared_and_go_with_the_last_container():
    async with offload() as far:
        far.pool()
        far.pull_secret("registry")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            for name in ("one", "two"):
                far.job(name, runs="90s", pod=PRIVATE)
            far.job("other", runs="30s")
            await until(lambda: all(far.phase(name) == "Running" for name in ("one", "two", "other")))
            assert list(far.credentials.values()) == [("robot", "planted-registry-password-7c")]
            (shared,) = far.credentials
            used = Counter(far.runpod.orders[each].get("registry") for each in far.runpod.instances)
            assert used == {shared: 2, None: 1}
            # The Secret is changed: the next container has what it says now, the others keep theirs.
            far.pull_secret("registry", password="rotated")
            far.job("three", runs="90s", pod=PRIVATE)
            await until(lambda: far.phase("three") == "Running")
            assert {password for _, password in far.credentials.values()} == {"planted-registry-password-7c", "rotated"}
            await until(lambda: far.is_idle and not far.credentials)
        assert settled(far)
        for kind in ("GPUInstance", "GPUNodeClass"):
            told = far.store.list(far.store.kinds.named("forebay.dev/v1alpha1", kind))
            assert b"planted-registry" not in msgspec.json.encode(told)


async def test_the_credentials_of_one_account_do_not_wait_for_containers_of_another():
    async with offload(runpod(name="second")) as far:
        first, then = far.runpod, far.cloud.markets["second"]
        far.pool(limits={"maxNodes": 1})
        far.pool(name="second")
        far.pull_secret("registry")
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("short", runs="90s", pod=PRIVATE)
            await until(lambda: far.phase("short") == "Running")
            far.job("long", runs="10m", pod=PRIVATE)
            await until(lambda: far.phase("long") == "Running")
            assert (len(first.instances), len(then.instances)) == (1, 1)
            await until(lambda: far.ended("short") == "Complete")
            await until(lambda: not first.others[REGISTRIES], 200)
            assert then.others[REGISTRIES]
            await until(lambda: far.ended("long") == "Complete", 900)
            await until(lambda: not then.others[REGISTRIES], 300)


async def test_a_pull_secret_that_cannot_be_used_is_said_and_costs_nothing():
    async with offload() as far:
        far.pool()
        data = {"password": base64.b64encode(b"x").decode()}
        far.store.create(SECRET_KIND, {"metadata": {"name": "registry", "namespace": "default"}, "data": data})
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="30s", pod=PRIVATE)
            await asyncio.sleep(60)
            assert not far.runpod.instances
            (record,) = far.world.records().values()
            assert record["status"]["reason"] == "ContainerConfigError"
            assert "Secret registry of imagePullSecrets has no key" in record["status"]["message"]
            reason, sentence = far.capacity("train")
            assert reason == "ContainerConfigError"
            assert "Secret registry of imagePullSecrets has no key" in sentence
            far.store.delete(SECRET_KIND, "default", "registry")
            far.pull_secret("registry")
            await until(lambda: far.ended("train") == "Complete")
            await until(lambda: far.is_idle and not far.credentials)


async def test_templates_and_ports_of_the_marks_reach_the_container():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            marks = {**MANAGED, "runpod.io/templateId": "30zmvf89kd", "runpod.io/ports": "8888/http,22/tcp,8080/tcp"}
            ports = [{"containerPort": 3000}, {"containerPort": 8080}]
            far.job("train", marks=marks, pod={"containers": [{**WORK, "ports": ports}]})
            await until(lambda: far.phase("train") == "Running")
            (order,) = far.runpod.orders.values()
            assert order["templateId"] == "30zmvf89kd"
            assert order["ports"] == ["3000/http", "8888/http", "22/tcp", "8080/tcp"], "as the mark has it"
            assert order["startSsh"] is True, "who asks for port 22 wants to log in"


def waiting(far, job):
    """Why the container of a pod that is bound does not run, as its kubelet would tell."""
    return far.the_pod(job)["status"]["containerStatuses"][0]["state"]["waiting"]["message"]


async def test_a_job_that_names_what_does_not_exist_keeps_no_other_from_its_gpu():
    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("wrong", marks={**MANAGED, "runpod.io/container-registry-auth-id": "nope"})
            await asyncio.sleep(60)
            far.job("train", runs="30s")
            await until(lambda: far.ended("train") == "Complete")
            assert {each["gpu"]["id"] for each in far.runpod.orders.values()} == {A40}, "the cheapest one"
            asked = [each for each in far.runpod.calls if each.asked is MarketCall.LAUNCH and not each.acted]
            assert len(asked) == 2, "each GPU type once; next in five minutes"
            assert "registry credential of the Job does not exist" in waiting(far, "wrong")
            far.delete_job("wrong")
            await until(lambda: far.is_idle and not far.pods("wrong"))


@pytest.mark.parametrize("wait", [0.0, 0.2, 1.0, 5.0, 11.0])
async def test_a_job_that_is_deleted_while_its_container_is_ordered_leaves_nothing(wait):
    async with offload() as far:
        far.pool()
        slow = market_faults.MarketFault(acts=True, status=None, delay=5.0)
        far.runpod.script(MarketCall.LAUNCH, slow)
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", runs="10h")
            await until(lambda: far.pods("train"))
            await asyncio.sleep(wait)
            far.delete_job("train")
            await until(lambda: far.is_idle and not far.pods("train"), 300)
            assert len(far.runpod.instances) <= 1
        assert far.cloud.ledger() == far.runpod.bill()


async def test_a_secret_that_is_deleted_between_binding_and_launch_is_said_and_waited_for():
    async with offload() as far:
        far.pool()
        secret = {"metadata": {"name": "token", "namespace": "default"}, "data": {"key": "eA=="}}
        far.runpod.script(MarketCall.LAUNCH, far.runpod.no_capacity())
        env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}}]
        container = {**WORK, "env": [*WORK["env"], *env]}
        far.store.create(SECRET_KIND, secret)

        def gone(change):
            bound = change.new is not None and change.new["spec"].get("nodeName") == VIRTUAL_NODE
            if bound and far.store.find(SECRET_KIND, "default", "token") is not None and not lost:
                lost.append(far.store.delete(SECRET_KIND, "default", "token"))

        lost = []
        far.store.subscribe(POD_KIND, gone)
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.job("train", pod={"containers": [container]})
            await until(lambda: lost)
            await asyncio.sleep(30)
            assert "Secret token does not exist" in waiting(far, "train")
            assert far.runpod.bill() == 0
            far.store.create(SECRET_KIND, secret)
            await until(lambda: far.ended("train") == "Complete", 300)
            await until(lambda: far.is_idle)


async def test_a_container_that_has_exited_is_not_billed_while_its_termination_fails():
    async with offload() as far:
        far.pool()
        plain = {key: each for key, each in WORK.items() if key != "command"}
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            far.runpod.script(MarketCall.TERMINATE, *[market_faults.server_error(503)] * 12)
            far.job("train", pod={"containers": [plain]})
            await until(lambda: far.ended("train") == "Complete")
            assert far.runpod.instances
            await until(lambda: far.is_idle, 900)
        assert 0 <= far.overcharge() <= 5, "as long as a listing takes to show it"


async def test_nothing_else_is_scheduled_to_the_virtual_node_and_pods_of_daemonsets_are_told_so():
    everywhere = {"tolerations": [{"operator": "Exists"}], "containers": [{"name": "main", "image": "work:1"}]}

    def pod(name, **fields):
        far.world.pod(name, runs=None, **everywhere, **fields)

    async with offload() as far:
        far.pool()
        async with cloud_operator(far.cloud):
            await until(lambda: far.node() is not None)
            await asyncio.sleep(10)
            labels = {"app": "exporter"}
            template = {"metadata": {"labels": labels}, "spec": everywhere}
            spec = {"selector": {"matchLabels": labels}, "template": template}
            daemonset = {"metadata": {"name": "exporter", "namespace": "default"}, "spec": spec}
            made = far.store.create(far.store.kinds.named("apps/v1", "DaemonSet"), daemonset)
            owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "exporter", "controller": True}
            owner |= {"uid": made["metadata"]["uid"]}
            for number, node in enumerate((VIRTUAL_NODE, "another")):
                named = {"key": "metadata.name", "operator": "In", "values": [node]}
                terms = {"nodeSelectorTerms": [{"matchFields": [named]}]}
                affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
                pod(f"exporter-{number}", metadata={"ownerReferences": [owner]}, affinity=affinity)
            pod("anywhere")
            await asyncio.sleep(30)
            nodes = {each["metadata"]["name"]: each["spec"].get("nodeName") for each in far.pods()}
            assert nodes == {"exporter-0": VIRTUAL_NODE, "exporter-1": None, "anywhere": None}
            told = far.store.find(POD_KIND, "default", "exporter-0")
            assert (told["status"]["phase"], told["status"]["reason"]) == ("Pending", "NotSupported")
            assert "runpod.io/managed" not in told["metadata"].get("labels", {})
