"""Owned machines as offers."""

from datetime import timedelta
from typing import Final

from forebay.api.machines import Machine
from forebay.api.names import GPU_TYPE_LABEL, PROVIDER_LABEL
from forebay.api.values import duration
from forebay.model.gpu_models import gpu_model, matching_models
from forebay.model.label_syntax import label_value
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.requirements import Taint
from forebay.model.sources import AMPLE, Offer

NAME: Final = "webhook"
DEFAULT_BOOT_DEADLINE: Final = timedelta(minutes=15)

#: Resources of every node. Amounts that the user does not state are learned from the node once it has registered.
_UNSTATED: Final = dict.fromkeys(("cpu", "memory", "ephemeral-storage", "pods"), AMPLE)
#: Labels of nearly every GPU node. Pods that select by them need not wait until the node has registered once.
_DEFAULT_LABELS: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}


def as_offer(machine: Machine) -> Offer:
    """The machine as an offer with a stock of one."""
    stated = {"cpu": machine.cpu, "memory": machine.memory}
    amounts = Resources.parse({name: amount for name, amount in stated.items() if amount is not None})
    return Offer(
        provider=NAME,
        instance_type=machine.name,
        gpu_type=machine.gpu_type,
        gpu_memory_gib=_memory(machine.gpu_type) if machine.gpu_type else None,
        gpu_count=machine.gpu_count,
        gpu_resource=machine.gpu_resource_name,
        price=UsdPerHour(machine.hourly_price),
        stock=1,
        allocatable=Resources({**_UNSTATED, **amounts, machine.gpu_resource_name: machine.gpu_count}),
        labels=_labels(machine),
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect.value) for taint in machine.taints),
        boot_deadline=duration(machine.boot_timeout) or DEFAULT_BOOT_DEADLINE,
        node_name=machine.name,
    )


def _memory(gpu_type: str) -> int | None:
    """Memory of one GPU in GiB, where the type names exactly one model."""
    model = gpu_model(gpu_type)
    certain = model is not None and len(model.memory_gib) == 1 and len(matching_models(gpu_type)) == 1
    return model.memory_gib[0] if model is not None and certain else None


def _labels(machine: Machine) -> dict[str, str]:
    model = {GPU_TYPE_LABEL: label_value(machine.gpu_type)} if machine.gpu_type else {}
    own = {"kubernetes.io/hostname": machine.name, PROVIDER_LABEL: NAME, **model}
    return {**_DEFAULT_LABELS, **machine.labels, **own}
