"""Phrases that every sentence about a GPUInstance shares, so that one thing always has one name."""

from collections.abc import Sequence

from forebay.api.gpu_instance import GPUInstance
from forebay.model.sources import Delivery
from forebay.model.workloads import Pod


def describe(record: GPUInstance) -> str:
    """What the record stands for: `gpu-1`, `a100x2 in us-east at simulated`, `simulated instance i-1`."""
    offer = record.spec.offer
    if _owned(record):
        return offer.instance_type if offer is not None else record.metadata.name
    if offer is None:
        known = record.status.instance_id if record.status is not None else None
        return f"{record.spec.provider} instance {known or record.metadata.name}"
    where = f" in {offer.zone or offer.region}" if offer.zone or offer.region else ""
    return f"{offer.instance_type}{where} at {record.spec.provider}"


def launch_noun(record: GPUInstance) -> str:
    return "Power-on" if _owned(record) else "Launch"


def launch_phrase(record: GPUInstance) -> str:
    """`Powering on gpu-1`, `Launching a100x2 in us-east at simulated`."""
    return f"{'Powering on' if _owned(record) else 'Launching'} {describe(record)}"


def termination_noun(record: GPUInstance) -> str:
    return "Power-off" if _owned(record) else "Termination"


def termination_phrase(record: GPUInstance) -> str:
    """`Powering off gpu-1`, `Terminating a100x2 in us-east at simulated`."""
    return f"{'Powering off' if _owned(record) else 'Terminating'} {describe(record)}"


def terminating_it(record: GPUInstance) -> str:
    """`termination_phrase` where the sentence has named the machine already."""
    return "Powering it off" if _owned(record) else "Terminating it"


def terminated(record: GPUInstance) -> str:
    return "powered off" if _owned(record) else "terminated"


def for_pods(record: GPUInstance) -> str:
    """The pods that the record was created for: `team/a and 4 more`."""
    pods = record.spec.pods
    if not pods:
        return "no pod in particular"
    first = f"{pods[0].namespace}/{pods[0].name}"
    return first if len(pods) == 1 else f"{first} and {len(pods) - 1} more"


def pod_names(pods: Sequence[Pod], most: int = 3) -> str:
    """`team/a, team/b and 4 more`."""
    names = sorted(f"{pod.namespace}/{pod.name}" for pod in pods)
    shown, rest = names[:most], len(names) - most
    if rest > 0:
        return f"{', '.join(shown)} and {rest} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _owned(record: GPUInstance) -> bool:
    return record.spec.delivers is Delivery.POWER
