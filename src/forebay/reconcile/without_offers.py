"""What a pod is told for which nothing is bought because offers are missing: a plan sees only those that there are."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from msgspec.structs import replace

from forebay.model.reasons import Reason
from forebay.planning.candidates import CandidateSet
from forebay.planning.plan import LeftOut
from forebay.reconcile.snapshot import Snapshot

_MOST_NAMED: Final = 3


def explained(left_out: Iterable[LeftOut], offering: CandidateSet, snapshot: Snapshot) -> tuple[LeftOut, ...]:
    """With the sources whose offers are not known: one of these might fit the pod. Without any offer, with what keeps
    the pools that there are from having some.
    """
    unknown = "; ".join(each.rstrip(".") for each in offering.unknown)
    without = cache(lambda: _nothing_offered(snapshot))

    def one(left: LeftOut) -> LeftOut:
        nothing = left.reason is Reason.NO_CAPACITY_CONFIGURED
        if nothing and unknown:
            sentence = (
                f"No offers are known yet, because providers have not told any ({unknown}): Forebay keeps asking."
            )
            return replace(left, reason=Reason.PROVIDER_UNAVAILABLE, sentence=sentence)
        if unknown:
            return replace(left, sentence=f"{left.sentence} Offers are not known from {unknown}.")
        return replace(left, sentence=without() or left.sentence) if nothing else left

    return tuple(map(one, left_out))


def _nothing_offered(snapshot: Snapshot) -> str:
    """Why there are no offers; "" where there are no pools either."""
    idle = list(_pools_without_offers(snapshot))
    more = f", and {len(idle) - _MOST_NAMED} more GPUNodePools" if len(idle) > _MOST_NAMED else ""
    return f"There are no offers: {'; '.join(idle[:_MOST_NAMED])}{more}." if idle else ""


def _pools_without_offers(snapshot: Snapshot) -> Iterator[str]:
    """Clauses about pools whose class is not there, or has no provider that can be used."""
    classes = {each.metadata.name: each for each in snapshot.classes}
    # A class that is there for a moment only may not be bought from yet, but its providers are known.
    known = classes.keys() | {key.node_class for key in snapshot.sources} | snapshot.unreadable_classes
    unusable = {key.node_class: f"{key.provider}: {why.rstrip('.')}" for key, why in sorted(snapshot.unusable.items())}
    for pool in sorted(snapshot.pools, key=lambda each: each.key):
        named, name = "/".join(pool.key), pool.spec.node_class_ref.name
        if name in unusable:
            yield f"GPUNodeClass {name} of GPUNodePool {named} cannot be used with {unusable[name]}"
        elif name not in known:
            yield f'GPUNodeClass "{name}", which GPUNodePool {named} names, does not exist'
        elif name in classes and classes[name].metadata.deletion_timestamp is not None:
            yield f"GPUNodeClass {name} of GPUNodePool {named} is being deleted"
