"""Machine types with their list prices, because Paperspace's API has neither prices nor sizes of types.

After the public price list (paperspace.com/pricing) as the SkyPilot catalog recorded it; unchanged there since.
"""

from datetime import date
from typing import Final, NamedTuple

AS_OF: Final = date(2024, 9, 25)


class ListedType(NamedTuple):
    name: str
    gpu: str
    gpus: int
    gpu_memory_gib: int
    vcpus: int
    memory_gib: int
    #: Dollars an hour for the running machine, without its disk.
    price: str


TYPES: Final = (
    ListedType("GPU+", "M4000", 1, 8, 8, 32, "0.45"),
    ListedType("P4000", "P4000", 1, 8, 8, 32, "0.51"),
    ListedType("P4000x2", "P4000", 2, 8, 16, 64, "1.02"),
    ListedType("A4000", "A4000", 1, 16, 8, 32, "0.76"),
    ListedType("A4000x2", "A4000", 2, 16, 16, 92, "1.52"),
    ListedType("A4000x4", "A4000", 4, 16, 32, 193, "3.04"),
    ListedType("V100", "V100", 1, 16, 8, 32, "2.29"),
    ListedType("V100-32G", "V100-32GB", 1, 32, 8, 32, "2.30"),
    ListedType("V100-32Gx2", "V100-32GB", 2, 32, 16, 64, "4.60"),
    ListedType("V100-32Gx4", "V100-32GB", 4, 32, 32, 128, "9.20"),
    ListedType("A100-80G", "A100-80GB", 1, 80, 12, 80, "3.18"),
    ListedType("A100-80Gx8", "A100-80GB", 8, 80, 96, 640, "25.44"),
    ListedType("H100", "H100", 1, 80, 15, 80, "5.95"),
    ListedType("H100x8", "H100", 8, 80, 128, 640, "47.60"),
)

#: Regions by their short names, with the names that the API takes.
REGIONS: Final = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
#: List prices by the name of the type.
PRICES: Final = {each.name: each.price for each in TYPES}
