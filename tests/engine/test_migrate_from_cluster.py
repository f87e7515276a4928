"""Objects of predecessors in a cluster: read, migrated, and created once the API server has admitted all of them."""

from contextlib import asynccontextmanager

import pytest

from forebay.embedded.api import kinds
from forebay.install.predecessors import create_migrated, former_objects
from forebay.kube.client import Client
from forebay.kube.errors import ApiError
from forebay.migrate.deployments import is_predecessor
from forebay.migrate.migration import migrate
from forebay.migrate.target import MigrationTarget
from forebay.net.in_process import InProcess
from forebay.providers.admission import KNOWN
from tests.engine.power_world import SERVER, lab

BUDGET = {
    "selector": {"matchLabels": {"team": "a"}},
    "quota": {"gpuHours": "100", "windowHours": 24},
    "enforcement": {"action": "AlertOnly", "gracePeriodSeconds": 60},
}


def definition(group, version, plural, kind, scope):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "names": names, "scope": scope, "versions": [served]}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


@asynccontextmanager
async def former_cluster():
    async with lab() as made:
        for each in (
            ("budget.zxuhan.dev", "v1alpha1", "gpuworkloadbudgets", "GPUWorkloadBudget", "Namespaced"),
            ("compute.baseten.co", "v1alpha1", "nodeprovisioners", "NodeProvisioner", "Cluster"),
        ):
            made.store.create(kinds.CRD_KIND, definition(*each))
        yield made


def put(world, api_version, kind, name, *, spec, namespace=None):
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    world.store.create(world.store.kinds.named(api_version, kind), {"metadata": metadata, "spec": spec})


async def migrated(world):
    client = Client(InProcess(world.cluster.handler), SERVER)
    found = [each for each in await former_objects(client) if each["kind"] != "Deployment" or is_predecessor(each)]
    target = MigrationTarget(capabilities=KNOWN, group_provider="gcp", group_location="us-central1-a")
    return client, migrate(found, target)


async def test_what_is_in_the_cluster_becomes_forebays_and_a_second_call_changes_nothing():
    async with former_cluster() as world:
        put(world, "budget.zxuhan.dev/v1alpha1", "GPUWorkloadBudget", "team-a", spec=BUDGET, namespace="default")
        groups = {"existingInstanceGroupNames": ["a3-group"], "minGPUUtilizationPercent": 80}
        put(world, "compute.baseten.co/v1alpha1", "NodeProvisioner", "a3", spec=groups)
        client, done = await migrated(world)
        made = await create_migrated(client, done.manifests)

        assert made.created == ("GPUWorkloadBudget default/team-a", "NodeProvisioner a3")
        budget = world.store.get(
            world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget"), "default", "team-a"
        )
        assert budget["spec"]["quota"] == BUDGET["quota"]
        version = world.store.version
        again = await create_migrated(client, done.manifests)
        assert (again.created, again.existing) == ((), made.created)
        assert world.store.version == version


async def test_where_the_api_server_refuses_one_of_them_nothing_is_created():
    async with former_cluster() as world:
        put(world, "budget.zxuhan.dev/v1alpha1", "GPUWorkloadBudget", "team-a", spec=BUDGET, namespace="default")
        wrong = {**BUDGET, "quota": {"gpuHours": "100", "windowHours": 0}}
        put(world, "budget.zxuhan.dev/v1alpha1", "GPUWorkloadBudget", "team-z", spec=wrong, namespace="default")
        client, done = await migrated(world)
        version = world.store.version

        with pytest.raises(ApiError, match="windowHours"):
            await create_migrated(client, done.manifests)
        assert world.store.version == version


async def test_a_cluster_without_predecessors_has_nothing_to_migrate():
    async with lab() as world:
        _, done = await migrated(world)
        assert (done.manifests, done.notes) == ((), ())
