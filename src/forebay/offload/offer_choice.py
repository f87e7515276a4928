"""Which remote containers a pod may have: enough GPU memory, price under the cap, cheapest first."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from forebay.api.names import (
    CLOUD_TYPE_ANNOTATION,
    GPU_TYPE_LABEL,
    MAX_PRICE_ANNOTATION,
    PROVIDER_LABEL,
    REGION_LABEL,
    VIRTUAL_NODE,
)
from forebay.model.fit import selects
from forebay.model.gpu_models import canonical, matching_models
from forebay.model.nodes import Node
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import CooldownKey, Offer, OfferKey, Source, SourceKey, cooldown_keys
from forebay.model.workloads import Pod
from forebay.offload.marks import Marks, shortened
from forebay.offload.virtual_node import LABELS

#: The cloud of offers that name no zone of their own.
_USUAL_CLOUD: Final = "SECURE"
#: Names of one annotation that a sentence lists.
_MOST_NAMED: Final = 5


class ContainerChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One remote container that the pod may have."""

    source: SourceKey
    offer: Offer
    #: By which offers of several providers are compared: price x (1 + 0.1 x priority).
    effective_price: UsdPerHour
    #: Most that the Job may cost.
    most: UsdPerHour


class NoContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Why no offer will do: the reason that excludes the offers which come nearest."""

    reason: Reason
    sentence: str


#: From far to near: what excludes an offer, the last being easiest to mend.
_ORDER: Final = (
    Reason.NO_OFFER_FITS,
    Reason.NOT_ALLOWED,
    Reason.PRICE_UNUSUAL,
    Reason.PRICE_TOO_HIGH,
    Reason.OUT_OF_STOCK,
    Reason.COOLING_DOWN,
)


class Exclusions(NamedTuple):
    """Offers that no Job gets now."""

    #: What failed lately: until when it is not tried, and why.
    cooling: Mapping[CooldownKey, str] = {}
    #: What the pool or its class does not allow: reason, and a clause.
    refused: Mapping[OfferKey, tuple[Reason, str]] = {}


def container_choices(
    pod: Pod, marks: Marks, sources: Iterable[Source], max_gpu_price: UsdPerHour, excluded: Exclusions
) -> tuple[ContainerChoice, ...] | NoContainer:
    """All offers of containers for the pod, cheapest first: after a capacity error the next one is tried at once."""
    found: list[ContainerChoice] = []
    nearest: _Excluded | None = None
    for source in sources:
        for offer in source.offers or ():
            if not source.enabled or source.problem is not None or source.delivery_of(offer).has_node:
                continue
            why = _why_not(pod, marks, source, offer, max_gpu_price, excluded)
            if why is None:
                units = offer.price.units * (10 + source.priority) // 10
                found.append(
                    ContainerChoice(
                        source=source.key,
                        offer=offer,
                        effective_price=UsdPerHour.from_units(units),
                        most=_price_cap(pod, marks, offer, max_gpu_price),
                    )
                )
            elif nearest is None or why.nearness > nearest.nearness:
                nearest = why
    if found:
        return tuple(sorted(found, key=lambda each: (each.effective_price.units, each.source, each.offer.key)))
    if nearest is None:
        sentence = "No provider of remote containers has an offer. Name one, such as runpod, in a GPUNodeClass."
        return NoContainer(reason=Reason.NO_CAPACITY_CONFIGURED, sentence=sentence)
    return NoContainer(reason=nearest.reason, sentence=nearest.sentence)


class _Excluded(NamedTuple):
    """Why an offer will not do. `closeness`: the less it lacks, the more."""

    reason: Reason
    sentence: str
    closeness: int = 0

    @property
    def nearness(self) -> tuple[int, int]:
        return _ORDER.index(self.reason), self.closeness


def _why_not(  # noqa: PLR0917 (what is compared)
    pod: Pod,
    marks: Marks,
    source: Source,
    offer: Offer,
    max_gpu_price: UsdPerHour,
    excluded: Exclusions,
) -> _Excluded | None:
    name = f"{offer.instance_type} of {offer.provider}"
    if not pod.shape.requests.fits_within(offer.allocatable):
        short = ", ".join(pod.shape.requests.short_of(offer.allocatable))
        return _Excluded(Reason.NO_OFFER_FITS, f"{name} has too little {short}.")
    if not selects(pod.shape, _as_node(offer, pod.created)):
        return _Excluded(Reason.NO_OFFER_FITS, f"The pod's node selector or affinity excludes {name}.")
    if (offer.gpu_memory_gib or 0) < marks.gpu_memory_gib:
        has, needs = offer.gpu_memory_gib or 0, marks.gpu_memory_gib
        return _Excluded(Reason.NOT_ALLOWED, f"{name} has {has} GiB a GPU, below {needs}.", has - needs)
    if marks.gpu_types and not _is_one_of(offer, marks.gpu_types):
        return _Excluded(
            Reason.NOT_ALLOWED, f"The Job asks for GPU type {_any_of(marks.gpu_types)}, which {name} is not."
        )
    if marks.data_centers and offer.region not in marks.data_centers:
        places = _any_of(marks.data_centers)
        return _Excluded(
            Reason.NOT_ALLOWED, f"The Job asks for data center {places}: name it in regions of the provider."
        )
    if (marks.cloud or _USUAL_CLOUD) != (offer.zone or _USUAL_CLOUD):
        return _Excluded(Reason.NOT_ALLOWED, _other_cloud(name, offer, marks))
    cap = _price_cap(pod, marks, offer, max_gpu_price)
    if offer.price > cap:
        knob = "--max-gpu-price" if marks.max_price is None else MAX_PRICE_ANNOTATION
        sentence = f"{name} costs {offer.price}, and the Job may cost {cap} ({knob})."
        return _Excluded(Reason.PRICE_TOO_HIGH, sentence, -offer.price.units)
    if offer.key in excluded.refused:
        # The Job would take it.
        reason, clause = excluded.refused[offer.key]
        closeness = 1 if reason is Reason.NOT_ALLOWED else -offer.price.units
        return _Excluded(reason, f"{name}: {clause}.", closeness)
    if offer.stock == 0:
        return _Excluded(Reason.OUT_OF_STOCK, f"{offer.provider} has no {offer.instance_type} now.")
    cooling = excluded.cooling
    told = next((cooling[key] for key in cooldown_keys(source.key, offer.key) if key in cooling), None)
    return None if told is None else _Excluded(Reason.COOLING_DOWN, f"{name} is cooling down {told}.")


def _price_cap(pod: Pod, marks: Marks, offer: Offer, max_gpu_price: UsdPerHour) -> UsdPerHour:
    """Most that the container of the pod may cost, by the GPUs that it requests."""
    return (marks.max_price or max_gpu_price) * max(int(pod.shape.gpus((offer.gpu_resource,))), 1)


def _other_cloud(name: str, offer: Offer, marks: Marks) -> str:
    where = offer.zone or _USUAL_CLOUD
    if marks.cloud is not None:
        return f"The Job asks for the {marks.cloud} cloud, and {name} is in the {where} cloud."
    return f"{name} is in the {where} cloud, for Jobs that ask for it ({CLOUD_TYPE_ANNOTATION}: {where})."


def _any_of(names: Sequence[str]) -> str:
    """Names that a user wrote, as far as a sentence takes them."""
    more = f" or {len(names) - _MOST_NAMED} others" if len(names) > _MOST_NAMED else ""
    return " or ".join(map(shortened, names[:_MOST_NAMED])) + more


def _is_one_of(offer: Offer, names: Iterable[str]) -> bool:
    """By the provider's own id, or by a model in any spelling."""
    plain = offer.instance_type.removeprefix(f"{offer.gpu_count}x ").lower()
    model = canonical(offer.gpu_type) if offer.gpu_type else None
    return any(plain == each.lower() or model in matching_models(each) for each in names)


def _as_node(offer: Offer, created: datetime) -> Node:
    """The virtual node as it would look with this offer alone."""
    labels = {**LABELS, **offer.labels, PROVIDER_LABEL: offer.provider}
    if offer.gpu_type:
        labels[GPU_TYPE_LABEL] = offer.gpu_type
    if offer.region:
        labels[REGION_LABEL] = offer.region
    return Node(
        name=VIRTUAL_NODE,
        uid="",
        resource_version=0,
        created=created,
        labels=labels,
        capacity=offer.allocatable,
        allocatable=offer.allocatable,
        ready=True,
    )
