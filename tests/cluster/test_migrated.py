"""The README examples of the five predecessors, migrated by the command and at work on a real control plane.

Run by `make bars`. What `forebay migrate` prints is applied by kubectl as it is. The operator is a process of its own,
with exactly its roles; the public names of clouds, and `power-api`, are conformance servers on this machine. What each
README promised is asked for by kubectl, and of the machines themselves.
"""

import asyncio
import base64
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import yaml
from msgspec.structs import replace

from forebay.api.names import OPERATOR_NAMESPACE, VIRTUAL_NODE
from forebay.model.units import GpuHours
from forebay.net.serve import serving
from forebay.simulate.power import Powered
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.powered import gpu_pod, power_api, rig_client
from tests.cluster.remote_stories import all_of
from tests.cluster.rented import RigKubelets
from tests.cluster.test_groups import KIND, KwokMembers
from tests.cluster.test_joining import CSRS, NODES, Machine
from tests.cluster.test_rbac import ACCOUNT, account_of, use
from tests.contract.providers.conformance import kubeadm_registration
from tests.contract.providers.gcp.server import ComputeEngine, goods
from tests.contract.providers.lambdalabs.server import LambdaCloud
from tests.contract.providers.runpod.server import RunpodCloud, gpu
from tests.contract.tailnets.server import CLIENT, TailscaleServer
from tests.engine.tailnet_world import KEY as TAILNET_KEY
from tests.engine.test_migrated import POD, SKU
from tests.engine.test_migrated_deployments import JOB
from tests.kubelets import key_pem, new_key, pkcs10, signing_request
from tests.rig.parts import PLAY
from tests.unit.migrate.predecessor import EXAMPLE
from tests.unit.migrate.test_budgets_and_provisioners import BUDGET, PROVISIONER
from tests.unit.migrate.test_deployments_and_values import CONTROLLER

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(600)]

#: README of k8s-gpu-autoprovision, "Configuration".
VARIABLES = """\
# For a node group named "gpu-node-1":
GPU_NODE_1_NAME=gpu-worker-1
GPU_NODE_1_GPU_COUNT=4
GPU_NODE_1_SCALE_UP_ENDPOINT=http://power-api/gpu-worker-1/start
GPU_NODE_1_SCALE_DOWN_ENDPOINT=http://power-api/gpu-worker-1/stop

# For additional nodes, use different prefixes:
GPU_NODE_2_NAME=gpu-worker-2
GPU_NODE_2_GPU_COUNT=8
GPU_NODE_2_SCALE_UP_ENDPOINT=http://power-api/gpu-worker-2/start
GPU_NODE_2_SCALE_DOWN_ENDPOINT=http://power-api/gpu-worker-2/stop
"""
MACHINES = (Powered(name="gpu-worker-1", gpus=4, boot=1), Powered(name="gpu-worker-2", gpus=8, boot=1))
RUNPOD_KEY, LAMBDA_KEY = "planted-runpod-key-52e1", "planted-lambda-key-09bd"
#: As the README of Baseten's node-provisioner has nodes labelled, and GKE taints nodes with GPUs.
GROUP_LABEL = {"nodeprovisioner.compute.baseten.co/provisioner-name": "a3"}
GKE_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
#: A hundred GPU-hours are used up in four seconds by as many GPUs.
MANY_GPUS = 100_000
BUDGET_TAINT = {"key": "only", "value": "team-a", "effect": "NoSchedule"}


class JoiningKubelets(RigKubelets):
    """Machines that do what their boot payload has kubeadm and Tailscale do: enter the tailnet by their key, ask for a
    certificate by their token, and register by that certificate. They do the rest as KWOK does.
    """

    def __init__(self, client, rig, tailnet, folder):
        super().__init__(client)
        self._rig, self._tailnet, self._folder = rig, tailnet, folder

    def _provider_id(self, boot):
        return kubeadm_registration(boot)[1]["provider-id"]

    async def _register(self, boot, node):
        name = node["metadata"]["name"]
        assert self._tailnet.joins(TAILNET_KEY.search(boot)[0], name) in self._tailnet.devices
        token = kubeadm_registration(boot)[0]["discovery"]["tlsBootstrapToken"]
        key, request = new_key(), f"csr-{secrets.token_hex(4)}"
        stranger = Machine(self._rig, token=token)

        async def asked():
            # A token that was just made is known a moment later.
            body = signing_request(request, pkcs10(name, key))
            return (await asyncio.to_thread(stranger.ask, "POST", CSRS, body))[0] == 201

        async def issued():
            found = await asyncio.to_thread(self._rig.call, "GET", f"{CSRS}/{request}")
            return found.get("status", {}).get("certificate")

        await until(asked, f"{name} may ask for a certificate")
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        files[0].write_bytes(base64.b64decode(await until(issued, f"{name} has its certificate")))
        files[1].write_bytes(key_pem(key))
        status, answer = await asyncio.to_thread(Machine(self._rig, certificate=files).ask, "POST", NODES, node)
        assert status == 201, answer


