"""Which Lease counts: that of the operator's namespace, whatever others write into theirs."""

from datetime import timedelta

import pytest

from forebay.api.meta import ObjectMeta
from forebay.cli.cluster_reader import ClusterReader, operator_namespace
from forebay.embedded.server import EmbeddedCluster
from forebay.kube.client import Client
from forebay.kube.config import Config
from forebay.kube.credentials import Credential, FixedCredential
from forebay.kube.events import CONTROLLER
from forebay.kube.types import EVENTS, LEASES, NAMESPACES, Event, Lease, LeaseSpec, ObjectReference, micro_time
from forebay.net import clock
from forebay.net.in_process import InProcess
from forebay.settings import Settings


async def lease(client, namespace, holder):
    spec = LeaseSpec(
        holder_identity=holder, lease_duration_seconds=15, renew_time=micro_time(clock.now() + timedelta(days=9))
    )
    metadata = ObjectMeta(name="forebay-operator", namespace=namespace)
    await client.create(LEASES, Lease(metadata=metadata, spec=spec))


async def test_a_lease_in_a_tenants_namespace_leads_nobody():
    cluster = EmbeddedCluster()
    client = Client(InProcess(cluster.handler), "http://embedded")
    for name in ("a-tenant", "forebay-system"):
        await client.create(NAMESPACES, {"metadata": {"name": name}})
    reader = ClusterReader(client, "a-tenant", "forebay-system")
    await lease(client, "a-tenant", "mallory")

    assert await reader.leaders() == []
    assert await reader.lease_namespaces() == ["a-tenant"]

    await lease(client, "forebay-system", "forebay-1")

    assert [each.holder for each in await reader.leaders() or ()] == ["forebay-1"]
    await client.close()


async def test_events_of_an_earlier_object_of_the_same_name_are_left_out():
    cluster = EmbeddedCluster()
    client = Client(InProcess(cluster.handler), "http://embedded")
    for uid, reason in (("first", "Terminated"), ("second", "NodeReady"), ("", "Noted")):
        about = ObjectReference(kind="GPUInstance", name="rack-8", uid=uid)
        event = Event(
            metadata=ObjectMeta(name=f"rack-8.{reason.lower()}", namespace="default"),
            event_time=micro_time(clock.now()),
            reporting_controller=CONTROLLER,
            reporting_instance="forebay-1",
            type="Normal",
            action="Observe",
            reason=reason,
            regarding=about,
        )
        await client.create(EVENTS, event)
    reader = ClusterReader(client, "default", "forebay-system")

    async def reasons(**only):
        return {each.reason for each in await reader.events("GPUInstance", name="rack-8", **only) or ()}

    assert await reasons() == {"Terminated", "NodeReady", "Noted"}
    assert await reasons(uids={"second"}) == {"NodeReady", "Noted"}
    await client.close()


@pytest.mark.parametrize(
    ("configured", "in_pod", "namespace"),
    [
        ("gpu-ops", False, "gpu-ops"),
        ("gpu-ops", True, "gpu-ops"),
        (None, False, "forebay-system"),
        (None, True, "team"),
    ],
)
def test_the_operators_namespace_is_configured_or_that_of_the_pod(configured, in_pod, namespace):
    config = Config(
        server="https://x", credentials=FixedCredential(Credential()), source="x", namespace="team", in_pod=in_pod
    )

    assert operator_namespace(Settings(namespace=configured), config) == namespace
