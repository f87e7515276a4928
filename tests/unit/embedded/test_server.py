"""The embedded cluster as a whole, and its kubeconfig."""

import yaml

from forebay.embedded.api.kinds import NAMESPACE_KIND, POD_KIND
from forebay.embedded.server import EmbeddedCluster, is_embedded_kubeconfig, kubeconfig_for
from tests.unit.embedded.worlds import a_pod


async def test_the_same_seed_gives_the_same_cluster_identity():
    clusters = [
        EmbeddedCluster(seed=7).store.get(NAMESPACE_KIND, None, "kube-system")["metadata"]["uid"] for _ in range(2)
    ]

    assert clusters[0] == clusters[1]


async def test_the_controllers_run_inside_the_block():
    async with EmbeddedCluster(seed=1) as cluster:
        cluster.store.create(POD_KIND, a_pod("p"))
        import asyncio

        await asyncio.sleep(1)
        [condition] = cluster.store.get(POD_KIND, "default", "p")["status"]["conditions"]

    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")


def test_only_a_kubeconfig_of_ours_is_recognized():
    ours = kubeconfig_for("https://127.0.0.1:1234", "secret", "PEM")

    assert yaml.safe_load(ours)["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1234"
    assert yaml.safe_load(ours)["users"][0]["user"] == {"token": "secret"}
    assert is_embedded_kubeconfig(ours.encode())
    for other in (b"", b"{", b"[]", b"clusters: 5", b"clusters: [{name: production}]"):
        assert not is_embedded_kubeconfig(other)
