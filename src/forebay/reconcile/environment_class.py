"""The GPUNodeClass and GPUNodePool of machines that environment variables of the operator name.

To a tick they are a class and a pool like all others, whether they could be published in the cluster yet or not. Their
published copies are for people and commands: what somebody changes there is set back. They hold nothing that may be
secret; how the machines are called stays with the operator.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import starmap, zip_longest
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from forebay.api.gpu_node_class import MOST_MACHINES, GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import Disruption, GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import ENVIRONMENT_LABEL
from forebay.api.parts import NodeClassRef
from forebay.api.values import Dollars
from forebay.model.quantities import UsdPerHour
from forebay.reconcile.decisions import Publish, Unpublish

Published = TypeVar("Published", GPUNodeClass, GPUNodePool)
_Kind = GPUNodeClass | GPUNodePool

POOL_NAME: Final = "environment"
#: Seconds that a duration can state as such.
_MOST_SECONDS: Final = 10**7
#: Dollars an hour that no remote container costs.
_ANY_CONTAINER: Final = 10_000


class EnvironmentObjects(NamedTuple):
    """All classes and pools with those of the environment among them, and what must be written to publish these."""

    classes: tuple[GPUNodeClass, ...]
    pools: tuple[GPUNodePool, ...]
    #: Names of the classes of the environment, each with the names of its machines. Several, where there are more
    #: machines than one class may list.
    machines: Mapping[str, frozenset[str]]
    decisions: tuple[Publish | Unpublish, ...]


def with_environment(
    shown: tuple[ProviderEntry, ...],
    namespace: str,
    idle_delay: timedelta,
    classes: Collection[GPUNodeClass],
    pools: Collection[GPUNodePool],
) -> EnvironmentObjects:
    """`shown` are the entries that the classes have; `classes` and `pools` are all that the cluster has."""
    classes = tuple(of_this_operator(classes, namespace))
    pools = tuple(of_this_operator(pools, namespace))
    here = [each for each in pools if each.metadata.namespace == namespace]
    published = sorted((each for each in classes if is_published(each, namespace)), key=_number)
    published_pools = sorted((each for each in here if is_published(each, namespace)), key=_number)
    others, other_pools = _besides(classes, published), _besides(pools, published_pools)
    parts = _parts(shown)
    names = _names(_class_name(namespace), published, others, len(parts))
    pool_names = _names(POOL_NAME, published_pools, _besides(here, published_pools), len(parts))
    labels = {ENVIRONMENT_LABEL: namespace}
    wanted = [
        GPUNodeClass(metadata=ObjectMeta(name=name, labels=labels), spec=GPUNodeClassSpec(providers=part))
        for name, part in zip(names, parts, strict=True)
    ]
    wanted_pools = [
        GPUNodePool(
            metadata=ObjectMeta(name=name, namespace=namespace, labels=labels),
            spec=GPUNodePoolSpec(
                node_class_ref=NodeClassRef(name=node_class),
                disruption=Disruption(consolidate_after=_text(idle_delay), budgets=()),
                max_hourly_price=_highest_price(part),
            ),
        )
        for name, node_class, part in zip(pool_names, names, parts, strict=True)
    ]
    pairs = [*zip_longest(wanted, published[: len(parts)]), *zip_longest(wanted_pools, published_pools[: len(parts)])]
    surplus: tuple[_Kind, ...] = (*published[len(parts) :], *published_pools[len(parts) :])
    return EnvironmentObjects(
        classes=(*others, *starmap(_as_published, zip_longest(wanted, published[: len(parts)]))),
        pools=(*other_pools, *starmap(_as_published, zip_longest(wanted_pools, published_pools[: len(parts)]))),
        machines={
            each.metadata.name: frozenset(machine.name for entry in each.spec.providers for machine in entry.machines)
            for each in wanted
        },
        decisions=(
            *(decision for pair in pairs for decision in _publish(*pair)),
            *(Unpublish(published=each) for each in surplus if each.metadata.deletion_timestamp is None),
        ),
    )


def _parts(shown: tuple[ProviderEntry, ...]) -> list[tuple[ProviderEntry, ...]]:
    """The entries of each class: one may not list more than `MOST_MACHINES` machines of a provider."""
    most = max((max(len(entry.machines), 1) for entry in shown), default=0)
    return [
        tuple(
            replace(entry, machines=entry.machines[first : first + MOST_MACHINES])
            for entry in shown
            if first == 0 or len(entry.machines) > first
        )
        for first in range(0, most, MOST_MACHINES)
    ]


def _names(base: str, published: Sequence[_Kind], others: Iterable[_Kind], count: int) -> list[str]:
    """Names of so many objects: those that they are published by, then the first free ones."""
    names = [each.metadata.name for each in published[:count]]
    taken = {*names, *(each.metadata.name for each in others)}
    numbered = (base, *(f"{base}-{number}" for number in range(2, len(taken) + count + 2)))
    free = [name for name in numbered if name not in taken]
    return [*names, *free[: count - len(names)]]


def _besides(objects: Iterable[Published], published: Sequence[Published]) -> tuple[Published, ...]:
    return tuple(each for each in objects if not any(each is own for own in published))


def _number(published: _Kind) -> tuple[int, str]:
    """Sorts what is published by the number at the end of its name; without one, it is the first."""
    return len(published.metadata.name), published.metadata.name


def of_this_operator(objects: Iterable[Published], namespace: str) -> Iterator[Published]:
    """The objects without those that another operator, in another namespace, publishes for its own environment."""
    return (each for each in objects if each.metadata.labels.get(ENVIRONMENT_LABEL, namespace) == namespace)


def is_published(found: GPUNodeClass | GPUNodePool, namespace: str) -> bool:
    """Whether the operator of that namespace published the object. A copy that somebody made of it has the label too,
    but another name.
    """
    base = _class_name(namespace) if isinstance(found, GPUNodeClass) else POOL_NAME
    name = found.metadata.name
    return found.metadata.labels.get(ENVIRONMENT_LABEL) == namespace and (
        name == base or name.removeprefix(f"{base}-").isdecimal()
    )


def _class_name(namespace: str) -> str:
    """Classes have no namespace: the operators of two namespaces need two names."""
    return f"{POOL_NAME}-{namespace}"


def _as_published(wanted: Published, published: Published | None) -> Published:
    """The object with what is known of its published copy. That somebody deletes the copy changes nothing."""
    if published is None:
        return wanted
    metadata = replace(published.metadata, deletion_timestamp=None)
    return replace(wanted, metadata=metadata, status=published.status)


def _publish(wanted: GPUNodeClass | GPUNodePool, published: GPUNodeClass | GPUNodePool | None) -> Iterator[Publish]:
    if published is None:
        yield Publish(wanted=wanted, published=None)
        return
    if published.spec != wanted.spec and published.metadata.deletion_timestamp is None:
        yield Publish(wanted=wanted, published=published)


def _highest_price(shown: Sequence[ProviderEntry]) -> Dollars:
    """A maxHourlyPrice that excludes none of the machines, and no remote container that its Job may have."""
    prices = (machine.hourly_price for entry in shown for machine in entry.machines)
    default = GPUNodePoolSpec(node_class_ref=NodeClassRef(name=POOL_NAME)).max_hourly_price
    if any(not entry.machines for entry in shown):
        # A cloud: --max-gpu-price and the Jobs say what a GPU may cost.
        default = _ANY_CONTAINER
    return max((default, *prices), key=lambda price: UsdPerHour(str(price)))


def _text(span: timedelta) -> str:
    """The duration as users write it, to the millisecond; very long ones to the hour."""
    seconds, milliseconds = divmod(span // timedelta(milliseconds=1), 1000)
    if seconds >= _MOST_SECONDS:
        return f"{seconds // 3600}h"
    return f"{seconds}s{milliseconds}ms" if milliseconds else f"{seconds}s"
