"""What README examples of predecessors become works: machines of variables, and Jobs of the RunPod controller."""

import asyncio

import msgspec
import yaml

from forebay.embedded.api.kinds import JOB_KIND
from forebay.migrate.migration import migrate
from forebay.migrate.target import MachineGroups, MigrationTarget
from forebay.providers.admission import KNOWN
from forebay.providers.registry import EnvironmentConfig
from forebay.providers.webhook.groups import read_groups
from forebay.simulate.market_goods import RUN_TIME
from forebay.simulate.power import Powered
from tests.engine.market_world import cloud_operator, clouds, secret
from tests.engine.offload_world import KEY, offload
from tests.engine.test_markets import until
from tests.unit.migrate.test_deployments_and_values import CONTROLLER, VARIABLES

#: The Job of the RunPod controller's README.
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: my-gpu-job
  annotations:
    runpod.io/managed: "true"
    runpod.io/offload: "true"
    runpod.io/required-gpu-memory: "16"
spec:
  template:
    spec:
      containers:
      - name: my-container
        image: my-gpu-image:latest
        resources:
          requests:
            nvidia.com/gpu: 1
          limits:
            nvidia.com/gpu: 1
      restartPolicy: Never
"""


def groups(variables):
    found = read_groups(variables)
    return MachineGroups(machines=[msgspec.to_builtins(each) for each in found.machines], problems=found.problems)


TARGET = MigrationTarget(capabilities=KNOWN, namespace="kube-system", machine_groups=groups)


def apply(cloud, manifests):
    for manifest in manifests:
        cloud.store.create(cloud.store.kinds.named(manifest["apiVersion"], manifest["kind"]), manifest)


async def test_machines_of_variables_serve_pods_from_a_class():
    lines = [line for line in VARIABLES.splitlines() if "=" in line]
    variables = dict(line.replace("power-api", "power/gpu-worker-1").split("=", 1) for line in lines)
    async with clouds(machines=(Powered(name="gpu-worker-1", gpus=4, boot=30),)) as cloud:
        apply(cloud, migrate((), TARGET, variables).manifests)
        async with cloud_operator(cloud, configured=EnvironmentConfig()):
            await asyncio.sleep(10)
            cloud.world.pod("train", 4, runs="60s")
            await until(lambda: cloud.world.phase("train") == "Succeeded")
            assert cloud.world.asked("start") == ["gpu-worker-1"]
            # Idle machines of a pool go after five minutes.
            await until(lambda: cloud.world.asked("stop") == ["gpu-worker-1"])


async def test_a_job_of_the_runpod_controller_runs_by_the_class_of_its_key():
    done = migrate(yaml.safe_load_all(CONTROLLER), TARGET)
    async with offload() as far:
        secret(far, "runpod-controller-secrets", RUNPOD_KEY=KEY)
        node_class, pool = done.manifests
        node_class["spec"]["providers"][0]["endpoint"] = "http://runpod"
        apply(far.cloud, (node_class, pool))
        async with cloud_operator(far.cloud):
            await asyncio.sleep(10)
            job = yaml.safe_load(JOB)
            job["metadata"]["namespace"] = "default"
            (container,) = job["spec"]["template"]["spec"]["containers"]
            container["env"] = [{"name": RUN_TIME, "value": "60s"}]
            far.store.create(JOB_KIND, job)
            await until(lambda: far.ended("my-gpu-job") == "Complete")
            await until(lambda: far.is_idle)
