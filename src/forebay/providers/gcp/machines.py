"""Machine types with GPUs: what is in them, which disks they boot from, and which prices they are the sum of.

Accelerator-optimized types (A2, A3, A4, G2, G4) come with their GPUs, and the API says which. GPUs of the older models
are attached to N1 machines of any size; a few pairs of the two are offered, as `n1-standard-8+2xT4`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from forebay.model.sources import InstancePhase
from forebay.providers.gcp.calls import ZoneList
from forebay.providers.gcp.wire import ComputeMachineType, last_part

#: What the status of an instance is for Forebay.
PHASES: Final = {
    "PROVISIONING": InstancePhase.STARTING,
    "STAGING": InstancePhase.STARTING,
    "PENDING": InstancePhase.STARTING,
    "RUNNING": InstancePhase.RUNNING,
    "REPAIRING": InstancePhase.FAILED,
    "PENDING_STOP": InstancePhase.ENDING,
    "STOPPING": InstancePhase.ENDING,
    "DEPROVISIONING": InstancePhase.ENDING,
    "SUSPENDING": InstancePhase.STOPPED,
    "SUSPENDED": InstancePhase.STOPPED,
    "STOPPED": InstancePhase.STOPPED,
    "TERMINATED": InstancePhase.STOPPED,
}

#: Filters of the two lists, RE2.
TYPES_FILTER: Final = 'name eq "((a2|a3|a4|g2|g4)-.*|n1-standard-(4|8|16|32|64))"'
ACCELERATORS_FILTER: Final = 'name eq "nvidia-tesla-(t4|v100|p100|p4)"'


class GpuKind(msgspec.Struct, frozen=True):
    """A GPU as Google names it, and how its price is described in the catalog."""

    #: As `model.gpu_models` knows it.
    model: str
    memory_gib: int
    #: Descriptions up to "running in", without the words for spot.
    priced_as: tuple[str, ...]


#: By accelerator type. Descriptions of the catalog, which differ between regions for the same GPU.
GPUS: Final[Mapping[str, GpuKind]] = {
    "nvidia-a100-80gb": GpuKind("A100-80GB", 80, ("Nvidia Tesla A100 80GB GPU", "A100 80GB GPU")),
    "nvidia-b200": GpuKind("B200", 180, ("A4 Nvidia B200 (1 gpu slice)", "Nvidia B200 (1 gpu slice)")),
    "nvidia-h100-80gb": GpuKind("H100", 80, ("Nvidia H100 80GB GPU", "H100 80GB GPU")),
    "nvidia-h100-mega-80gb": GpuKind(
        "H100-MEGA",
        80,
        ("Nvidia H100 80GB Mega GPU", "Nvidia H100 Mega 80GB GPU", "Nvidia H100 80GB Plus GPU", "H100 80GB Mega GPU"),
    ),
    "nvidia-h200-141gb": GpuKind("H200", 141, ("Nvidia H200 141GB GPU", "H200 141GB GPU")),
    "nvidia-l4": GpuKind("L4", 24, ("Nvidia L4 GPU", "L4 GPU")),
    "nvidia-rtx-pro-6000": GpuKind("RTXPRO6000", 96, ("RTX 6000 96GB", "RTX 6000 96GB GPU", "Nvidia RTX Pro 6000 GPU")),
    "nvidia-tesla-a100": GpuKind("A100-40GB", 40, ("Nvidia Tesla A100 GPU", "A100 GPU")),
    "nvidia-tesla-p100": GpuKind("P100", 16, ("Nvidia Tesla P100 GPU",)),
    "nvidia-tesla-p4": GpuKind("P4", 8, ("Nvidia Tesla P4 GPU",)),
    "nvidia-tesla-t4": GpuKind("T4", 16, ("Nvidia Tesla T4 GPU",)),
    "nvidia-tesla-v100": GpuKind("V100", 16, ("Nvidia Tesla V100 GPU",)),
}

#: N1 machine, accelerator type and number of GPUs: within Google's limits of cores and memory for each.
_ATTACHED: Final = (
    ("n1-standard-4", "nvidia-tesla-t4", 1),
    ("n1-standard-8", "nvidia-tesla-t4", 1),
    ("n1-standard-16", "nvidia-tesla-t4", 2),
    ("n1-standard-32", "nvidia-tesla-t4", 4),
    ("n1-standard-8", "nvidia-tesla-v100", 1),
    ("n1-standard-16", "nvidia-tesla-v100", 2),
    ("n1-standard-32", "nvidia-tesla-v100", 4),
    ("n1-standard-64", "nvidia-tesla-v100", 8),
    ("n1-standard-8", "nvidia-tesla-p100", 1),
    ("n1-standard-16", "nvidia-tesla-p100", 2),
    ("n1-standard-32", "nvidia-tesla-p100", 4),
    ("n1-standard-8", "nvidia-tesla-p4", 1),
    ("n1-standard-16", "nvidia-tesla-p4", 2),
    ("n1-standard-32", "nvidia-tesla-p4", 4),
)

#: How the catalog describes cores and memory of a series: "<this> Instance Core running in Americas".
_SERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "a2": ("A2",),
    "a3-megagpu": ("A3Plus", "A3 Mega"),
    "a3-ultragpu": ("A3Ultra", "A3 Ultra"),
    "a3": ("A3",),
    "a4": ("A4",),
    "g2": ("G2",),
    "g4": ("G4",),
    "n1": ("N1 Predefined",),
}
SERIES_NAMES: Final = frozenset(name for names in _SERIES.values() for name in names)
#: These series boot from Hyperdisk only.
_HYPERDISK: Final = ("a3-ultragpu", "a4", "g4")


class GpuMachine(msgspec.Struct, frozen=True, kw_only=True):
    """One type of machine with GPUs in one zone."""

    #: As offers name it.
    name: str
    machine_type: str
    zone: str
    cores: int
    memory_mib: int
    gpu: GpuKind
    gpu_count: int
    arm: bool = False

    @property
    def region(self) -> str:
        return self.zone.rpartition("-")[0]

    @property
    def series(self) -> tuple[str, ...]:
        return _SERIES[_series_key(self.machine_type)]


class Ordered(msgspec.Struct, frozen=True):
    """What to ask for, by the name of an offer."""

    machine_type: str
    #: Accelerator type and number, where the GPUs are attached and not part of the type.
    accelerator: tuple[str, int] | None
    disk_type: str


def machines(types: Iterable[ZoneList], accelerators: Iterable[ZoneList]) -> Iterator[GpuMachine]:
    """Every machine with GPUs that the lists allow. GPUs that Forebay does not know are left out."""
    plain: dict[tuple[str, str], ComputeMachineType] = {}
    for zone in types:
        for each in zone.listed.machine_types:
            if _is_gone(each.deprecated):
                continue
            if each.name.startswith("n1-"):
                plain[zone.zone, each.name] = each
            elif len(each.accelerators) == 1 and (kind := each.accelerators[0]).guest_accelerator_type in GPUS:
                gpu = GPUS[kind.guest_accelerator_type]
                yield _machine(each, each.name, gpu, kind.guest_accelerator_count)
    for zone in accelerators:
        there = {each.name for each in zone.listed.accelerator_types if not _is_gone(each.deprecated)}
        for machine_type, accelerator, count in _ATTACHED:
            found = plain.get((zone.zone, machine_type))
            if found is not None and accelerator in there:
                gpu = GPUS[accelerator]
                yield _machine(found, attached_name(machine_type, count, gpu), gpu, count)


def attached_name(machine_type: str, count: int, gpu: GpuKind) -> str:
    """Name of the offer of a machine with GPUs attached."""
    return f"{machine_type}+{count}x{gpu.model}"


def machine_of(found: ComputeMachineType, attached: Sequence[tuple[str, int]]) -> GpuMachine | None:
    """The machine of a type with these GPUs attached, by accelerator type; None for GPUs or series without a price."""
    own = [(each.guest_accelerator_type, each.guest_accelerator_count) for each in found.accelerators]
    gpus = own or [*attached]
    # Cores and memory of custom types have prices of their own.
    known = _series_key(found.name) in _SERIES and "custom" not in found.name
    if len(gpus) != 1 or gpus[0][0] not in GPUS or not known:
        return None
    kind, count = GPUS[gpus[0][0]], gpus[0][1]
    return _machine(found, found.name if own else attached_name(found.name, count, kind), kind, count)


def ordered(instance_type: str) -> Ordered:
    machine_type, plus, attached = instance_type.partition("+")
    disk = "hyperdisk-balanced" if machine_type.startswith(_HYPERDISK) else "pd-balanced"
    if not plus:
        return Ordered(machine_type, None, disk)
    count, _, model = attached.partition("x")
    accelerator = next((name for name, kind in GPUS.items() if kind.model == model), model)
    return Ordered(machine_type, (accelerator, int(count) if count.isdigit() else 1), disk)


def _machine(found: ComputeMachineType, name: str, gpu: GpuKind, count: int) -> GpuMachine:
    return GpuMachine(
        name=name,
        machine_type=found.name,
        zone=last_part(found.zone),
        cores=found.guest_cpus,
        memory_mib=found.memory_mb,
        gpu=gpu,
        gpu_count=count,
        arm=found.architecture == "ARM64",
    )


def _series_key(machine_type: str) -> str:
    return next((key for key in _SERIES if machine_type.startswith(f"{key}-")), machine_type.partition("-")[0])


def _is_gone(deprecated: Mapping[str, str] | None) -> bool:
    return deprecated is not None and deprecated.get("state") in {"OBSOLETE", "DELETED"}
