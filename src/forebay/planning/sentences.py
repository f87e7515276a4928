"""Why this was chosen, and why that pod is left out: what, why, and what would help."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.model.fit import misfit
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.planning.market import Inventory, Item, admits
from forebay.planning.plan import Alternative, Candidate, Excluded
from forebay.planning.pod_groups import PodGroup

_NAMED = 3


def described(candidate: Candidate) -> str:
    """`L40S in us-east-1 at $0.86/h (aws g6e.xlarge)`."""
    offer = candidate.offer
    if offer.node_name is not None:
        price = f" at {offer.price}" if offer.price else ""
        return f"machine {offer.node_name} with {_gpus(offer.gpu_count)}{price}"
    model = offer.gpu_type or offer.instance_type
    count = f"{offer.gpu_count} x {model}" if offer.gpu_count > 1 else model
    where = offer.zone or offer.region
    spot = "spot " if offer.spot else ""
    kind = f"{offer.provider} {offer.instance_type}" if offer.instance_type != model else offer.provider
    return f"{spot}{count}{f' in {where}' if where else ''} at {offer.price} ({kind})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def chosen(item: Item, alternatives: Sequence[Alternative]) -> str:
    what = described(item.candidate)
    if not alternatives:
        return f"{what} was chosen: nothing else that can be had takes the same pods."
    other = alternatives[0]
    if item.candidate.weight > other.candidate.weight:
        why = f"same pods, and its pool has more weight ({item.candidate.weight} to {other.candidate.weight})"
    elif other.more.units < 0:
        why = "it leaves the other to pods that need it more, which is cheaper as a whole"
    elif not other.more:
        why = "same pods, same cost, and it is smaller or first by name"
    elif not item.expected:
        why = "same pods, and it costs nothing"
    else:
        whole = UsdPerHour.from_units(item.expected) + other.more
        why = f"same pods, {_percent(float(other.more / whole))} cheaper"
    return f"{what} was chosen over {described(other.candidate)}: {why}."


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if round(share, 2) else "less than 1 %"


class Considered(NamedTuple):
    """All that was looked at."""

    goods: Sequence[Item]
    #: As it is after everything was bought.
    shop: Inventory
    excluded: Sequence[Excluded]
    unknown: Sequence[str]


def left_out(kind: PodGroup, known: Considered) -> tuple[Reason, str]:
    """For a pod of the kind that nothing was bought for."""
    goods, excluded = known.goods, known.excluded
    suitable = [item for item in goods if _would_take(kind, item.candidate)]
    if suitable:
        return _scarce(suitable, known.shop)
    others = [each for each in excluded if _would_take(kind, each.candidate)]
    if others:
        return _barred_now(others)
    if known.unknown:
        return Reason.PROVIDER_UNAVAILABLE, (
            f"Nothing that is known takes it, and of some sources nothing is known now ({'; '.join(known.unknown)}): "
            "Forebay goes on asking them."
        )
    if not goods and not excluded:
        return Reason.NO_CAPACITY_CONFIGURED, (
            "No capacity is configured that could be obtained: create a GPUNodeClass and a GPUNodePool, or name "
            "machines of your own."
        )
    everything = [*(item.candidate for item in goods), *(each.candidate for each in excluded)]
    return Reason.NO_OFFER_FITS, _nothing_fits(kind, everything)


def _would_take(kind: PodGroup, candidate: Candidate) -> bool:
    return admits(kind, candidate) and kind.shape.requests.fits_within(candidate.node.allocatable)


def _scarce(suitable: Sequence[Item], shop: Inventory) -> tuple[Reason, str]:
    limits = [cap for item in suitable if shop.stock(item) > 0 and (cap := shop.forbids(item)) is not None]
    best = suitable[0]
    if limits:
        names = _list(dict.fromkeys(cap.name for cap in limits))
        return Reason.LIMIT_REACHED, (
            f"{described(best.candidate)} would take it, but {names} {'leaves' if ' and ' not in names else 'leave'} "
            "no room for it: raise the limit, or wait until capacity is given back."
        )
    return Reason.OUT_OF_STOCK, (
        f"{described(best.candidate)} would take it, but all that can be had of "
        f"{'it' if len(suitable) == 1 else f'the {len(suitable)} offers that would'} is taken: allow more regions, "
        "providers or GPU types, or add machines."
    )


def _barred_now(others: Sequence[Excluded]) -> tuple[Reason, str]:
    cheapest = min(others, key=lambda each: (each.candidate.effective_price.units, described(each.candidate)))
    more = len(others) - 1
    rest = f" The same or the like holds for {more} more." if more else ""
    return cheapest.reason, f"{described(cheapest.candidate)} would take it, but {cheapest.sentence}.{rest}"


def _nothing_fits(kind: PodGroup, candidates: Sequence[Candidate]) -> str:
    reasons: Counter[str] = Counter()
    for candidate in candidates:
        if candidate.namespaces is not None and kind.namespace not in candidate.namespaces:
            reasons[f"serve other namespaces than {kind.namespace}"] += 1
        elif kind.pin is not None and candidate.node.labels.get(kind.pin.key) != kind.pin.value:
            where = f"are not in {kind.pin.key}={kind.pin.value}" if kind.pin.value else f"have no {kind.pin.key}"
            reasons[where] += 1
        elif found := misfit(kind.shape, candidate.node, candidate.node.allocatable):
            reasons.update(reason.replace("node(s) ", "") for reason in found.reasons)
    counted = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda e: (-e[1], e[0])))
    hint = _hint(kind, candidates)
    return f"None of {len(candidates)} offers takes it ({counted}). {hint}"


def _hint(kind: PodGroup, candidates: Sequence[Candidate]) -> str:
    requests = kind.shape.requests
    admitting = [candidate for candidate in candidates if admits(kind, candidate)]
    if not admitting:
        return "Change what the pod selects or tolerates, or the labels, taints or requirements of a pool."
    largest = Resources()
    for candidate in admitting:
        largest = largest.max(candidate.node.allocatable)
    short = requests.short_of(largest)
    if short:
        named = _list(f"{requests.amount(name)} {name} (most: {largest.amount(name)})" for name in short[:_NAMED])
        return f"It asks for {named}: ask for less, or allow larger machines."
    return "No single offer has all that it asks for at once: ask for less of something, or allow larger machines."


def _list(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
