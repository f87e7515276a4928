"""A cluster with a node, budgets, and the operator that holds them: in virtual time."""

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec

from forebay.embedded.api import kinds
from forebay.embedded.controllers import register_node
from forebay.net import clock
from forebay.net.transport import Headers, Request
from tests.engine.power_world import SERVER, Lab, lab, operator

__all__ = ["Budgets", "operator", "world"]

LABELS = {"team": "a"}


class Budgets:
    """What a story about budgets looks at."""

    def __init__(self, found: Lab):
        self.lab = found
        self.store = found.store
        self.kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")

    def __getattr__(self, name):
        return getattr(self.lab, name)

    def node(self, name="n1", *, gpus=8, cpu="64"):
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": 110, "nvidia.com/gpu": gpus}
        return register_node(self.store, name, allocatable=amounts)

    def budget(self, name="team-a", *, hours="100", window=24, action="Evict", grace=30, labels=None, **spec):
        quota = {"windowHours": window, **({"gpuHours": hours} if hours else {}), **spec.pop("quota", {})}
        body = {
            "selector": {"matchLabels": labels or LABELS},
            "quota": quota,
            "enforcement": {"action": action, "gracePeriodSeconds": grace},
            **spec,
        }
        return self.store.create(self.kind, {"metadata": {"name": name, "namespace": "default"}, "spec": body})

    def pod(self, name, gpus=1, *, runs="10000h", labels=None, annotations=None, **spec):
        metadata = {"labels": labels or LABELS, "annotations": annotations or {}}
        return self.lab.pod(name, gpus, runs=runs, metadata=metadata, **spec)

    def job(self, name, gpus=1, *, runs="10000h", parallelism=1):
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        template = {
            "metadata": {"labels": LABELS, "annotations": {"embedded.forebay.dev/run-time": runs}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        spec = {"parallelism": parallelism, "completions": parallelism, "template": template}
        return self.store.create(kinds.JOB_KIND, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def the_budget(self, name="team-a"):
        return self.store.get(self.kind, "default", name)

    def status(self, name="team-a"):
        return self.the_budget(name).get("status", {})

    def condition(self, kind, name="team-a"):
        found = {each["type"]: each for each in self.status(name).get("conditions", ())}
        return (found[kind]["status"], found[kind]["reason"]) if kind in found else None

    def labels(self, name="team-a"):
        return self.the_budget(name)["metadata"].get("labels", {})

    def the_pod(self, name):
        return self.store.get(kinds.POD_KIND, "default", name)

    def is_there(self, name):
        return any(each["metadata"]["name"] == name for each in self.store.list(kinds.POD_KIND))

    def delete_pod(self, name, **options):
        self.store.delete(kinds.POD_KIND, "default", name, **options)

    async def apply(self, kind, name, fields):
        """Server-side apply, as `kubectl apply --server-side --force-conflicts`."""
        where = f"{SERVER}{kind.path('default', name)}?fieldManager=kubectl&force=true"
        body = msgspec.json.encode(
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **fields}
        )
        headers = Headers({"Content-Type": "application/apply-patch+yaml"})
        request = Request(method="PATCH", url=where, headers=headers, body=body)
        async with await self.user.transport.request(request) as response:
            assert response.status == 200, await response.read()

    def ledgers(self):
        return [
            each
            for each in self.store.list(kinds.CONFIG_MAP_KIND)
            if "forebay.dev/ledger" in each["metadata"].get("labels", {})
        ]

    def ran(self, name):
        """Seconds between first start and last finish, as the kubelet says."""
        (container,) = self.the_pod(name)["status"]["containerStatuses"]
        state = container["state"]["terminated"]
        return (_time(state["finishedAt"]) - _time(state["startedAt"])).total_seconds()

    def seconds(self, since, until=None):
        """From one time, as the API writes it, to another or to now."""
        return ((clock.now() if until is None else _time(until)) - _time(since)).total_seconds()

    def running_for(self, name):
        (container,) = self.the_pod(name)["status"]["containerStatuses"]
        return (clock.now() - _time(container["state"]["running"]["startedAt"])).total_seconds()


def _time(text):
    return datetime.fromisoformat(text)


def hours(seconds, gpus=1):
    return seconds * gpus / 3600


def used(status):
    text = str(status["consumedGpuHours"])
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


@asynccontextmanager
async def world(*machines, nodes=("n1",)):
    async with lab(*machines) as found:
        made = Budgets(found)
        for name in nodes:
            made.node(name)
        yield made


async def passing(seconds):
    await asyncio.sleep(seconds)
