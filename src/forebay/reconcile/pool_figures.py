"""Figures in the status of GPUNodePools: GPUs, offers, and what was last decided about their machines."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool, PoolDecision
from forebay.model.kept import KeptTuple, kept
from forebay.reconcile.snapshot import Snapshot

_MOST_DECISIONS: Final = 5
_LONGEST_MESSAGE: Final = 512
#: States in which something was decided, and not only observed.
_DECIDED: Final = frozenset({InstanceState.REQUESTED, InstanceState.DRAINING, InstanceState.TERMINATING})


@kept
def records_by_pool(records: Iterable[GPUInstance]) -> Mapping[tuple[str, str], KeptTuple[GPUInstance]]:
    found: defaultdict[tuple[str, str], list[GPUInstance]] = defaultdict(list)
    for record in records:
        found[record.pool_key].append(record)
    return {pool: KeptTuple(each) for pool, each in found.items()}


@kept
def gpu_totals(records: Iterable[GPUInstance]) -> Mapping[str, int]:
    """GPUs of all machines that are not gone, by resource."""
    found: Counter[str] = Counter()
    for record in records:
        offer = record.spec.offer
        if offer is not None and record.state is not InstanceState.GONE:
            found[offer.gpu_resource] += offer.gpu_count
    return dict(sorted(found.items()))


def offers_of(snapshot: Snapshot, node_class: str, shown: int | None) -> int | None:
    """Offers of all providers of the class; what is `shown` while one of them has not answered since the start."""
    offers = [source.offers for key, source in snapshot.sources.items() if key.node_class == node_class]
    known = [len(each) for each in offers if each is not None]
    return sum(known) if len(known) == len(offers) else shown


def offers_shown(pool: GPUNodePool, classes: Mapping[str, GPUNodeClass]) -> int | None:
    """What the pool shows, or, where it shows nothing yet, its class: of pools that were created while nobody led, each
    would be written once more as soon as the offers are known.
    """
    if pool.status is not None and pool.status.offers is not None:
        return pool.status.offers
    node_class = classes.get(pool.spec.node_class_ref.name)
    return node_class.status.offers if node_class is not None and node_class.status is not None else None


@kept
def last_decisions(records: Iterable[GPUInstance], shown: Sequence[PoolDecision]) -> tuple[PoolDecision, ...]:
    """The last few decisions: those that are shown already, and later ones of the records.

    Only records that have changed since are looked at: a pool may have thousands.
    """
    latest = shown[-1].at if shown else None
    known = {(each.at, each.instance, each.state) for each in shown}
    # Nothing earlier can be among the last few.
    first = min(known)[:2] if len(shown) == _MOST_DECISIONS else None
    found = list(shown)
    for record in records:
        status = record.status
        if status is None or status.since is None or (latest is not None and status.since < latest):
            continue
        if first is not None and (status.since, record.metadata.name) < first:
            continue
        for each in status.transitions:
            key = (each.at, record.metadata.name, each.state.value)
            if each.state in _DECIDED and (latest is None or each.at >= latest) and key not in known:
                found.append(
                    PoolDecision(
                        at=each.at,
                        instance=record.metadata.name,
                        state=each.state.value,
                        reason=each.reason,
                        message=each.message[:_LONGEST_MESSAGE],
                    )
                )
    return tuple(sorted(found, key=lambda each: (each.at, each.instance, each.state))[-_MOST_DECISIONS:])
