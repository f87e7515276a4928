"""Jobs marked to run remotely, the conformance server of RunPod, and the operator between them."""

import base64
from contextlib import asynccontextmanager
from fractions import Fraction

import msgspec

from forebay.embedded.api.kinds import JOB_KIND, NODE_KIND, POD_KIND, SECRET_KIND
from forebay.model.quantities import Quantity
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME
from tests.contract.providers.runpod.server import REGISTRIES, RunpodCloud, gpu
from tests.engine.market_world import clouds

KEY = "planted-runpod-key-93aa"
A40, RTX = "NVIDIA A40", "NVIDIA GeForce RTX 4090"
MANAGED = {"runpod.io/managed": "true"}


def runpod(name="runpod", **options):
    """An account with an A40 for $0.39/h and an RTX 4090 for $0.44/h, in the community cloud for $0.31/h."""
    skus = (
        *gpu(A40, price="0.39", memory=48, counts=(1, 2), boot=10),
        *gpu(RTX, price="0.44", memory=24, counts=(1, 2, 3, 4), community="0.31", boot=10),
    )
    return lambda _nodes: RunpodCloud(skus, name=name, key=KEY, **options)


class Offload:
    """What a story of remote Jobs looks at."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.world = cloud.world
        self.store = cloud.store
        self.runpod = cloud.markets["runpod"]
        data = {"key": base64.b64encode(KEY.encode()).decode()}
        self.store.create(SECRET_KIND, {"metadata": {"name": "runpod", "namespace": "kube-system"}, "data": data})

    def pool(self, *, name="runpod", limits=None, price=None, provider="runpod", **spec):
        """A class that lists RunPod, and a pool of it. `name`: of both, and of the account. `price`: its highest."""
        entry = {"name": provider, "endpoint": f"http://{name}", "credentialsRef": {"name": "runpod", "key": "key"}}
        self._create("GPUNodeClass", {"name": name}, {"providers": [entry], **spec})
        pool = {"nodeClassRef": {"name": name}, **({"limits": limits} if limits else {})}
        pool |= {"maxHourlyPrice": price} if price else {}
        self._create("GPUNodePool", {"name": name, "namespace": "kube-system"}, pool)

    def _create(self, kind, metadata, spec):
        self.store.create(self.store.kinds.named("forebay.dev/v1alpha1", kind), {"metadata": metadata, "spec": spec})

    def budget(self, *, action="Evict", **quota):
        spec = {
            "selector": {"matchExpressions": [{"key": "job-name", "operator": "Exists"}]},
            "gpuResourceName": "nvidia.com/gpu",
            "quota": {"windowHours": 24, **quota},
            "enforcement": {"action": action, "gracePeriodSeconds": 30},
        }
        self._create("GPUWorkloadBudget", {"name": "team", "namespace": "default"}, spec)

    def consumed(self, field):
        kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        return float(Quantity.parse(self.store.get(kind, "default", "team")["status"][field]).nano) / 1e9

    def job(self, name, *, runs="60s", exit_code=0, marks=None, pod=None, backoff=0, **spec):
        """A marked Job whose container runs for so long."""
        env = {RUN_TIME: runs, EXIT_CODE: str(exit_code)}
        container = {
            "name": "main",
            "image": "work:1",
            "command": ["train"],
            "env": [{"name": key, "value": value} for key, value in env.items()],
            "resources": {"limits": {"nvidia.com/gpu": 1}},
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
        metadata = {"name": name, "namespace": "default", "annotations": MANAGED if marks is None else marks}
        return self.store.create(
            JOB_KIND, {"metadata": metadata, "spec": {"template": template, "backoffLimit": backoff, **spec}}
        )

    def pull_secret(self, name, *, password="planted-registry-password-7c", registry="https://index.docker.io/v1/"):
        """A Secret for imagePullSecrets, or another version of it."""
        entry = {"auth": base64.b64encode(f"robot:{password}".encode()).decode()}
        config = base64.b64encode(msgspec.json.encode({"auths": {registry: entry}})).decode()
        metadata, data = {"name": name, "namespace": "default"}, {".dockerconfigjson": config}
        if self.store.find(SECRET_KIND, "default", name) is not None:
            self.world.change(SECRET_KIND, name, lambda secret: secret.update(data=data), "default")
            return
        self.store.create(SECRET_KIND, {"metadata": metadata, "data": data})

    @property
    def credentials(self):
        """Registry credentials at RunPod, by id: user name and password."""
        return {key: (each["username"], each["password"]) for key, each in self.runpod.others[REGISTRIES].items()}

    def delete_job(self, name, propagation="Background"):
        self.store.delete(JOB_KIND, "default", name, propagation=propagation)

    def suspend(self, name, *, suspended=True):
        self.world.change(JOB_KIND, name, lambda job: job["spec"].update(suspend=suspended), "default")

    def the_job(self, name):
        return self.store.find(JOB_KIND, "default", name)

    def ended(self, name):
        """Complete or Failed; None while the Job goes on."""
        conditions = (self.the_job(name).get("status") or {}).get("conditions", ())
        return next((each["type"] for each in conditions if each["type"] in {"Complete", "Failed"}), None)

    def pods(self, job=None):
        return [
            each
            for each in self.store.list(POD_KIND)
            if job is None or each["metadata"].get("labels", {}).get("job-name") == job
        ]

    def the_pod(self, job):
        (pod,) = self.pods(job)
        return pod

    def phase(self, job):
        """Of the Job's last pod; None while there is none."""
        return next((each["status"]["phase"] for each in reversed(self.pods(job))), None)

    def capacity(self, job):
        """Reason and sentence of why the pod of the Job waits."""
        for each in self.the_pod(job)["status"].get("conditions", ()):
            if each["type"] == "forebay.dev/Capacity":
                return each["reason"], each["message"]
        return None

    def node(self):
        return self.store.find(NODE_KIND, None, "runpod-virtual-node")

    def overcharge(self):
        """Seconds at $0.39/h that Forebay's ledger has beyond the bill, for each container.

        RunPod does not say when a container ended: the ledger has the latest that the listings allow.
        """
        rented = len(self.runpod.instances)
        return float((self.cloud.ledger() - self.runpod.bill()) / Fraction("0.39") * 3600 / rented) if rented else 0.0

    @property
    def is_idle(self):
        """Nothing runs at the provider, and every record is proven gone."""
        return not self.runpod.running and set(self.world.states().values()) <= {"Gone"}


@asynccontextmanager
async def offload(*others, machines=(), **options):
    async with clouds(runpod(**options), *others, machines=machines) as cloud:
        made = Offload(cloud)
        yield made
        assert made.runpod.violations == []
