"""GPU models: canonical name, vendor, memory, and the names that clouds use.

Memory is what the vendor advertises, in GiB. Names are compared without case, spaces, dashes and words such as "nvidia"
or "tesla", so that only real aliases are listed.
"""

import difflib
import re
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Final

import msgspec


class Vendor(StrEnum):
    NVIDIA = "nvidia"
    AMD = "amd"

    @property
    def resource(self) -> str:
        """Resource name by which pods request a GPU."""
        return f"{self.value}.com/gpu"


class GpuModel(msgspec.Struct, frozen=True):
    name: str
    vendor: Vendor
    #: Memory of one GPU. Several where one name is sold in several sizes; the most common first.
    memory_gib: tuple[int, ...]
    aliases: tuple[str, ...] = ()


def _nvidia(name: str, memory: int | tuple[int, ...], *aliases: str) -> GpuModel:
    return GpuModel(name, Vendor.NVIDIA, (memory,) if isinstance(memory, int) else memory, aliases)


def _amd(name: str, memory: int, *aliases: str) -> GpuModel:
    return GpuModel(name, Vendor.AMD, (memory,), aliases)


MODELS: Final = (
    _nvidia("A10", 24),
    _nvidia("A100-40GB", 40, "A100-PCIE-40GB", "A100-SXM4-40GB", "A100-40G", "ampere_a100", "gpu_1x_a100"),
    _nvidia(
        "A100-80GB",
        80,
        "A100-PCIE-80GB",
        "A100-SXM4-80GB",
        "A100-80GB-SXM",
        "A100-80G",
        "A100-80G-PCIe",
        "A100-80G-PCIe-NVLink",
        "A100 PCIe",
        "A100 SXM",
    ),
    _nvidia("A10G", 24),
    _nvidia("A16", 16),
    _nvidia("A30", 24),
    _nvidia("A40", 48),
    _nvidia("A4000", 16, "RTXA4000"),
    _nvidia("A4500", 20, "RTXA4500"),
    _nvidia("A5000", 24, "RTXA5000"),
    _nvidia("A6000", 48, "RTXA6000"),
    _nvidia("B200", 180, "B200-SXM"),
    _nvidia("B300", 270, "B300-SXM"),
    _nvidia("GB200", 192),
    _nvidia("GH200", 96, "GH200-480GB"),
    _nvidia(
        "H100",
        80,
        "H100-80GB",
        "H100-80GB-HBM3",
        "H100-SXM",
        "H100-SXM5",
        "H100-PCIe",
        "H100-MEGA",
        "H100-NVLINK",
        "H100-80G-PCIe",
        "H100-80G-PCIe-NVLink",
        "H100-80G-SXM5",
    ),
    _nvidia("H100-NVL", 94),
    _nvidia("H200", 141, "H200-SXM", "H200-NVL", "H200-141GB"),
    _nvidia("K80", 12),
    # AWS sells eighths, quarters and halves of it under the same name.
    _nvidia("L4", 24),
    _nvidia("L40", 48),
    _nvidia("L40S", 48),
    _nvidia("M4000", 8, "QuadroM4000"),
    _nvidia("M60", 8),
    _nvidia("P100", 16, "P100-PCIE-16GB"),
    _nvidia("P4", 8),
    _nvidia("P4000", 8, "QuadroP4000"),
    _nvidia("P5000", 16, "QuadroP5000"),
    _nvidia("P6000", 24, "QuadroP6000"),
    _nvidia("RTX2000-Ada", 16),
    _nvidia("RTX3060", (12, 8)),
    _nvidia("RTX3070", 8),
    _nvidia("RTX3080", (10, 12)),
    _nvidia("RTX3080Ti", 12),
    _nvidia("RTX3090", 24),
    _nvidia("RTX3090Ti", 24),
    _nvidia("RTX4000-Ada", 20, "RTX4000-SFF-Ada"),
    _nvidia("RTX4060", (8, 16)),
    _nvidia("RTX4060Ti", (8, 16)),
    _nvidia("RTX4070", (12, 16)),
    _nvidia("RTX4070Ti", (12, 16)),
    _nvidia("RTX4080", 16),
    _nvidia("RTX4090", 24),
    _nvidia("RTX4090D", 24),
    _nvidia("RTX5000-Ada", 32),
    _nvidia("RTX5060", 8),
    _nvidia("RTX5060Ti", (16, 8)),
    _nvidia("RTX5070", 12),
    _nvidia("RTX5070Ti", 16),
    _nvidia("RTX5080", 16),
    _nvidia("RTX5090", 32),
    _nvidia("RTX5880-Ada", 48),
    _nvidia("RTX6000", 24, "QuadroRTX6000"),
    _nvidia("RTX6000-Ada", 48, "RTX6000Ada"),
    _nvidia("RTXPRO4000", 24, "RTX-PRO-4000-Blackwell"),
    _nvidia("RTXPRO4500", 32, "RTXPRO4500-SE", "RTX-PRO-4500-Blackwell"),
    _nvidia("RTXPRO5000", 48, "RTX-PRO-5000-Blackwell"),
    _nvidia(
        "RTXPRO6000",
        96,
        "RTX-PRO-6000-96GB",
        "RTX-PRO-Server-6000",
        "RTX-PRO-6000-CC",
        "RTXPRO6000-WK",
        "RTXPRO6000WS",
        "RTX-PRO-6000-Blackwell",
        "RTX-PRO-6000-Blackwell-Server-Edition",
        "RTX-PRO-6000-Blackwell-Workstation-Edition",
    ),
    # Slices of one card, sold as machines of their own.
    _nvidia("RTXPRO6000-MIG-24GB", 24, "PRO-6000-MIG-24GB"),
    _nvidia("RTXPRO6000-MIG-48GB", 48, "PRO-6000-MIG-48GB"),
    _nvidia("T4", 16),
    _nvidia("T4g", 16),
    _nvidia("V100", 16, "V100-SXM2-16GB", "V100-16GB", "V100-PCIE-16GB"),
    _nvidia("V100-32GB", 32, "V100-SXM2-32GB", "V100-SXM3-32GB", "V100-PCIE-32GB"),
    _amd("MI25", 16, "Radeon-MI25"),
    _amd("MI250", 128),
    _amd("MI250X", 128),
    _amd("MI300X", 192, "MI300X-OAM"),
    _amd("MI325X", 256),
    _amd("MI355X", 288),
    _amd("V520", 8, "Radeon-Pro-V520"),
)

