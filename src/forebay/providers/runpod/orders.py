"""What is ordered of RunPod, and what a pod that it shows is to Forebay."""

import math
import shlex
from typing import Final

from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.sources import Delivery, Instance, InstancePhase
from forebay.providers.base import LaunchRequest, Rejected
from forebay.providers.runpod.offers import NAME, cloud_of, gpu_id, hourly_price
from forebay.providers.runpod.wire import RunpodGpu, RunpodOrder, RunpodPod

#: Variables that every container has: the cluster, and the GPUInstance it was launched for. The name has both too.
_CLUSTER: Final = "FOREBAY_CLUSTER"
_INSTANCE: Final = "FOREBAY_INSTANCE"
_PHASES: Final = {
    "PROVISIONING": InstancePhase.STARTING,
    "STARTING": InstancePhase.STARTING,
    "RUNNING": InstancePhase.RUNNING,
    "EXITED": InstancePhase.FINISHED,
    "ERROR": InstancePhase.FAILED,
}
#: Ports that RunPod's proxy serves by HTTP where a pod does not say; as its users know it.
_HTTP_PORTS: Final = frozenset({80, 443, 3000, 5000, 8000, 8080, 8888, 9000})
#: A GiB is so many GB.
_GB_PER_GIB: Final = 2**30 / 10**9
#: The port of SSH: who asks for it gets RunPod's own access.
_SSH_PORT: Final = 22


def owner_of(pod: RunpodPod, cluster: str) -> str | None:
    """UID of the GPUInstance that the pod was launched for; None: the pod is not of this cluster."""
    variables = pod.variables
    if variables.get(_CLUSTER) == cluster and _INSTANCE in variables:
        return variables[_INSTANCE]
    _, separator, uid = (pod.name or "").partition(_mark(cluster))
    return uid if separator and uid else None


def _mark(cluster: str) -> str:
    """Part of the name of every container, before the UID of its GPUInstance."""
    return f".{NAME}.forebay.{cluster}."


def order_of(request: LaunchRequest) -> RunpodOrder:
    """Raises `Rejected` for what RunPod cannot run."""
    container = request.container
    if container is None:
        raise Rejected("RunPod runs containers only, and none is given. Use another provider for nodes.")
    secret = {name: value.reveal() for name, value in container.secret_env.items()}
    words = (*container.command, *container.args)
    return RunpodOrder(
        name=f"{request.name}{_mark(request.cluster)}{request.uid}",
        image=container.image,
        gpu=RunpodGpu(id=gpu_id(request.offer), count=request.offer.gpu_count),
        cloud=cloud_of(request.offer),
        env={**container.env, **secret, _CLUSTER: request.cluster, _INSTANCE: request.uid},
        args=shlex.join(words) if words else None,
        data_center_ids=(request.offer.region,) if request.offer.region is not None else (),
        ports=tuple(map(_port, container.ports)),
        disk=_disk(container),
        registry=container.registry_auth,
        template_id=container.template,
        start_ssh=any(each.port == _SSH_PORT for each in container.ports),
    )


def _port(port: ContainerPort) -> str:
    protocol = port.protocol.upper()
    if protocol not in {"TCP", "HTTP"}:
        raise Rejected(f"Port {port.port} is {port.protocol}, and RunPod serves HTTP and TCP only. Remove the port.")
    by_http = protocol == "HTTP" or (port.port in _HTTP_PORTS and not port.exactly)
    return f"{port.port}/{'http' if by_http else 'tcp'}"


def _disk(container: ContainerSpec) -> int | None:
    return None if container.disk_gib is None else math.ceil(container.disk_gib * _GB_PER_GIB)


def instance_of(pod: RunpodPod, owner: str, *, restarted: bool = False) -> Instance:
    """`restarted`: RunPod runs the container again, so it had exited."""
    phase, cost = _PHASES.get(pod.status or ""), pod.hourly_cost
    message = "RunPod: ERROR" if phase is InstancePhase.FAILED else None
    if restarted and phase is InstancePhase.RUNNING:
        phase, message = InstancePhase.FINISHED, "it had exited, and RunPod has started it again"
    return Instance(
        id=pod.id,
        # A status of a later API: it exists, and more is not known.
        phase=phase or InstancePhase.RUNNING,
        owner=owner,
        price=None if cost is None else hourly_price(cost),
        created=pod.created,
        billed=phase is not InstancePhase.FINISHED or cost is None or cost > 0,
        message=message,
        delivers=Delivery.CONTAINER,
    )
