"""Hooks for msgspec that save values of this room and read them back exactly."""

from typing import Any

from forebay.model.quantities import GpuHours, Gpus, Quantity, Resources, Usd, UsdPerHour


def enc_hook(value: Any) -> Any:
    match value:
        case Resources():
            return dict(value)
        case Usd() | UsdPerHour() | GpuHours():
            return value.exact()
        case Gpus():
            return int(value)
        case Quantity():
            return str(value)
        case _:
            raise NotImplementedError(f"{type(value).__name__} has no stored form")


def dec_hook(kind: type, stored: Any) -> Any:
    if kind is Resources or kind is Gpus or kind is UsdPerHour:
        return kind(stored)
    if kind is Usd or kind is GpuHours:
        return kind.from_exact(stored)
    if kind is Quantity:
        return Quantity.parse(stored)
    raise NotImplementedError(f"{kind.__name__} has no stored form")