class Predecessors:
    """Their users: somebody with kubectl, and the examples in files."""

    def __init__(self, rig, folder):
        self.rig, self._folder = rig, folder

    async def kubectl(self, *arguments, given=None):
        """What it prints; given manifests are its standard input."""
        return await asyncio.to_thread(self._run, [str(self.rig.kubectl), *arguments], given)

    async def migrated(self, example, *options, by="-f"):
        """What the command prints for an example."""
        file = self._folder / f"former-{secrets.token_hex(4)}"
        file.write_text(example)
        return await asyncio.to_thread(
            self._run, [sys.executable, "-m", "forebay", "migrate", by, str(file), *options], None
        )

    def _run(self, command, given):
        done = subprocess.run(
            command,
            input=given,
            # kubectl's cache is below HOME.
            env={**os.environ, "KUBECONFIG": str(self.rig.admin_kubeconfig), "HOME": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    async def apply(self, manifests):
        await self.kubectl("apply", "-f", "-", given=manifests)

    async def create_pod(self, name, gpus, *, runs=None, labels=None, **spec):
        pod = gpu_pod(name, gpus, **({PLAY["RUN_FOR"]: runs} if runs else {}))
        pod["metadata"]["labels"] = labels or {}
        pod["spec"] |= spec
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod}
        await self.kubectl("create", "-f", "-", given=json.dumps(manifest))

    async def becomes(self, wanted, *question, within=60.0):
        """Returns when `kubectl get` with these arguments prints it."""

        async def is_so():
            return await self.kubectl("get", *question) == wanted

        await until(is_so, f"kubectl get {' '.join(question)} prints {wanted}", within)

    async def pod_is(self, phase, name):
        await self.becomes(phase, "pod", name, "-o", "jsonpath={.status.phase}")

    async def secret(self, name, **values):
        literals = [f"--from-literal={key}={value}" for key, value in values.items()]
        await self.kubectl("create", "secret", "generic", name, "-n", OPERATOR_NAMESPACE, *literals)

    async def soon_idle(self, pool, namespace):
        """Idle machines of the pool go after five minutes; the README's reader does not want to wait so long."""
        patch = json.dumps({"spec": {"disruption": {"consolidateAfter": "1s"}}})
        await self.kubectl("patch", "gpunodepool", pool, "-n", namespace, "--type=merge", "-p", patch)


async def machines_are_powered_on_and_off(users, power):
    """k8s-gpu-autoprovision: the smallest machine that is enough, and off again when it is idle."""
    printed = await users.migrated(VARIABLES, by="--env-file")
    await users.apply(printed)
    await users.create_pod("train-4", 4, runs="3s")
    await users.create_pod("train-8", 8, runs="3s")
    await users.pod_is("Succeeded", "train-4")
    await users.pod_is("Succeeded", "train-8")
    asked = [(each.machine, each.asked) for each in power.calls]
    assert sorted(asked) == [("gpu-worker-1", "start"), ("gpu-worker-2", "start")]
    _, pool = yaml.safe_load_all(printed)
    await users.soon_idle(pool["metadata"]["name"], OPERATOR_NAMESPACE)

    async def all_off():
        return not power.on

    await until(all_off, "both machines are off")
    assert power.powered_on_twice() == power.powered_off_in_use() == ()


async def the_job_runs_at_runpod(users, cloud):
    """The RunPod controller: the Job shows as a running one, and its container goes with it."""
    await users.secret("runpod-controller-secrets", RUNPOD_KEY=RUNPOD_KEY)
    await users.apply(await users.migrated(CONTROLLER))
    await users.apply(JOB)
    by_label = ("pods", "-l", "runpod.io/managed=true", "-o", "jsonpath={.items[*].status.phase}")
    await users.becomes("Running", *by_label)
    (pod,) = json.loads(await users.kubectl("get", "pods", "-l", "runpod.io/managed=true", "-o", "json"))["items"]
    assert pod["spec"]["nodeName"] == VIRTUAL_NODE
    (container,) = cloud.running
    assert pod["metadata"]["annotations"]["runpod.io/pod-id"] == container
    assert cloud.orders[container]["image"] == "my-gpu-image:latest"
    active = await users.kubectl("get", "job", "my-gpu-job", "-o", "jsonpath={.status.active}")
    assert active == "1"
    await users.kubectl("delete", "job", "my-gpu-job", "--timeout=60s")

    async def none_left():
        return not cloud.running

    await until(none_left, "the container is terminated")


async def the_budget_counts_and_alerts(users):
    """gpu-k8s-operator: `kubectl get gwb team-a` moves; over quota its condition says so, and the pod goes on."""
    await users.apply(await users.migrated(BUDGET))
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(MANY_GPUS)}
    node = {
        "metadata": {"name": "large", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"taints": [BUDGET_TAINT]},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    await asyncio.to_thread(users.rig.call, "POST", NODES, node)
    tolerations = [{**BUDGET_TAINT, "operator": "Equal"}]
    await users.create_pod("team-a-train", MANY_GPUS, labels={"team": "a"}, tolerations=tolerations)
    await users.pod_is("Running", "team-a-train")
    exceeded = '{.status.conditions[?(@.type=="QuotaExceeded")].status}'
    await users.becomes("True", "gwb", "team-a", "-o", f"jsonpath={exceeded}")
    shown = await users.kubectl("get", "gwb", "team-a")
    assert "AlertOnly" in shown
    consumed = await users.kubectl("get", "gwb", "team-a", "-o", "jsonpath={.status.consumedGpuHours}")
    assert GpuHours.parse(consumed) >= GpuHours.parse(100)
    alerts = ("events", "--field-selector", "involvedObject.name=team-a,reason=QuotaExceeded", "-o", "name")

    async def alerted():
        return await users.kubectl("get", *alerts)

    # The example's grace period is a minute.
    await until(alerted, "the budget alerts", within=120)
    await users.pod_is("Running", "team-a-train")
    await users.kubectl("delete", "pod", "team-a-train", "--wait=false")


async def a_machine_is_rented_and_joins(users, cloud, tailnet):
    """tgp-operator: a machine of the pool's kind, with its labels, in the tailnet; nothing of it remains."""
    keys = {"RUNPOD_API_KEY": RUNPOD_KEY, "LAMBDA_LABS_API_KEY": LAMBDA_KEY}
    await users.secret("tgp-operator-secret", **keys, **{"client-id": CLIENT[0], "client-secret": CLIENT[1]})
    address = users.rig.url.removeprefix("https://")
    await users.apply(await users.migrated(EXAMPLE, "--control-plane-endpoint", address))
    await users.create_pod("tgp-train", 1, runs="3s", **POD)
    await users.pod_is("Succeeded", "tgp-train")
    (rented,) = cloud.instances.values()
    labels = json.loads(await users.kubectl("get", "node", rented.node_name, "-o", "jsonpath={.metadata.labels}"))
    assert labels["tgp.io/nodepool"] == "ml-workload-pool"
    assert labels["tgp.io/gpu-type"] == "RTX4090"
    await users.soon_idle("ml-workload-pool", "default")

    async def gone():
        return not (cloud.running or tailnet.keys or tailnet.devices)

    async def nothing_left():
        return not any(cloud.others.values())

    await until(gone, "the machine, its key and its device are gone")
    # It is the cluster's, and looked for again two minutes after the last machine.
    await until(nothing_left, "the SSH key is gone", within=240)
    tokens = ("secrets", "-n", "kube-system", "--field-selector", "type=bootstrap.kubernetes.io/token", "-o", "name")
    await users.becomes("", *tokens)


async def the_group_grows_and_keeps_its_used_nodes(users, group):
    """Baseten's node-provisioner: a pod that fits no node of the group gets it one more."""
    await users.apply(await users.migrated(PROVISIONER, "--group-provider", "gcp", "--group-location", "us-central1-a"))
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    for number in range(3):
        await users.create_pod(f"serve-{number}", 8, nodeSelector=GROUP_LABEL, tolerations=tolerations)
    for number in range(3):
        await users.pod_is("Running", f"serve-{number}")
    assert group.target == 3
    sizes = "jsonpath={.status.currentSize} {.status.targetSize} {.status.utilizedNodes}"
    await users.becomes("3 3 3", "nodeprovisioner", "a3", "-o", sizes)
    assert group.resized_down == 0


@asynccontextmanager
async def every_cloud(rig, folder):
    """The servers, and by which names the operator knows them."""
    async with AsyncExitStack() as stack:
        tailnet = TailscaleServer()
        client = rig_client(rig)
        stack.push_async_callback(client.close)
        kubelets = JoiningKubelets(client, rig, tailnet, folder)
        stack.push_async_callback(kubelets.close)
        members = KwokMembers(rig, GROUP_LABEL, [GKE_TAINT])
        stack.callback(members.close)
        lambdalabs = LambdaCloud([replace(SKU, boot=1.0, driver=0.0, shutdown=0.5)], kubelets, key=LAMBDA_KEY)
        runpod = RunpodCloud(gpu("NVIDIA A40", price="0.39", memory=48, boot=1), key=RUNPOD_KEY)
        google = ComputeEngine(goods(boot=0.2, driver=0, shutdown=0.2), members, operation_seconds=0.2)
        group = google.add_group("a3-group", KIND, ["a3-0", "a3-1"])
        power, switches = await stack.enter_async_context(power_api(rig, MACHINES))
        hosts = {"power-api": switches, "api.tailscale.com": await stack.enter_async_context(serving(tailnet.answer))}
        for server, names in (
            (lambdalabs, ("cloud.lambda.ai",)),
            (runpod, ("api.runpod.io",)),
            (google, ("compute.googleapis.com", "cloudbilling.googleapis.com", "metadata.google.internal")),
        ):
            stack.callback(server.stop)
            base = await stack.enter_async_context(serving(server.answer))
            hosts |= dict.fromkeys(names, base)
        yield power, lambdalabs, runpod, group, tailnet, hosts
        for server in (lambdalabs, runpod, google):
            assert server.violations == []


async def settings_of(users):
    """The flags of the RunPod controller, as settings of the chart and so of the operator."""
    values = yaml.safe_load(await users.migrated(CONTROLLER, "--values"))["settings"]
    dashed = {"".join(f"-{each.lower()}" if each.isupper() else each for each in key): key for key in values}
    return {name: str(values[key]) for name, key in dashed.items()}


async def test_the_readme_examples_of_the_five_predecessors_do_what_their_users_expect(whole_rig, tmp_path):
    rig, users = whole_rig, Predecessors(whole_rig, tmp_path)
    granted = ("--secret", "runpod-controller-secrets", "--secret", "tgp-operator-secret", "--offload", "on")
    kubeconfig = await asyncio.to_thread(account_of, rig, *granted)
    async with every_cloud(rig, tmp_path) as (power, lambdalabs, runpod, group, tailnet, hosts):
        operator = OperatorProcess(
            rig,
            "operator",
            kubeconfig,
            OPERATOR_NAMESPACE,
            {"LOOPBACK_HOSTS": json.dumps(hosts)},
            program="loopback_operator.py",
            settings=await settings_of(users),
        )
        operator.start()
        try:
            await until(operator.is_ready, "the operator is ready")
            began = time.monotonic()
            await all_of(
                {
                    "k8s-gpu-autoprovision": machines_are_powered_on_and_off(users, power),
                    "runpod-controller": the_job_runs_at_runpod(users, runpod),
                    "gpu-k8s-operator": the_budget_counts_and_alerts(users),
                    "tgp-operator": a_machine_is_rented_and_joins(users, lambdalabs, tailnet),
                    "node-provisioner": the_group_grows_and_keeps_its_used_nodes(users, group),
                }
            )
            sys.stderr.write(f"migrated: five examples in {time.monotonic() - began:.0f} s\n")
        finally:
            operator.stop()
    requests = audit.entries(rig.audit_log, ACCOUNT)
    assert {use(each) for each in requests if each.refused} == set()
