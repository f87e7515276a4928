"""A class that is deleted waits for its machines, and for what its providers keep beside them."""

import asyncio

import pytest

from forebay.embedded.api import kinds
from forebay.simulate import market_faults
from tests.contract.providers.conformance import JOIN_LINE
from tests.crash.test_clouds import CLOUDS
from tests.engine.market_world import cloud_operator, clouds, market
from tests.engine.test_markets import until
from tests.engine.test_underutilized import BIG, keep_available, replica_set, running


def class_kind(cloud):
    return cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodeClass")


def waits_for(cloud, name):
    """What the deleted class says; None where it is gone."""
    found = [each for each in cloud.store.list(class_kind(cloud)) if each["metadata"]["name"] == name]
    if not found:
        return None
    conditions = found[0]["status"]["conditions"]
    return next((each["message"] for each in conditions if each["type"] == "DeletionBlocked"), "")


@pytest.mark.parametrize("provider", ["lambdalabs", "paperspace"])
async def test_a_class_deleted_right_after_its_last_machine_leaves_nothing_at_its_provider(provider):
    make, shebang, _ = CLOUDS[provider]
    async with clouds(make) as cloud:
        ((name, server),) = cloud.markets.items()
        cloud.pool(name, cloudInit={"template": f"{shebang}\n# {JOIN_LINE}\n"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            cloud.world.pod("first", 1, runs="20s")
            await until(lambda: set(cloud.world.states().values()) == {"Ready"}, 300)
            if provider == "lambdalabs":
                for _ in range(3):
                    server.script("delete_key", market_faults.server_error(500))
            cloud.store.delete(class_kind(cloud), None, name)
            await asyncio.sleep(5)
            assert "Machines of this class are drained and terminated first" in waits_for(cloud, name)
            heard = []
            for _ in range(900):
                heard.append(waits_for(cloud, name))
                if heard[-1] is None:
                    break
                await asyncio.sleep(1)
            assert heard[-1] is None, "the class goes"
            assert not cloud.running
            assert not any(server.others.values()), server.others
            if provider == "lambdalabs":
                assert any("lambdalabs still has SSH key forebay-" in each for each in heard if each), heard


async def test_a_class_whose_provider_does_not_answer_goes_after_ten_minutes():
    make, shebang, _ = CLOUDS["lambdalabs"]
    async with clouds(make) as cloud:
        ((name, server),) = cloud.markets.items()
        cloud.pool(name, cloudInit={"template": f"{shebang}\n# {JOIN_LINE}\n"})
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            server.refuse_credentials(3600)
            cloud.store.delete(class_kind(cloud), None, name)
            await asyncio.sleep(300)
            assert "must be listed once more" in waits_for(cloud, name)
            await until(lambda: waits_for(cloud, name) is None, 400)


async def test_a_deleted_class_names_the_pod_disruption_budget_that_keeps_a_machine():
    async with clouds(market("alpha", BIG)) as cloud:
        cloud.pool("alpha")
        async with cloud_operator(cloud):
            await asyncio.sleep(10)
            replica_set(cloud, "web")
            await until(lambda: running(cloud, "web"))
            keep_available(cloud, "web")
            cloud.store.delete(class_kind(cloud), None, "alpha")
            (node,) = running(cloud, "web")
            await until(lambda: "cannot be drained" in (waits_for(cloud, "alpha") or ""), 300)
            assert f"first: {node} (Draining). Node {node} cannot be drained: PodDisruptionBudget default/keep-web" in (
                waits_for(cloud, "alpha")
            )
            await asyncio.sleep(600)
            assert running(cloud, "web") == [node]
            cloud.store.delete(kinds.DISRUPTION_BUDGET_KIND, "default", "keep-web")
            await until(lambda: waits_for(cloud, "alpha") is None, 600)
            assert not cloud.running
