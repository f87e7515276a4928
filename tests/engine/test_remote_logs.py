"""Logs of remote pods, as the port of the virtual node opens them: from RunPod while it has them, then from memory."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import yaml

from forebay.embedded.api.kinds import CONFIG_MAP_KIND
from forebay.offload.exit_code import nonce_of
from forebay.offload.log_view import LogQuery, LogRefused
from tests.engine.market_world import cloud_operator
from tests.engine.offload_world import offload
from tests.engine.test_markets import until
from tests.rig.pki import Authority


class Port:
    """Opens no socket: a story asks what is behind it."""

    address = "10.0.0.7"

    def __init__(self):
        self.logs = None

    @asynccontextmanager
    async def __call__(self, logs, _access, context):
        assert context.verify_mode.name == "CERT_OPTIONAL"
        self.logs = logs
        yield 10250

    async def of(self, pod, **query):
        chunks = await self.logs.open("default", pod["metadata"]["name"], "main", LogQuery(**query))
        return b"".join([each async for each in chunks]).decode()

    async def refusal(self, pod, **query):
        with pytest.raises(LogRefused) as refused:
            await self.of(pod, **query)
        return refused.value.status, str(refused.value)


@asynccontextmanager
async def served(far, directory, **options):
    """An operator whose port is open."""
    authority = Authority.create(directory / "pki").certificate_file.read_text()
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    far.store.create(CONFIG_MAP_KIND, {"metadata": metadata, "data": {"client-ca-file": authority}})
    port = Port()
    async with cloud_operator(far.cloud, port_server=port, **options):
        await until(lambda: far.node() is not None and "addresses" in far.node()["status"])
        yield port


async def running(far, name, **spec):
    far.job(name, **spec)
    await until(lambda: far.phase(name) == "Running")
    pod = far.the_pod(name)
    return pod, pod["metadata"]["annotations"]["runpod.io/pod-id"]


def streams(far):
    """How often RunPod was asked for a log."""
    return far.runpod.log_streams


def instance_of(far, container):
    records = far.world.records().values()
    return next(each["metadata"]["uid"] for each in records if each["status"].get("instanceID") == container)


async def test_a_log_is_shown_from_the_provider_and_from_memory_when_its_container_is_gone(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            assert far.node()["status"]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.7"}]
            assert far.node()["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
            pod, container = await running(far, "train", runs="90s")
            for number in range(3):
                far.runpod.write(container, f"step {number}")
            await asyncio.sleep(0.1)
            assert await port.of(pod) == "started\nstep 0\nstep 1\nstep 2\n"
            assert await port.of(pod, tail=1) == "step 2\n"
            assert await port.of(pod, limit_bytes=3) == "sta"
            await until(lambda: far.is_idle)
            assert await port.of(pod, tail=2) == "step 1\nstep 2\n"
            # Another process has not read it, and says so.
        async with cloud_operator(far.cloud, "b", port_server=port):
            port.logs = None
            await until(lambda: port.logs is not None)
            await asyncio.sleep(30)
            status, said = await port.refusal(pod)
            assert (status, "deleted the log together with its container" in said) == (404, True)


async def test_of_several_pods_each_has_the_log_of_its_own_container(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            for name in ("one", "two"):
                _, container = await running(far, name, runs="90s")
                far.runpod.write(container, f"of {name}")
            await asyncio.sleep(0.1)
            for name in ("one", "two"):
                assert await port.of(far.the_pod(name), tail=1) == f"of {name}\n"
                where = port.logs.unsupported("kubectl exec", "default", far.the_pod(name)["metadata"]["name"])
                assert f"container {far.the_pod(name)['metadata']['annotations']['runpod.io/pod-id']} at" in where


async def test_followed_lines_come_as_they_are_written_and_end_with_the_command(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            pod, container = await running(far, "train", runs="90s")
            asked = streams(far)
            reading = asyncio.create_task(port.of(pod, follow=True))
            for number in range(3):
                await asyncio.sleep(5)
                far.runpod.write(container, f"step {number}")
            assert await reading == "started\nstep 0\nstep 1\nstep 2\n"
            assert streams(far) == asked, "its log is read anyway"
            await until(lambda: far.is_idle)


async def test_of_a_command_that_was_started_again_the_last_run_is_shown_and_the_one_before(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            pod, container = await running(far, "train", runs="300s", backoff=6, pod={"restartPolicy": "OnFailure"})
            assert (await port.refusal(pod, previous=True))[0] == 400
            restart = f"forebay-restart {nonce_of(instance_of(far, container))} 1"
            for text in ("first", "", restart):
                far.runpod.write(container, text)
            # As long as the shell pauses.
            await asyncio.sleep(10)
            for text in ("second", "third"):
                far.runpod.write(container, text)
            await asyncio.sleep(5)
            assert await port.of(pod) == "second\nthird\n"
            assert await port.of(pod, tail=1) == "third\n"
            assert await port.of(pod, previous=True) == "started\nfirst\n"
            far.runpod.write(container, restart)
            await asyncio.sleep(20)
            # More than RunPod sends of what was written, and more than is kept in memory.
            for number in range(6000):
                far.runpod.write(container, f"line {number} {'.' * 100}")
            await asyncio.sleep(5)
            assert (await port.of(pod)).splitlines()[0].startswith("line 0 ")
            assert (await port.of(pod, tail=1)).startswith("line 5999 ")
            assert await port.of(pod, previous=True) == "second\nthird\n"


async def test_who_looks_at_a_log_that_is_read_anyway_costs_no_request(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            pod, container = await running(far, "train", runs="300s")
            far.runpod.write(container, "step 0")
            await asyncio.sleep(5)
            asked = streams(far)
            for _ in range(100):
                assert await port.of(pod) == "started\nstep 0\n"
            assert (await port.of(pod, tail=1, timestamps=True)).endswith("Z step 0\n")
            assert streams(far) == asked


async def test_a_pod_without_a_container_says_what_it_waits_for(tmp_path):
    async with offload() as far:
        far.pool()
        async with served(far, tmp_path) as port:
            pod, _ = await running(far, "first", runs="600s")
            assert port.logs.unsupported("kubectl exec", "default", "none").endswith("kubectl logs works.")
            said = port.logs.unsupported("kubectl exec", "default", "none")
            assert yaml.safe_load(said) == said, (
                "API servers before 1.36 take a text that is a YAML object for a Status"
            )
            assert "SSH access to container" in port.logs.unsupported(
                "kubectl exec", "default", pod["metadata"]["name"]
            )
            missing = {"metadata": {"name": "none"}}
            assert (await port.refusal(missing))[0] == 404
