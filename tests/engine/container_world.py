"""Pods that run in remote containers, and what stands in for the virtual node that they are bound to.

The orders and the pods' statuses are made here; binding, launching, watching and terminating is the operator's.
"""

import asyncio

import msgspec

from forebay.api.codec import decode
from forebay.api.gpu_instance import GPU_INSTANCE
from forebay.api.instance_order import ContainerRecord
from forebay.api.meta import Object
from forebay.api.names import INSTANCE_FINALIZER
from forebay.demand.planned_pods import live_containers
from forebay.embedded.api.kinds import POD_KIND
from forebay.embedded.controllers.nodes import register_node
from forebay.engine.apply.container_specs import ContainerNotReady, PodLost, container_spec
from forebay.kube.errors import Conflict, NotFound
from forebay.kube.resources import Resource
from forebay.kube.secrets import read_secret
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.secret_text import SecretText
from forebay.model.sources import Billing, Delivery, Offer, SourceKey
from forebay.providers.simulated.provider import CAPABILITIES
from forebay.reconcile.orders import ContainerOffer, OrderTerms, create_container
from forebay.simulate.market_goods import EXIT_CODE, RUN_TIME, Sku

VIRTUAL_NODE = "far-away"
_REORDER = 15.0


class BoundPod(Object, frozen=True):
    spec: dict = msgspec.field(default_factory=dict)


PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=BoundPod)


def container_sku(price="0.60", **fields):
    fields = {"instance_type": "a40.1x", "boot": 10, "delivers": Delivery.CONTAINER, **fields}
    return Sku(gpus=1, gpu_type="A40", hourly_price=price, **fields)


