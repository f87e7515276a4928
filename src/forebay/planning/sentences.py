"""Sentences of a plan: why a candidate was chosen, and why a pod is left out and what would help."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from forebay.model.fit import misfit
from forebay.model.gpu_models import gpu_model, nearest_models
from forebay.model.quantities import CPU, Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelOperator
from forebay.planning.candidate_groups import (
    ARCHITECTURE,
    Inventory,
    PricedCandidate,
    admits,
    limit_amounts,
    wrong_architecture,
)
from forebay.planning.plan import Alternative, Candidate, Excluded
from forebay.planning.pod_groups import PodGroup
from forebay.planning.pool_policies import GPU_TYPE_KEYS

_NAMED = 3
_BYTES = ("memory", "ephemeral-storage")


def described(candidate: Candidate) -> str:
    """The candidate in a sentence: `L40S in us-east-1 at $0.86/h (aws g6e.xlarge)` or `rack-8 (8 GPUs)`."""
    offer = candidate.offer
    if offer.node_name is not None:
        price = f" at {offer.price}" if offer.price else ""
        return f"{offer.node_name} ({_gpus(offer.gpu_count)}){price}"
    model = offer.gpu_type or offer.instance_type
    count = f"{offer.gpu_count} x {model}" if offer.gpu_count > 1 else model
    where = offer.zone or offer.region
    spot = "spot " if offer.spot else ""
    instance = f"{offer.provider} {offer.instance_type}" if offer.instance_type != model else offer.provider
    dated = f", list price of {offer.price_as_of}" if offer.price_as_of is not None else ""
    return f"{spot}{count}{f' in {where}' if where else ''} at {offer.price} ({instance}{dated})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _offers(count: int) -> str:
    return f"{count} other offer" if count == 1 else f"{count} other offers"


def chosen(priced: PricedCandidate, alternatives: Sequence[Alternative]) -> str:
    warning = priced.candidate.warning
    return _chosen(priced, alternatives) + (f" Beware: {warning}." if warning is not None else "")


def kind_of_offer(candidate: Candidate) -> tuple[object, ...]:
    """Alternatives are different by this: the same type in another region is none."""
    offer = candidate.offer
    return offer.provider, offer.instance_type, offer.spot


def _chosen(priced: PricedCandidate, alternatives: Sequence[Alternative]) -> str:
    what = described(priced.candidate)
    if not alternatives:
        return f"{what} was chosen: no other available offer fits the same pods."
    other = alternatives[0]
    if priced.candidate.weight > other.candidate.weight:
        why = f"same pods, and its pool has more weight ({priced.candidate.weight} to {other.candidate.weight})"
    elif other.more.units < 0:
        why = "the whole plan is cheaper when the other serves pods that need it more"
    elif not other.more:
        why = "same pods, same cost, and smaller or first by name"
    elif not priced.expected:
        why = "same pods, at no cost"
    else:
        whole = UsdPerHour.from_units(priced.expected) + other.more
        why = f"same pods, {_percent(float(other.more / whole))} cheaper"
    return f"{what} was chosen over {described(other.candidate)}: {why}."


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %") if round(share, 2) else "less than 1 %"


class Considered(NamedTuple):
    """The candidates and sources of a plan, as sentences need them."""

    priced_candidates: Sequence[PricedCandidate]
    #: Stock and limits left after all purchases.
    inventory: Inventory
    excluded: Sequence[Excluded]
    unknown: Sequence[str]


def left_out(group: PodGroup, known: Considered) -> tuple[Reason, str]:
    """Reason and sentence for a pod of the group that no capacity was bought for."""
    priced_candidates, excluded = known.priced_candidates, known.excluded
    suitable = [priced for priced in priced_candidates if _would_take(group, priced.candidate)]
    if suitable:
        return _scarce(group, suitable, known.inventory)
    others = [each for each in excluded if _would_take(group, each.candidate)]
    if others:
        return _not_available(others)
    if known.unknown:
        return Reason.PROVIDER_UNAVAILABLE, (
            f"No known offer fits the pod, and some providers have not answered ({'; '.join(known.unknown)}): Forebay "
            "keeps asking them."
        )
    if not priced_candidates and not excluded:
        return Reason.NO_CAPACITY_CONFIGURED, (
            "No machines are configured: create a GPUNodeClass and a GPUNodePool that offer some, or configure "
            "machines of your own."
        )
    everything = [*(priced.candidate for priced in priced_candidates), *(each.candidate for each in excluded)]
    return Reason.NO_OFFER_FITS, _nothing_fits(group, everything)


def _would_take(group: PodGroup, candidate: Candidate) -> bool:
    return admits(group, candidate) and group.shape.requests.fits_within(candidate.node.allocatable)


def _scarce(group: PodGroup, suitable: Sequence[PricedCandidate], inventory: Inventory) -> tuple[Reason, str]:
    held = [
        (priced, caps) for priced in suitable if inventory.stock(priced) > 0 and (caps := inventory.forbids(priced))
    ]
    best = suitable[0]
    if held:
        priced, caps = held[0]
        names = _list(dict.fromkeys(cap.name for cap in caps))
        several = len(caps) > 1
        return Reason.LIMIT_REACHED, (
            f"{described(priced.candidate)} would fit, but {names} {'leave' if several else 'leaves'} no room for it: "
            f"raise the limit{'s' if several else ''}{_raise(group, priced, inventory)}, or wait until other capacity "
            "is terminated."
        )
    # What its provider has none of is excluded before.
    taken = "all of its stock" if len(suitable) == 1 else f"the stock of all {len(suitable)} offers that would fit"
    return Reason.OUT_OF_STOCK, (
        f"{described(best.candidate)} would fit, but other waiting pods get "
        f"{'it' if best.candidate.offer.node_name is not None and len(suitable) == 1 else taken}: allow more regions, "
        "providers or GPU types, or add machines."
    )


def _raise(group: PodGroup, priced: PricedCandidate, inventory: Inventory) -> str:
    """How far the limits must be raised for one more node of the candidate, and how many such pods that serves."""
    more: dict[str, None] = {}
    for nodes, money, resources in map(inventory.cap_left, priced.caps):
        if nodes is not None and nodes < 1:
            more[f"{1 - nodes} node"] = None
        price = priced.candidate.offer.price
        if money is not None and money < price.units:
            more[str(price - UsdPerHour.from_units(money))] = None
        for name, left in resources.items():
            # A limit with nothing left may be written as -1.
            if (amount := limit_amounts(priced.candidate, name)) > max(left, 0):
                more[shown_amount(name, amount - max(left, 0))] = None
    free = priced.candidate.node.allocatable
    fits = min((free.amount(name) // n for name, n in group.shape.requests.items() if n > 0), default=1)
    pods = min(max(fits, 1), group.count)
    return f" ({_list(more)} more serves {pods} of these pods)" if more else ""


def shown_amount(name: str, amount: int) -> str:
    """An amount of a resource as people write it: `3.5 cpu`, `80 GiB of memory`, `2 nvidia.com/gpu`."""
    of = " of " if name in _BYTES else " "
    return f"{_figure(name, amount)}{of}{name}"


def _figure(name: str, amount: int) -> str:
    if name in _BYTES:
        return f"{amount / 2**30:.4g} GiB"
    return f"{amount / 1000:g}" if name == CPU else str(amount)


def _not_available(others: Sequence[Excluded]) -> tuple[Reason, str]:
    cheapest = min(others, key=lambda each: (each.candidate.effective_price.units, described(each.candidate)))
    more = len(others) - 1
    rest = f" {_offers(more)} that would fit {'is' if more == 1 else 'are'} not available either." if more else ""
    return cheapest.reason, f"{described(cheapest.candidate)} would fit, but {cheapest.sentence}.{rest}"


def _nothing_fits(group: PodGroup, candidates: Sequence[Candidate]) -> str:
    reasons: Counter[str] = Counter()
    for candidate in candidates:
        if candidate.namespaces is not None and group.namespace not in candidate.namespaces:
            reasons[f"serve other namespaces than {group.namespace}"] += 1
        elif group.pin is not None and candidate.node.labels.get(group.pin.key) != group.pin.value:
            where = f"are not in {group.pin.key}={group.pin.value}" if group.pin.value else f"have no {group.pin.key}"
            reasons[where if group.pin.value is not None else f"have a {group.pin.key}"] += 1
        elif wrong_architecture(group.shape, candidate):
            arch = candidate.node.labels[ARCHITECTURE]
            reasons[f"are {arch}, and neither the pod nor the pool names {ARCHITECTURE}"] += 1
        elif found := misfit(group.shape, candidate.node, candidate.node.allocatable):
            reasons.update(reason.replace("node(s) ", "") for reason in found.reasons)
    counted = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items(), key=lambda e: (-e[1], e[0])))
    hint = _hint(group, candidates)
    return f"None of {len(candidates)} offers fits the pod ({counted}). {hint}"


def _hint(group: PodGroup, candidates: Sequence[Candidate]) -> str:
    requests = group.shape.requests
    admitting = [candidate for candidate in candidates if admits(group, candidate)]
    if not admitting:
        if all(each.namespaces is not None and group.namespace not in each.namespaces for each in candidates):
            where = group.namespace
            return (
                f"No GPUNodePool serves namespace {where}: one in the operator's own namespace does, unless its "
                f"namespaceSelector leaves {where} out, and one in {where} if its class allows that."
            )
        if misspelt := _unknown_gpu_types(group, candidates):
            return misspelt
        if group.pin is not None:
            return (
                f"Use a topology key that nodes of offers have, or give the nodes of a pool the label {group.pin.key}."
            )
        return (
            "Change the pod's node selector, affinity or tolerations, or the labels, taints and requirements of a pool."
        )
    largest = Resources()
    for candidate in admitting:
        largest = largest.max(candidate.node.allocatable)
    short = requests.short_of(largest)
    nowhere = [name for name in short if not largest.amount(name)]
    if nowhere:
        return f"No offer has {_list(nowhere[:_NAMED])}: request another resource, or allow machines that have it."
    if short:
        named = _list(
            f"{shown_amount(name, requests.amount(name))} (largest offer: {_figure(name, largest.amount(name))})"
            for name in short[:_NAMED]
        )
        return f"The pod requests {named}: request less, or allow larger machines."
    return "No single offer has everything the pod requests: request less of something, or allow larger machines."


def _unknown_gpu_types(group: PodGroup, candidates: Sequence[Candidate]) -> str | None:
    """A sentence about GPU types that the pod selects, no offer has, and nobody knows."""
    shape = group.shape
    wanted = [shape.node_selector[key] for key in GPU_TYPE_KEYS if key in shape.node_selector]
    for term in shape.node_affinity or ():
        for each in term.match_expressions:
            if each.key in GPU_TYPE_KEYS and each.operator is LabelOperator.IN:
                wanted += each.values
    offered = {label for each in candidates for key in GPU_TYPE_KEYS if (label := each.node.labels.get(key))}
    for name in dict.fromkeys(wanted):
        if name in offered:
            continue
        model = gpu_model(name)
        if model is None:
            return f'The pod selects "{name}", which is not a known GPU model{nearest_models(name, sorted(offered))}'
        if alike := sorted(label for label in offered if gpu_model(label) == model):
            return f'The pod selects "{name}"; nodes with that GPU are labelled {_list(alike[:_NAMED])}: select that.'
    return None


def _list(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
