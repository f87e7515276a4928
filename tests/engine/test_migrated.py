"""What tgp-operator promised in its README, by its own example: migrated, and at work on conformance servers."""

import asyncio
from functools import partial

import yaml

from forebay.embedded.api.kinds import CONFIG_MAP_KIND
from forebay.migrate.migration import migrate
from forebay.migrate.target import MigrationTarget
from forebay.providers.admission import KNOWN
from forebay.simulate.market_goods import Sku
from tests.contract.providers.lambdalabs.server import LambdaCloud
from tests.contract.tailnets.server import CLIENT, TailscaleServer
from tests.engine.market_world import cloud_operator, clouds, secret
from tests.engine.tailnet_world import TailnetMachines, tailnet_of
from tests.pki import Authority
from tests.unit.migrate.predecessor import EXAMPLE

#: Lambda rents out no such GPU; the predecessor's example asks for it.
SKU = Sku(
    instance_type="gpu_1x_rtx4090",
    gpus=1,
    gpu_type="RTX4090",
    gpu_memory_gib=24,
    hourly_price="0.74",
    region="us-west-1",
    boot=60,
    driver=10,
    minimum=60,
    increment=60,
)
POD = {
    "nodeSelector": {"tgp.io/gpu-type": "RTX4090"},
    "tolerations": [{"key": "gpu-node", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
}


def lambda_cloud(nodes, tailnet):
    return LambdaCloud([SKU], TailnetMachines(nodes, tailnet), name="lambda", key="k-1")


def apply(cloud, manifests):
    for manifest in manifests:
        kind = cloud.store.kinds.named(manifest["apiVersion"], manifest["kind"])
        cloud.store.create(kind, manifest)


async def until(holds, seconds=1800):
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 (of several things that change)
            await asyncio.sleep(1)


async def test_the_example_of_the_readme_rents_a_machine_that_joins_and_gives_it_back():
    tailnet = TailscaleServer()
    async with clouds(partial(lambda_cloud, tailnet=tailnet)) as cloud:
        tailnet_of(cloud, tailnet)
        published = cloud.store.find(CONFIG_MAP_KIND, "kube-system", "kube-root-ca.crt")
        cloud.store.update(CONFIG_MAP_KIND, {**published, "data": {"ca.crt": Authority().certificate.decode()}})
        (server,) = cloud.markets.values()
        keys = {"RUNPOD_API_KEY": "nobody", "LAMBDA_LABS_API_KEY": server.key}
        secret(cloud, "tgp-operator-secret", **keys, **{"client-id": CLIENT[0], "client-secret": CLIENT[1]})
        target = MigrationTarget(capabilities=KNOWN, namespace="kube-system", control_plane="10.0.0.1:6443")
        node_class, pool = migrate(yaml.safe_load_all(EXAMPLE), target).manifests
        # The public addresses of the two clouds are not to be called from a test.
        for entry in node_class["spec"]["providers"]:
            entry["endpoint"] = "http://nowhere" if entry["name"] == "runpod" else "http://lambda/api/v1"
        apply(cloud, (node_class, pool))
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("train", 1, runs="10m", **POD)
            await until(lambda: cloud.world.phase("train") == "Running")
            (machine,) = server.instances.values()
            assert machine.order.node.labels["tgp.io/nodepool"] == "ml-workload-pool"
            assert machine.node_name in {each["hostname"] for each in tailnet.devices.values()}
            await until(lambda: not cloud.running and set(cloud.world.states().values()) <= {"Gone"})
            await until(lambda: not (tailnet.keys or tailnet.devices or any(server.others.values())))
        assert server.violations == []
        assert cloud.ledger() >= cloud.bill() > 0
