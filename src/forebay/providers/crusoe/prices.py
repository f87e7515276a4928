"""Packaged prices: Crusoe's API has none.

List prices of one GPU for an hour on demand, as Crusoe published them (crusoe.ai/cloud/pricing, collected by gpuhunt).
A GPU that is not in the table is not offered, for its price is unknown.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from forebay.model.quantities import UsdPerHour

#: When the table was collected.
AS_OF: Final = "2026-11-16"


class PackagedPrice(NamedTuple):
    price: UsdPerHour
    #: As `model.gpu_models` knows it.
    model: str
    memory_gib: int
    resource: str = "nvidia.com/gpu"


#: By the API's name of the GPU.
PER_GPU: Final[Mapping[str, PackagedPrice]] = {
    "A100-PCIe-40GB": PackagedPrice(UsdPerHour("1.45"), "A100-40GB", 40),
    "A100-PCIe-80GB": PackagedPrice(UsdPerHour("1.65"), "A100-80GB", 80),
    "A100-SXM-80GB": PackagedPrice(UsdPerHour("1.95"), "A100-80GB", 80),
    "A40-PCIe-48GB": PackagedPrice(UsdPerHour("0.90"), "A40", 48),
    "H100-SXM-80GB": PackagedPrice(UsdPerHour("3.90"), "H100", 80),
    "H200-SXM-141GB": PackagedPrice(UsdPerHour("4.29"), "H200", 141),
    "L40S-48GB": PackagedPrice(UsdPerHour("1.00"), "L40S", 48),
    "MI300X-192GB": PackagedPrice(UsdPerHour("3.45"), "MI300X", 192, "amd.com/gpu"),
}
