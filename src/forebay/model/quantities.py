"""Amounts of resources, GPU time and money: one import for all unit types."""

from collections.abc import Collection, ItemsView, Iterator, Mapping
from typing import Final

from forebay.model.notation import Format, InvalidQuantity, Quantity
from forebay.model.units import GpuHours, Gpus, Usd, UsdPerHour

__all__ = ["Format", "GpuHours", "Gpus", "InvalidQuantity", "Quantity", "Resources", "Usd", "UsdPerHour"]

CPU: Final = "cpu"
_INT64_MAX: Final = 2**63 - 1
#: A Go `int64` holds any number of this many digits; up to this exponent apimachinery multiplies it without a check.
_INT64_DIGITS: Final = 18
_LARGEST_MULTIPLIED: Final = 9
GPU_SUFFIX: Final = "/gpu"
NVIDIA_GPU: Final = "nvidia.com/gpu"
#: Slices of a GPU are resources of their own, by size.
MIG_PREFIX: Final = "nvidia.com/mig-"


class Resources(Mapping[str, int]):
    """Amounts by resource name, in the scheduler's integers: cpu in millicores, everything else in whole units.

    A resource of which there is none is not listed, so that equal amounts are equal values. Differences may be
    negative: that much is over-committed.
    """

    __slots__ = ("_amounts", "_gpus", "_hash")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self._amounts = {name: amount for name, amount in amounts.items() if amount} if amounts else {}
        self._hash: int | None = None
        self._gpus: Gpus | None = None

    @classmethod
    def parse(cls, quantities: Mapping[str, str | int]) -> "Resources":
        """Resources of Kubernetes quantities, rounded up as the scheduler does."""
        return cls.from_nano({name: Quantity.parse(quantity).nano for name, quantity in quantities.items()})

    @classmethod
    def from_nano(cls, amounts: Mapping[str, int]) -> "Resources":
        """Resources of exact billionths, rounded up as the scheduler does: once, after all additions."""
        rounded = {}
        for name, nano in amounts.items():
            quantity = Quantity(nano)
            amount = quantity.milli if name == CPU else quantity.value
            rounded[name] = amount if -_INT64_MAX <= amount <= _INT64_MAX else _overflowed(amount)
        return cls(rounded)

    def __getitem__(self, name: str) -> int:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def items(self) -> ItemsView[str, int]:
        return self._amounts.items()

    def amount(self, name: str) -> int:
        """Amount of the resource; 0 where there is none."""
        return self._amounts.get(name, 0)

    def gpus(self, names: Collection[str] | None = None) -> Gpus:
        """GPUs, counted in the resources `names`; by default in every vendor's `<vendor>/gpu`."""
        if names is None:
            # Needed at every change of a pod, and shared by all pods of a shape: counted once.
            if self._gpus is None:
                self._gpus = Gpus(sum(amount for name, amount in self._amounts.items() if name.endswith(GPU_SUFFIX)))
            return self._gpus
        return Gpus(sum(self._amounts.get(name, 0) for name in names))

    def any_gpu(self, names: Collection[str] | None = None) -> bool:
        """Whether there is any GPU, as `gpus` counts them, or a slice of one (`nvidia.com/mig-1g.10gb`)."""
        if int(self.gpus(names)) > 0:
            return True
        if names is not None and NVIDIA_GPU not in names:
            return False
        return any(name.startswith(MIG_PREFIX) and amount > 0 for name, amount in self._amounts.items())

    def __add__(self, other: "Resources") -> "Resources":
        if not isinstance(other, Resources):
            return NotImplemented
        total = self._amounts.copy()
        for name, amount in other._amounts.items():
            total[name] = total.get(name, 0) + amount
        return Resources(total)

    def __sub__(self, other: "Resources") -> "Resources":
        if not isinstance(other, Resources):
            return NotImplemented
        rest = self._amounts.copy()
        for name, amount in other._amounts.items():
            rest[name] = rest.get(name, 0) - amount
        return Resources(rest)

    def __mul__(self, times: int) -> "Resources":
        if type(times) is not int:
            return NotImplemented
        return Resources({name: amount * times for name, amount in self._amounts.items()})

    __rmul__ = __mul__

    def max(self, other: "Resources") -> "Resources":
        """The larger amount of each resource."""
        return Resources({name: max(self.amount(name), other.amount(name)) for name in self.keys() | other.keys()})

    def fits_within(self, free: "Resources") -> bool:
        """Whether `free` has enough of every resource listed here; others do not matter, even over-committed."""
        available = free._amounts  # noqa: SLF001 (of its own class; this is the innermost loop of every plan)
        for name, amount in self._amounts.items():  # noqa: SIM110 (a generator costs three times as much)
            if amount > available.get(name, 0):
                return False
        return True

    def short_of(self, free: "Resources") -> list[str]:
        """Names of the resources of which `free` has too little, sorted."""
        return sorted(name for name, amount in self._amounts.items() if amount > free.amount(name))

    def __eq__(self, other: object) -> bool:
        return self._amounts == other._amounts if isinstance(other, Resources) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"Resources({self._amounts})"


def _overflowed(amount: int) -> int:
    """What scheduler and kubelet take an amount for that does not fit into their 64 bits; the API server admits it.

    They keep the low 64 bits (18446744073709551624 GPUs are 8), but read a short number with a large exponent as 0
    (1e30 GPUs are none). Less than nothing is nothing here.
    """
    number, exponent = amount, 0
    while number % 1000 == 0:
        number, exponent = number // 1000, exponent + 3
    if exponent > _LARGEST_MULTIPLIED and abs(number) < 10**_INT64_DIGITS:
        return 0
    low = amount % 2**64
    return low if low <= _INT64_MAX else 0