class VirtualNode:
    """Orders a container for each of its pods, and tells each pod how its container fares, as a kubelet does."""

    def __init__(self, cloud, *skus, market="alpha"):
        self.cloud = cloud
        self.store = cloud.store
        self.skus = skus
        self.market = market
        #: Phase in which each pod ended.
        self.ended = {}
        self._kind = self.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        self._runs = {}
        taint = {"key": "virtual-kubelet.io/provider", "value": "forebay", "effect": "NoSchedule"}
        register_node(self.store, VIRTUAL_NODE, allocatable={}, labels={"type": "virtual-kubelet"}, taints=[taint])
        # Not at once: the store is in the midst of a write.
        self.store.subscribe(
            self._kind,
            lambda change: asyncio.get_running_loop().call_soon(self._follow, change.new["metadata"]["name"]),
        )

    def pod(self, name, *, runs="60s", exit_code=0, anywhere=False, **metadata):
        self._runs[name] = {RUN_TIME: runs or "1000h", EXIT_CODE: str(exit_code)}
        container = {"name": "main", "image": "work:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        # No node outage evicts it, and unless it may run anywhere, kube-scheduler finds no node for it.
        spec = {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": {} if anywhere else {"nowhere": "yes"},
            "tolerations": [{"operator": "Exists"}],
        }
        made = self.store.create(
            POD_KIND, {"metadata": {"name": name, "namespace": "default", **metadata}, "spec": spec}
        )
        self.order(made)
        return made

    def order(self, pod):
        """The order for the pod, as a tick would place it: for the cheapest that has not failed for it."""
        records = [decode(GPU_INSTANCE, msgspec.json.encode(each)) for each in self.store.list(self._kind)]
        meta = pod["metadata"]
        if pod["spec"].get("nodeName") not in {None, VIRTUAL_NODE}:
            return
        if meta["uid"] in live_containers(records) or meta.get("deletionTimestamp") or meta["name"] in self.ended:
            return
        failed = sum(any(pod.uid == meta["uid"] for pod in each.spec.pods) for each in records)
        sku = sorted(self.skus, key=lambda each: float(each.hourly_price))[failed % len(self.skus)]
        offer = Offer(
            provider="simulated",
            instance_type=sku.instance_type,
            region=sku.region,
            gpu_type=sku.gpu_type,
            gpu_count=sku.gpus,
            price=UsdPerHour(sku.hourly_price),
            allocatable=Resources(),
            billing=Billing(),
            delivers=sku.delivers,
        )
        chosen = ContainerOffer(
            source=SourceKey(self.market, "simulated"), offer=offer, delivers=sku.delivers, sentence="The cheapest."
        )
        named = msgspec.convert({"namespace": "default", "name": meta["name"], "uid": meta["uid"]}, _Named)
        container = ContainerRecord(image="work:1", env=self._runs[meta["name"]], node_name=VIRTUAL_NODE)
        created = create_container(named, chosen, container, OrderTerms(capabilities=CAPABILITIES), records)
        metadata = {"name": created.name, "finalizers": [INSTANCE_FINALIZER]}
        spec = msgspec.to_builtins(created.spec)
        spec["billing"] = {"minimum": f"{sku.minimum}s", "increment": f"{sku.increment}s"}
        self.store.create(self._kind, {"metadata": metadata, "spec": spec})

    def _follow(self, name):
        record = self.store.find(self._kind, None, name)
        # Pods for which a node is launched have another kubelet.
        if record is None or not record["spec"].get("pods") or "container" not in record["spec"]:
            return
        status = record.get("status") or {}
        pod = self.store.find(POD_KIND, "default", record["spec"]["pods"][0]["name"])
        if pod is None or pod["metadata"]["uid"] != record["spec"]["pods"][0]["uid"]:
            return
        state = status.get("state")
        if state == "Running":
            self._phase(pod, "Running")
        elif state == "Finished":
            self._phase(pod, "Succeeded" if status.get("exitCode") == 0 else "Failed")
        elif state == "Gone" and status.get("reason") == "Vanished":
            self._phase(pod, "Failed")
        elif state == "Gone" and pod["metadata"].get("deletionTimestamp"):
            # Only now: the container is proven gone.
            self.store.delete(POD_KIND, "default", pod["metadata"]["name"], grace=0)
        elif state == "Gone":
            # The next one at once where there was none left; else when what has failed has cooled down.
            wait = 0 if status["reason"] == "NoCapacity" else _REORDER
            asyncio.get_running_loop().call_later(wait, self._order_again, pod["metadata"]["name"])

    def _order_again(self, name):
        if (pod := self.store.find(POD_KIND, "default", name)) is not None:
            self.order(pod)

    def _phase(self, pod, phase):
        if (pod.get("status") or {}).get("phase") in {phase, "Succeeded", "Failed"}:
            return
        if phase != "Running":
            self.ended[pod["metadata"]["name"]] = phase
        self.store.update(POD_KIND, {**pod, "status": {**pod["status"], "phase": phase}}, subresource="status")


class _Named(msgspec.Struct):
    namespace: str
    name: str
    uid: str


class BoundContainers:
    """Binds the pod of a container to the virtual node, and reads the Secret of the pod where it has one."""

    def __init__(self, client, _views=None, *, secret=None):
        self._client = client
        self._secret = secret

    async def resolve(self, record):
        pod = record.spec.pods[0]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": record.spec.container.node_name},
        }
        try:
            await self._client.post_subresource(PODS, pod.name, pod.namespace, "binding", body)
        except NotFound as error:
            raise PodLost(f"Pod {pod.namespace}/{pod.name} is gone.") from error
        except Conflict as error:
            seen = await self._client.get(PODS, pod.name, pod.namespace)
            if seen.spec.get("nodeName") != record.spec.container.node_name:
                raise PodLost(f"Pod {pod.namespace}/{pod.name} is bound to another node.") from error
        if self._secret is None:
            return container_spec(record)
        try:
            data = await read_secret(self._client, pod.namespace, self._secret)
        except NotFound as error:
            raise ContainerNotReady(f"Secret {pod.namespace}/{self._secret} does not exist.") from error
        return container_spec(record, {"TOKEN": SecretText(data["token"].decode())})
