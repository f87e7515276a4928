"""The cheapest nodes that a pool permits, for a pool that is to have some whatever pods there are."""

from collections.abc import Iterable

import msgspec

from forebay.model.reasons import Reason
from forebay.planning.candidate_groups import Inventory, price_candidates
from forebay.planning.candidates import CandidateSet
from forebay.planning.plan import Cap, PoolKey, Preferences, Purchase
from forebay.planning.sentences import described


class CheapestNodes(msgspec.Struct, frozen=True, kw_only=True):
    purchases: tuple[Purchase, ...] = ()
    #: Why there are no more, as a sentence; None where there are as many as were asked for.
    lacking: str | None = None


def cheapest_nodes(
    pool: PoolKey, count: int, offering: CandidateSet, caps: Iterable[Cap], *, preferences: Preferences, why: str
) -> CheapestNodes:
    """The cheapest `count` nodes of the pool, one after the other, within stock and limits."""
    caps = sorted(caps, key=lambda cap: cap.name)
    priced = price_candidates((each for each in offering.candidates if each.pool == pool), caps, preferences)
    inventory = Inventory(priced, caps)
    found: list[Purchase] = []
    while len(found) < count:
        chosen = next((each for each in priced if inventory.can_buy(each)), None)
        if chosen is None:
            break
        inventory.buy(chosen, 1)
        warning = chosen.candidate.warning
        beware = f" Beware: {warning}." if warning is not None else ""
        sentence = f"{described(chosen.candidate)} was chosen, the cheapest that the pool permits: {why}.{beware}"
        found.append(Purchase(candidate=chosen.candidate, pods=(), reason=Reason.MIN_NODES, sentence=sentence))
    lacking = None
    if len(found) < count:
        forbidden = next((cap for each in priced for cap in inventory.forbids(each)), None)
        lacking = _forbidden(forbidden) if forbidden is not None else _none_left(pool, offering, any_offer=bool(priced))
    return CheapestNodes(purchases=tuple(found), lacking=lacking)


def _forbidden(cap: Cap) -> str:
    return f"{cap.name} leaves no room for one more"


def _none_left(pool: PoolKey, offering: CandidateSet, *, any_offer: bool) -> str:
    excluded = [each for each in offering.excluded if each.candidate.pool == pool]
    if any_offer:
        return "its providers have no more in stock"
    if excluded:
        more = f" (and {len(excluded) - 1} more offers are excluded)" if len(excluded) > 1 else ""
        return f"{described(excluded[0].candidate)} {excluded[0].sentence}{more}"
    if offering.unknown:
        return f"offers are not known from {'; '.join(offering.unknown)}"
    return "no provider of its class offers a machine"
