"""Remote Jobs behave as the end-to-end tests of Kubernetes ask of Jobs (test/e2e/apps/job.go), on a real control plane.

What is asked is restated here: parallelism 2 and 4 completions, as there. The success policy is one more.
"""

import asyncio
import time

import pytest

from forebay.api.names import OPERATOR_NAMESPACE, VIRTUAL_NODE
from forebay.net.serve import serving
from tests.cluster.operators import OperatorProcess
from tests.cluster.remote_stories import RemoteJobs, all_of, reasons, until
from tests.cluster.test_offload import JOBS, KEY, PODS, configure
from tests.cluster.test_rbac import account_of
from tests.cluster.unpaced_runpod import NAME, installed
from tests.cluster.worlds import install_definitions
from tests.contract.providers.runpod.server import RunpodCloud, gpu
from tests.rig import Rig, Tier
from tests.rig.plugin import require

MANY = {"parallelism": 2, "completions": 4}
INDEX = "batch.kubernetes.io/job-completion-index"


@pytest.fixture
def own_cluster():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        yield rig


async def runs_to_completion(jobs):
    await jobs.start("completes", runs="2s", **MANY)
    status = await jobs.has_ended("completes", "Complete")
    assert status["succeeded"] == 4
    assert {each["spec"]["nodeName"] for each in await jobs.pods("completes")} == {VIRTUAL_NODE}


async def starts_no_pods_while_suspended(jobs):
    await jobs.start("sleeps", runs="2s", suspend=True)

    async def suspended():
        return reasons((await jobs.call("GET", f"{JOBS}/sleeps"))["status"]).get("Suspended")

    assert await until(suspended, "the Job says that it is suspended") == "JobSuspended"
    assert await jobs.pods("sleeps") == []
    await jobs.suspend("sleeps", suspended=False)
    assert "Suspended" not in reasons(await jobs.has_ended("sleeps", "Complete"))


async def loses_its_pods_when_suspended(jobs):
    await jobs.start("pauses", **MANY)
    await jobs.running("pauses", 2)
    await jobs.suspend("pauses")
    await jobs.no_pods("pauses")
    assert reasons((await jobs.call("GET", f"{JOBS}/pauses"))["status"])["Suspended"] == "JobSuspended"
    await jobs.delete("pauses", "Background")


async def numbers_its_pods(jobs):
    await jobs.start("counts", runs="2s", completionMode="Indexed", **MANY)
    status = await jobs.has_ended("counts", "Complete")
    assert status["completedIndexes"] == "0-3"
    pods = await jobs.pods("counts")
    told = {each["metadata"]["annotations"][INDEX]: each["spec"]["hostname"] for each in pods}
    assert told == {str(number): f"counts-{number}" for number in range(4)}
    orders = [jobs.cloud.orders[each["metadata"]["annotations"]["runpod.io/pod-id"]] for each in pods]
    assert {each["env"]["JOB_COMPLETION_INDEX"] for each in orders} == set(told)


async def ends_with_the_index_that_its_success_policy_names(jobs):
    policy = {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}
    await jobs.start("leads", completionMode="Indexed", parallelism=3, completions=3, successPolicy=policy)
    pods = {each["metadata"]["annotations"][INDEX]: each for each in await jobs.running("leads", 3)}
    jobs.exits(pods["0"], 0)
    status = await jobs.has_ended("leads", "Complete")
    assert reasons(status) == {"SuccessCriteriaMet": "SuccessPolicy", "Complete": "SuccessPolicy"}
    assert (status["succeeded"], status["completedIndexes"], status.get("failed", 0)) == (1, "0", 0)

    async def alone():
        return [each for each in (await jobs.pods("leads"),) if len(each) == 1]

    ((left,),) = await until(alone, "the pods of the other indexes are gone")
    assert left["metadata"]["uid"] == pods["0"]["metadata"]["uid"]
    assert left["status"]["phase"] == "Succeeded"


async def removes_its_pods_when_deleted(jobs):
    await jobs.start("leaves", **MANY)
    await jobs.running("leaves", 2)
    await jobs.delete("leaves", "Background")
    await jobs.no_pods("leaves")


