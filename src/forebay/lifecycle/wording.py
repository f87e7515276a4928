"""The same things are called by the same words in every sentence about a GPUInstance."""

from collections.abc import Sequence

from forebay.api.gpu_instance import GPUInstance
from forebay.model.sources import Delivery
from forebay.model.workloads import Pod


def describe(record: GPUInstance) -> str:
    offer = record.spec.offer
    if record.spec.delivers is Delivery.POWER:
        return f"Machine {offer.instance_type if offer is not None else record.metadata.name}"
    if offer is None:
        return f"Instance {record.status.instance_id if record.status is not None else record.metadata.name}"
    where = f" in {offer.zone or offer.region}" if offer.zone or offer.region else ""
    return f"{offer.instance_type}{where} of {record.spec.provider}"


def started(record: GPUInstance) -> str:
    """What is done to it so that it begins: `Machine gpu-1 is switched on`."""
    return f"{describe(record)} is {'switched on' if record.spec.delivers is Delivery.POWER else 'asked for'}"


def ended(record: GPUInstance) -> str:
    return f"{describe(record)} is {'switched off' if record.spec.delivers is Delivery.POWER else 'ended'}"


def for_pods(record: GPUInstance) -> str:
    pods = record.spec.pods
    if not pods:
        return "no pod in particular"
    first = f"{pods[0].namespace}/{pods[0].name}"
    return first if len(pods) == 1 else f"{first} and {len(pods) - 1} more"


def named(pods: Sequence[Pod], most: int = 3) -> str:
    """`team/a, team/b and 4 more`."""
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    shown, rest = names[:most], len(names) - most
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
