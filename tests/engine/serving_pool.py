"""A pool with one node on which pods of a ReplicaSet run, and what tests of its life change and ask."""

import asyncio
from contextlib import asynccontextmanager

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until
from tests.engine.test_static_capacity import change

SKU = Sku(instance_type="l40s.4x", gpus=4, gpu_type="L40S", hourly_price="2.40", region="west", boot=60, driver=10)


@asynccontextmanager
async def served(sku=SKU, *, spec=(), disruption=None, **annotations):
    """The cloud and the name of the one node, once the pod of a ReplicaSet runs there."""
    async with clouds(market("alpha", sku)) as cloud:
        cloud.pool("alpha", **({"disruption": disruption} if disruption else {}))
        change(cloud, **dict(spec))
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replicas(cloud, **annotations)
            await until(lambda: serving(cloud))
            (node,) = serving(cloud)
            yield cloud, node


def replicas(cloud, number=1, gpus=4, **annotations):
    """A ReplicaSet whose pods run until they are ended."""
    labels = {"app": "serve"}
    container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    notes = {"embedded.forebay.dev/run-time": "10000h", **annotations}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": {"containers": [container]}}
    spec = {"replicas": number, "selector": {"matchLabels": labels}, "template": template}
    cloud.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "serve", "namespace": "default"}, "spec": spec})


def serving(cloud):
    """Nodes on which pods of the ReplicaSet run."""
    pods = [each for each in cloud.store.list(kinds.POD_KIND) if each["metadata"].get("ownerReferences")]
    return {pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"}


def change_labels(cloud, **labels):
    pool = cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")
    template = {"metadata": {"labels": labels}}
    cloud.world.change(pool, "alpha", lambda each: each["spec"].update(template=template), "kube-system")


def replacing(cloud, name):
    conditions = cloud.world.record(name)["status"]["conditions"]
    found = [each for each in conditions if each["type"] == "Replacement"]
    return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else None


def drained(cloud, name):
    """The transition by which a machine began to drain."""
    return next(each for each in cloud.world.record(name)["status"]["transitions"] if each["state"] == "Draining")
