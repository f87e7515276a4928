"""`kubectl logs` of remote pods, with the real kubectl, on a real control plane that verifies kubelets."""

import asyncio
import http.client
import ssl
from contextlib import asynccontextmanager, closing

import pytest

from forebay.api.names import OPERATOR_NAMESPACE, VIRTUAL_NODE
from forebay.net.serve import serving
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.test_offload import JOBS, KEY, Story, configure, job
from tests.cluster.test_rbac import account_of
from tests.cluster.worlds import install_definitions
from tests.contract.providers.runpod.server import RunpodCloud, gpu
from tests.rig import Rig, Tier
from tests.rig.plugin import require


@pytest.fixture
def verifying_rig():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER, verifies_kubelets=True) as rig:
        install_definitions(rig)
        yield rig


@asynccontextmanager
async def following(rig, *arguments):
    """`kubectl` as a process whose lines are read as they come."""
    command = [str(rig.kubectl), "--kubeconfig", str(rig.admin_kubeconfig), *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def kubectl(rig, *arguments):
    async with following(rig, *arguments) as process:
        said, complained = await asyncio.wait_for(process.communicate(), 30)
        return process.returncode, said.decode(), complained.decode()


def asked_directly(rig, port, certificate):
    """What somebody with this certificate gets who goes to the port without the API server."""
    context = ssl.create_default_context(cafile=str(rig.directory / "pki" / "ca.crt"))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
    with closing(connection):
        connection.request("GET", "/containerLogs/default/pod/main")
        response = connection.getresponse()
        return response.status, response.read().decode()


class Logs:
    def __init__(self, rig, cloud, told):
        self.rig, self.cloud, self.told = rig, cloud, told

    async def started(self, name, **spec):
        await self.told.call("POST", JOBS, job(name, **spec))
        await until(lambda: self.told.is_running(name), f"{name} runs")
        (pod,) = await self.told.pods(name)
        return pod["metadata"]["name"], pod["metadata"]["annotations"]["runpod.io/pod-id"]

    async def port(self):
        node = await self.told.call("GET", f"/api/v1/nodes/{VIRTUAL_NODE}")
        return node["status"].get("daemonEndpoints", {}).get("kubeletEndpoint", {}).get("Port")

    async def of(self, pod, *options):
        code, said, complained = await kubectl(self.rig, "logs", pod, *options)
        assert code == 0, complained
        return said

    async def works(self, pod):
        return (await kubectl(self.rig, "logs", pod))[0] == 0


@pytest.mark.real_time
@pytest.mark.timeout(400)
async def test_kubectl_logs_works_for_remote_pods_and_goes_on_when_leadership_moves(verifying_rig):
    rig = verifying_rig
    cloud = RunpodCloud(gpu("NVIDIA A40", price="0.39", memory=48, boot=1), key=KEY, enforces_limits=False)
    kubeconfig = await asyncio.to_thread(account_of, rig, "--secret", "runpod", "--offload", "on")
    first, second = (OperatorProcess(rig, name, kubeconfig, OPERATOR_NAMESPACE, lease=4.0) for name in ("one", "two"))
    told = Story(rig)
    async with serving(cloud.answer) as base:
        await asyncio.to_thread(configure, rig, base)
        first.start()
        try:
            await until(first.is_ready, "the operator is ready")
            await the_log_is_shown(Logs(rig, cloud, told), first, second)
        finally:
            first.stop()
            second.stop()
    assert cloud.violations == []


async def the_log_is_shown(logs, first, second):
    rig, cloud = logs.rig, logs.cloud
    pod, container = await logs.started("talks", runs="10h")
    port = await until(logs.port, "the node has a port")
    assert first.said("serving certificate not signed by the cluster") == []
    for number in range(5):
        cloud.write(container, f"step {number}")
    assert await logs.of(pod) == "started\n" + "".join(f"step {number}\n" for number in range(5))
    assert await logs.of(pod, "--tail=2") == "step 3\nstep 4\n"
    assert await logs.of(pod, "--limit-bytes=10") == "started\nst"
    assert (await logs.of(pod, "--since=1h", "--timestamps")).splitlines()[1].endswith("Z step 0")

    async with following(rig, "logs", "-f", "--tail=1", pod) as process:
        assert await asyncio.wait_for(process.stdout.readline(), 10) == b"step 4\n"
        cloud.write(container, "step 5")
        assert await asyncio.wait_for(process.stdout.readline(), 2) == b"step 5\n"

    code, _, said = await kubectl(rig, "logs", "--previous", pod)
    assert code == 1
    assert 'previous terminated container "main"' in said
    for command in (("exec", pod, "--", "ls"), ("port-forward", pod, "8080"), ("attach", pod)):
        code, _, said = await kubectl(rig, *command)
        assert code != 0
        assert f"kubectl {command[0]} is not supported by this provider" in said
        assert f"SSH access to container {container} at runpod" in said

    # Nobody gets past the API server's permissions by going to the port.
    assert (await asyncio.to_thread(asked_directly, rig, port, None))[0] == 401
    tenant = rig._authority.write("tenant", "tenant", ["tenants"])
    status, said = await asyncio.to_thread(asked_directly, rig, port, tenant)
    assert (status, "user=tenant, verb=get, resource=nodes" in said) == (403, True)

    # What a finished pod wrote is there although RunPod has deleted it with the container.
    done, finished = await logs.started("done", runs="6s")
    cloud.write(finished, "result: 42")
    assert await until(lambda: logs.told.ended("done"), "the Job is complete") == "Complete"
    await until(lambda: asyncio.sleep(0, finished not in cloud.running), "its container is gone")
    assert (await logs.of(done)).splitlines()[-1] == "result: 42"

    second.start()
    await until(second.is_ready, "the standby is ready")
    first.kill()

    async def moved():
        return await logs.port() not in {None, port}

    await until(moved, "the next leader publishes its own port")
    assert (await logs.of(pod)).splitlines()[-1] == "step 5"
