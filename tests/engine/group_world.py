"""A market with instance groups or without, and a NodeProvisioner that sizes them."""

import asyncio

from forebay.embedded.api.kinds import NODE_KIND
from tests.engine.test_markets import until

KIND = ("forebay.dev/v1alpha1", "NodeProvisioner")


def provision(cloud, name="pool", groups=("group",), at="alpha", **spec):
    kind = cloud.store.kinds.named(*KIND)
    provider = {"name": "simulated", "endpoint": f"http://{at}"}
    spec = {"existingInstanceGroupNames": list(groups), "provider": provider, "scaleDownDelay": "10m", **spec}
    return cloud.store.create(kind, {"metadata": {"name": name}, "spec": spec})


def rent(cloud, name="pool", *, of="alpha", node_class=None, **spec):
    """A GPUNodeClass of the market's name, and a NodeProvisioner that rents by it, as a group of Forebay's own."""
    cloud.node_class(of, **(node_class or {}))
    return provisioner(cloud, name, of=of, **spec)


def provisioner(cloud, name="pool", *, of="alpha", provider=None, **spec):
    provider = provider or {"name": "simulated", "instanceType": "a3.8x"}
    spec = {"nodeClassRef": {"name": of}, "provider": provider, "scaleDownDelay": "10m", **spec}
    return cloud.store.create(cloud.store.kinds.named(*KIND), {"metadata": {"name": name}, "spec": spec})


def change(cloud, name="pool", **spec):
    cloud.world.change(cloud.store.kinds.named(*KIND), name, lambda found: found["spec"].update(spec))


def remove(cloud, name="pool"):
    cloud.store.delete(cloud.store.kinds.named(*KIND), None, name)


def status(cloud, name="pool"):
    return cloud.store.get(cloud.store.kinds.named(*KIND), None, name).get("status") or {}


def condition(cloud, kind, name="pool"):
    found = [each for each in status(cloud, name).get("conditions", ()) if each["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else None


def sizes(cloud, name="pool"):
    """Size, target, nodes in use and tainted ones, as reported."""
    found = status(cloud, name)
    return tuple(found.get(each) for each in ("currentSize", "targetSize", "utilizedNodes", "taintedNodes"))


def tainted(cloud):
    return {
        node["metadata"]["name"]
        for node in cloud.store.list(NODE_KIND)
        for taint in node["spec"].get("taints") or ()
        if taint["key"] == "forebay.dev/scale-down"
    }


async def all_three_go(cloud):
    """The three nodes, which are empty, are tainted, kept for the delay of ten minutes, and then proven gone."""
    alpha = cloud.markets["alpha"]
    await until(lambda: len(tainted(cloud)) == 3)
    assert status(cloud)["reason"] == "BelowMinUtilization"
    await asyncio.sleep(590)
    assert len(alpha.running) == 3
    await until(lambda: not alpha.running)
    await until(lambda: set(cloud.world.states().values()) <= {"Gone"})
    await until(lambda: not cloud.store.list(NODE_KIND))