async def fails_once_and_is_restarted_in_its_container(jobs):
    await jobs.start("restarts", pod={"restartPolicy": "OnFailure"}, backoffLimit=6)
    (pod,) = await jobs.running("restarts")
    jobs.exits(pod, 1, restarts=True)

    async def restarted():
        return (await jobs.pod(pod["metadata"]["name"]))["status"]["containerStatuses"][0]["restartCount"] == 1

    await until(restarted, "the restart is counted")
    jobs.exits(pod, 0)
    status = await jobs.has_ended("restarts", "Complete")
    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)


async def fails_once_and_gets_another_pod(jobs):
    await jobs.start("replaces", backoffLimit=6)
    (first,) = await jobs.running("replaces")
    jobs.exits(first, 1)

    async def second():
        return [each for each in await jobs.running("replaces") if each["metadata"]["uid"] != first["metadata"]["uid"]]

    (pod,) = await until(second, "another pod runs")
    jobs.exits(pod, 0)
    status = await jobs.has_ended("replaces", "Complete")
    assert (status["succeeded"], status["failed"]) == (1, 1)


async def fails_at_its_deadline(jobs):
    began = time.monotonic()
    await jobs.start("hurries", activeDeadlineSeconds=1, **MANY)
    status = await jobs.has_ended("hurries", "Failed")
    assert reasons(status)["Failed"] == "DeadlineExceeded"
    assert time.monotonic() - began <= 16
    await jobs.no_pods("hurries")


async def is_deleted_after_its_pods(jobs):
    await jobs.start("goes", **MANY)
    await jobs.running("goes", 2)
    await jobs.delete("goes", "Foreground")
    await until(lambda: jobs.is_gone(f"{JOBS}/goes"), "the Job is gone")
    assert await jobs.pods("goes") == []


async def adopts_orphans_and_releases_pods_that_do_not_match(jobs):
    await jobs.start("adopts", parallelism=2, completions=2)
    orphan, other = await jobs.running("adopts", 2)
    path = f"{PODS}/{orphan['metadata']['name']}"
    await jobs.change(path, lambda found: found["metadata"].pop("ownerReferences"))

    async def owner():
        return [each["name"] for each in (await jobs.call("GET", path))["metadata"].get("ownerReferences", ())]

    assert await until(owner, "the orphan is adopted") == ["adopts"]
    await jobs.change(path, lambda found: found["metadata"].pop("labels"))

    async def released():
        return not await owner()

    await until(released, "a pod without the labels is released")
    # It runs on, as it would on a node, and another pod takes its place.
    assert (await jobs.call("GET", path))["status"]["phase"] == "Running"
    for pod in await jobs.running("adopts", 2):
        jobs.exits(pod, 0)
    assert (await jobs.has_ended("adopts", "Complete"))["succeeded"] == 2
    assert other["metadata"]["uid"] != orphan["metadata"]["uid"]
    await jobs.call("DELETE", path)
    await until(lambda: jobs.is_gone(path), "the released pod goes, and its container with it")


STORIES = (
    runs_to_completion,
    starts_no_pods_while_suspended,
    loses_its_pods_when_suspended,
    numbers_its_pods,
    ends_with_the_index_that_its_success_policy_names,
    removes_its_pods_when_deleted,
    fails_once_and_is_restarted_in_its_container,
    fails_once_and_gets_another_pod,
    fails_at_its_deadline,
    is_deleted_after_its_pods,
    adopts_orphans_and_releases_pods_that_do_not_match,
)


@pytest.mark.real_time
@pytest.mark.timeout(600)
async def test_remote_jobs_behave_as_kubernetes_asks_of_jobs(own_cluster):
    rig = own_cluster
    cloud = RunpodCloud(gpu("NVIDIA A40", price="0.39", memory=48, boot=1), key=KEY, enforces_limits=False)
    kubeconfig = await asyncio.to_thread(account_of, rig, "--secret", "runpod", "--offload", "on")
    environment = installed(rig.directory / "beside")
    operator = OperatorProcess(rig, "operator", kubeconfig, OPERATOR_NAMESPACE, environment)
    jobs = RemoteJobs(rig, cloud)
    async with serving(cloud.answer) as base:
        await asyncio.to_thread(configure, rig, base, NAME)
        operator.start()
        try:
            await until(operator.is_ready, "the operator is ready")
            await all_of({each.__name__: each(jobs) for each in STORIES})
            await until(jobs.all_gone, "every container is proven gone")
        finally:
            operator.stop()
    assert cloud.running == frozenset()
    assert cloud.violations == []
