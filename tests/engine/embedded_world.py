"""An embedded cluster for tests, with short ways to create and read objects."""

import asyncio
from typing import Any

from forebay.embedded.api import kinds
from forebay.embedded.api.bootstrap import open_store
from forebay.embedded.controllers import Controllers, register_node

Json = dict[str, Any]
PREFIX = "embedded.forebay.dev/"


class World:
    """`async with World() as world:` runs all controllers, or all but those named in `without`."""

    def __init__(self, **options):
        self.store = open_store(seed=7)
        self.controllers = Controllers(self.store, **options)

    async def __aenter__(self):
        self.controllers.start()
        return self

    async def __aexit__(self, *_):
        await self.controllers.stop()

    def node(self, name, *, cpu="8", gpus=0, pods=110, labels=None, **rest):
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": pods, **({"nvidia.com/gpu": gpus} if gpus else {})}
        return register_node(self.store, name, allocatable=amounts, labels=labels, **rest)

    def pod(self, name, *, cpu=None, gpus=0, does=None, labels=None, restart="Always", **spec):
        """`does`: the embedded annotations without their prefix, `{"run-time": "30s"}`."""
        meta = {"name": name, "namespace": "default", "labels": labels or {}, "annotations": annotations(does)}
        return self.store.create(
            kinds.POD_KIND, {"metadata": meta, "spec": {**pod_spec(cpu=cpu, gpus=gpus, restart=restart), **spec}}
        )

    def job(self, name, *, does=None, cpu=None, gpus=0, restart="Never", **spec):
        template = {
            "metadata": {"annotations": annotations(does)},
            "spec": pod_spec(cpu=cpu, gpus=gpus, restart=restart),
        }
        return self.store.create(kinds.JOB_KIND, {"metadata": {"name": name}, "spec": {"template": template, **spec}})

    def replica_set(self, name, replicas, *, labels, does=None):
        template = {"metadata": {"labels": labels, "annotations": annotations(does)}, "spec": pod_spec()}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        return self.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": name}, "spec": spec})

    def get(self, kind, name):
        return self.store.get(kind, "default", name)

    def the_pod(self, name):
        return self.get(kinds.POD_KIND, name)

    def the_job(self, name):
        return self.get(kinds.JOB_KIND, name)

    def pods(self, job=None):
        pods = self.store.list(kinds.POD_KIND)
        return (
            pods if job is None else [pod for pod in pods if pod["metadata"].get("labels", {}).get("job-name") == job]
        )

    def phase(self, name):
        return self.the_pod(name)["status"]["phase"]

    def where(self, name):
        return self.the_pod(name)["spec"].get("nodeName")

    def condition(self, obj, kind):
        return next((c for c in obj["status"].get("conditions", ()) if c["type"] == kind), None)

    def update(self, kind, name, change):
        """Writes the object after `change(copy)`."""
        import copy

        new = copy.deepcopy(self.store.get(kind, "default", name))
        change(new)
        return self.store.update(kind, new)

    def update_status(self, kind, name, **fields):
        obj = self.store.get(kind, "default", name)
        return self.store.update(kind, {**obj, "status": {**obj["status"], **fields}}, subresource="status")

    def delete(self, kind, name, **options):
        return self.store.delete(kind, "default", name, **options)

    def events(self, name, reason=None):
        found = [e for e in self.store.list(kinds.EVENT_KIND) if e["involvedObject"]["name"] == name]
        return [e["message"] for e in found if reason in {None, e["reason"]}]


def annotations(does):
    return {PREFIX + key: value for key, value in (does or {}).items()}


def pod_spec(*, cpu=None, gpus=0, restart="Always"):
    resources = {}
    if cpu:
        resources["requests"] = {"cpu": cpu}
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": gpus}
    return {"restartPolicy": restart, "containers": [{"name": "main", "image": "work:1", "resources": resources}]}


async def passing(seconds):
    await asyncio.sleep(seconds)
