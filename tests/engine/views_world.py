"""A cluster with Forebay's kinds and the views of one replica, for parts of the operator on their own."""

from contextlib import asynccontextmanager
from typing import NamedTuple

from forebay.embedded.api.kinds import CRD_KIND, POD_KIND
from forebay.embedded.api.store import Store
from forebay.embedded.server import EmbeddedCluster
from forebay.engine.views import Views, watching
from forebay.install.crds import custom_resource_definitions
from forebay.kube.client import Client
from forebay.net.clock import now
from forebay.net.in_process import InProcess
from tests.net.faults import Answer, Faulty


class Watched(NamedTuple):
    store: Store
    client: Client
    views: Views
    #: Answers of the API server to requests that a test chose; none at first.
    faults: list

    def pod(self, name, **spec):
        """A pod that asks for a GPU; its metadata."""
        container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        metadata = {"name": name, "namespace": "default"}
        made = self.store.create(POD_KIND, {"metadata": metadata, "spec": {"containers": [container], **spec}})
        return made["metadata"]

    def refuse(self, when, status):
        """Every request that `when` chooses is answered so."""
        self.faults[:] = [lambda request: Answer(status) if when(request) else None]


@asynccontextmanager
async def watched_cluster():
    async with EmbeddedCluster(without={"scheduler", "kubelet"}) as cluster:
        for definition in custom_resource_definitions():
            cluster.store.create(CRD_KIND, definition)
        faults = []
        transport = Faulty(InProcess(cluster.handler), lambda request: faults[0](request) if faults else None)
        client = Client(transport, "http://embedded")
        async with watching(client.transport, "http://embedded", clock=now) as views:
            for informer in views.informers:
                await informer.wait_synced()
            yield Watched(cluster.store, client, views, faults)
