"""Containers of pods, read from the pods themselves: the record holds neither their environment nor a secret.

A pod is read, and what it needs, before it is bound: what cannot be carried, or is missing, is said while the pod can
still run on a node. Then it is bound, and only then is its container launched.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance
from forebay.api.meta import Object
from forebay.api.names import VIRTUAL_NODE
from forebay.api.parts import PodRef
from forebay.engine.apply.container_specs import ContainerNotReady, PodLost
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.errors import Conflict, Forbidden, Invalid, NotFound
from forebay.kube.resources import Resource
from forebay.kube.secrets import read_secret
from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.workloads import Phase
from forebay.offload.binding import binding, pod_marks, without_time_limits
from forebay.offload.environment import Holder, HolderKind
from forebay.offload.exit_code import nonce_of
from forebay.offload.pod_manifest import PodManifest, PodMetadata
from forebay.offload.translation import needed_holders, obstacles, translate

_ENDED: Final = frozenset(each.value for each in Phase if each.ended)


class WholePod(Object, frozen=True):
    """A pod with all of its spec."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class HeldConfigMap(Object, frozen=True):
    """A ConfigMap as far as variables can have it: what is in `binaryData` is for volumes only."""

    data: dict[str, str] = msgspec.field(default_factory=dict)


_CONFIG_MAPS: Final = Resource(
    group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=HeldConfigMap
)
WHOLE_PODS: Final = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=WholePod)


def manifest_of(pod: WholePod, node: str = VIRTUAL_NODE) -> PodManifest:
    """The pod as it is translated, bound to that node."""
    return PodManifest(
        metadata=PodMetadata(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace or "",
            uid=pod.uid,
            labels=pod.metadata.labels or {},
            annotations=pod.metadata.annotations or {},
        ),
        spec={**pod.spec, "nodeName": node},
    )


class PodContainers:
    """`ContainerSpecs` of pods that are bound to the virtual node."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def resolve(self, record: GPUInstance) -> ContainerSpec:
        ref = record.spec.pods[0]
        node = (record.spec.container.node_name if record.spec.container is not None else None) or VIRTUAL_NODE
        pod = await self._read(ref)
        if pod.spec.get("nodeName") not in {None, "", node}:
            raise PodLost(f"Pod {ref.namespace}/{ref.name} is bound to node {pod.spec['nodeName']}.")
        container = await self._container(record, pod, node)
        if not pod.spec.get("nodeName"):
            await self._bind(ref, node)
        await self._mark(ref)
        return container

    async def _read(self, ref: PodRef) -> WholePod:
        try:
            pod = await self._client.get(WHOLE_PODS, ref.name, ref.namespace)
        except NotFound:
            raise PodLost(f"Pod {ref.namespace}/{ref.name} is gone.") from None
        if pod.uid != ref.uid or pod.metadata.deletion_timestamp is not None or pod.status.get("phase") in _ENDED:
            raise PodLost(f"Pod {ref.namespace}/{ref.name} has ended, is being deleted, or is another one by now.")
        return pod

    async def _container(self, record: GPUInstance, pod: WholePod, node: str) -> ContainerSpec:
        """Raises `ContainerNotReady` with everything that must be corrected."""
        manifest = manifest_of(pod, node)
        problems = obstacles(manifest)
        if problems:
            raise ContainerNotReady(f"The pod cannot run remotely. {' '.join(problems)}")
        namespace = pod.metadata.namespace or ""
        held = {each: await self._held(namespace, each) for each in sorted(needed_holders(manifest))}
        registry_auth = record.spec.container.registry_auth if record.spec.container is not None else None
        found = translate(manifest, held, nonce_of(record.uid), registry_auth=registry_auth)
        if found.container is None:
            raise ContainerNotReady(f"The pod cannot run remotely. {' '.join(found.problems)}")
        recorded = record.spec.container.ports if record.spec.container is not None else ()
        extra = tuple(ContainerPort(port=each.port, protocol=each.protocol, exactly=True) for each in recorded)
        template = record.spec.container.template if record.spec.container is not None else None
        marked = {each.port for each in extra}
        ports = tuple(dict.fromkeys((*(each for each in found.container.ports if each.port not in marked), *extra)))
        return replace(found.container, ports=ports, template=template)

    async def _held(self, namespace: str, holder: Holder) -> Mapping[str, bytes] | None:
        try:
            if holder.kind is HolderKind.SECRET:
                return await read_secret(self._client, namespace, holder.name)
            found = await self._client.get(_CONFIG_MAPS, holder.name, namespace)
        except NotFound:
            return None
        except Forbidden:
            raise ContainerNotReady(
                f"Forebay may not read {holder.kind} {namespace}/{holder.name}, which the pod needs: grant its "
                "ServiceAccount get on it."
            ) from None
        return {key: value.encode() for key, value in found.data.items()}

    async def _bind(self, ref: PodRef, node: str) -> None:
        body = binding(ref.namespace, ref.name, ref.uid, node)
        try:
            await self._client.post_subresource(WHOLE_PODS, ref.name, ref.namespace, "binding", body)
        except NotFound:
            raise PodLost(f"Pod {ref.namespace}/{ref.name} is gone.") from None
        except Conflict:
            # Bound by the scheduler, or by an earlier call of our own whose answer was lost; or gated meanwhile.
            seen = await self._read(ref)
            if not seen.spec.get("nodeName"):
                raise ContainerNotReady(f"Pod {ref.namespace}/{ref.name} may not be bound now.") from None
            if seen.spec["nodeName"] != node:
                raise PodLost(f"Pod {ref.namespace}/{ref.name} is bound to node {seen.spec['nodeName']}.") from None

    async def _mark(self, ref: PodRef) -> None:
        """Marks the pod, and makes its tolerations last: no length of downtime may evict it."""
        pod = await self._read(ref)
        marks = pod_marks()["metadata"]
        labels, annotations = pod.metadata.labels, pod.metadata.annotations
        if not (marks["labels"].items() <= labels.items() and marks["annotations"].items() <= annotations.items()):
            patch = writes.merge_patch({"metadata": {"uid": ref.uid, **marks}})
            await self._client.patch(WHOLE_PODS, ref.name, patch, ref.namespace)
        limits = without_time_limits(pod.spec.get("tolerations", ()))
        if limits:
            try:
                await self._client.patch(WHOLE_PODS, ref.name, writes.json_patch(limits), ref.namespace)
            except Invalid as error:
                raise ContainerNotReady(f"Tolerations of {ref.namespace}/{ref.name} changed meanwhile.") from error