#: Names that clouds use for two models of different memory.
_AMBIGUOUS: Final = {
    "a100": ("A100-40GB", "A100-80GB"),
    "v100": ("V100", "V100-32GB"),
    "rtx6000": ("RTX6000", "RTX6000-Ada", "RTXPRO6000"),
}
_NOISE: Final = re.compile(r"nvidia|geforce|tesla|quadro(?=rtx)|generation|amd|instinct|[^a-z0-9]")


def _plain(name: str) -> str:
    return _NOISE.sub("", name.lower())


@cache
def _by_plain_name() -> dict[str, GpuModel]:
    return {_plain(name): model for model in MODELS for name in (model.name, *model.aliases)}


@cache
def gpu_model(name: str, memory_gib: float | None = None) -> GpuModel | None:
    """The model that `name` means, or None. Memory decides where a name means two models; without it, the smaller."""
    plain = _plain(name)
    known = _by_plain_name()
    several = _AMBIGUOUS.get(plain)
    if several is not None:
        models = [known[_plain(each)] for each in several]
        if memory_gib is None:
            return models[0]
        return min(models, key=lambda model: abs(model.memory_gib[0] - memory_gib))
    return known.get(plain)


def canonical(name: str, memory_gib: float | None = None) -> str:
    """Canonical name of the model; an unknown name is returned unchanged."""
    model = gpu_model(name, memory_gib)
    return name if model is None else model.name


def unknown_models(names: Iterable[str]) -> str:
    """For a sentence: which of the names are no known model, and the nearest that are; "" where all are known."""
    return "".join(
        f'; "{name}" is not a known GPU model{nearest_models(name)}' for name in names if not gpu_model(name)
    )


def nearest_models(name: str, others: Iterable[str] = ()) -> str:
    """For a sentence: `: did you mean H100 or H200?`, from the models and `others`; "" where none is near."""
    by_plain = {_plain(each): each for each in (*others, *(model.name for model in MODELS))}
    near = difflib.get_close_matches(_plain(name), sorted(by_plain), n=3, cutoff=0.5)
    return f": did you mean {' or '.join(by_plain[each] for each in near)}?" if near else ""


def matching_models(name: str) -> frozenset[str]:
    """Canonical names of all models that a user may mean by `name`: `A100` means both sizes."""
    several = _AMBIGUOUS.get(_plain(name))
    return frozenset(several) if several is not None else frozenset({canonical(name)})
