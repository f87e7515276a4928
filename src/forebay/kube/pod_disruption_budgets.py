"""Decoder of PodDisruptionBudgets."""

from typing import Final

import msgspec

from forebay.kube.decoders import ObjectDecoder
from forebay.kube.resources import Resource
from forebay.kube.shapes import WireSelector, label_selector
from forebay.kube.wire_metadata import WireMetadata
from forebay.model.pod_disruption_budgets import PodDisruptionBudget


class _Meta(WireMetadata):
    generation: int = 0


class _Spec(msgspec.Struct):
    selector: WireSelector | None = None


class _Status(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class _BudgetOnWire(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


def _budget(wire: _BudgetOnWire) -> PodDisruptionBudget:
    meta, status = wire.metadata, wire.status
    return PodDisruptionBudget(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=int(meta.resource_version),
        selector=label_selector(wire.spec.selector),
        # The eviction API refuses, too, until the budget is counted anew.
        allowed=status.disruptions_allowed if status.observed_generation >= meta.generation else 0,
    )


class PodDisruptionBudgetDecoder(ObjectDecoder[_BudgetOnWire, PodDisruptionBudget]):
    def __init__(self) -> None:
        super().__init__(_BudgetOnWire, _budget)


POD_DISRUPTION_BUDGETS: Final = Resource(
    group="policy",
    version="v1",
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    namespaced=True,
    type=PodDisruptionBudget,
    make_decoder=PodDisruptionBudgetDecoder,
)
