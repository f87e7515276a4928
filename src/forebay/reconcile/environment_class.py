"""The GPUNodeClass and GPUNodePool of machines that environment variables of the operator name.

To a tick they are a class and a pool like all others, whether they could be published in the cluster yet or not. Their
published copies are for people and commands: what somebody changes there is set back. They hold nothing that may be
secret; how the machines are called stays with the operator.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.gpu_node_pool import Disruption, GPUNodePool, GPUNodePoolSpec
from forebay.api.meta import ObjectMeta
from forebay.api.names import ENVIRONMENT_LABEL
from forebay.api.parts import NodeClassRef
from forebay.api.values import Dollars
from forebay.model.quantities import UsdPerHour
from forebay.reconcile.decisions import Publish, Unpublish

Published = TypeVar("Published", GPUNodeClass, GPUNodePool)

POOL_NAME: Final = "environment"
#: Seconds that a duration can state as such.
_MOST_SECONDS: Final = 10**7


class EnvironmentObjects(NamedTuple):
    """All classes and pools with those of the environment among them, and what must be written to publish these."""

    classes: tuple[GPUNodeClass, ...]
    pools: tuple[GPUNodePool, ...]
    #: Name of the class of the environment; None where no environment variable names a machine.
    node_class: str | None
    decisions: tuple[Publish | Unpublish, ...]


def with_environment(
    shown: tuple[ProviderEntry, ...],
    namespace: str,
    idle_delay: timedelta,
    classes: Collection[GPUNodeClass],
    pools: Collection[GPUNodePool],
) -> EnvironmentObjects:
    """`shown` are the entries that the class has; `classes` and `pools` are all that the cluster has."""
    classes = tuple(of_this_operator(classes, namespace))
    pools = tuple(of_this_operator(pools, namespace))
    here = [each for each in pools if each.metadata.namespace == namespace]
    published = next((each for each in classes if is_published(each, namespace)), None)
    published_pool = next((each for each in here if is_published(each, namespace)), None)
    found = [each for each in (published, published_pool) if each is not None]
    if not shown:
        return EnvironmentObjects(
            classes=tuple(each for each in classes if each is not published),
            pools=tuple(each for each in pools if each is not published_pool),
            node_class=None,
            decisions=tuple(Unpublish(published=each) for each in found if each.metadata.deletion_timestamp is None),
        )
    labels = {ENVIRONMENT_LABEL: namespace}
    name = published.metadata.name if published else _free_name(_class_name(namespace), classes)
    node_class = GPUNodeClass(metadata=ObjectMeta(name=name, labels=labels), spec=GPUNodeClassSpec(providers=shown))
    pool = GPUNodePool(
        metadata=ObjectMeta(
            name=published_pool.metadata.name if published_pool else _free_name(POOL_NAME, here),
            namespace=namespace,
            labels=labels,
        ),
        spec=GPUNodePoolSpec(
            node_class_ref=NodeClassRef(name=name),
            disruption=Disruption(consolidate_after=_text(idle_delay), budgets=()),
            max_hourly_price=_highest_price(shown),
        ),
    )
    return EnvironmentObjects(
        classes=(*(each for each in classes if each is not published), _as_published(node_class, published)),
        pools=(*(each for each in pools if each is not published_pool), _as_published(pool, published_pool)),
        node_class=name,
        decisions=(*_publish(node_class, published), *_publish(pool, published_pool)),
    )


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


def _free_name(base: str, taken: Iterable[GPUNodeClass | GPUNodePool]) -> str:
    names = {each.metadata.name for each in taken}
    return next(name for name in (base, *(f"{base}-{n}" for n in range(2, len(names) + 3))) if name not in names)


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


def _highest_price(shown: Iterable[ProviderEntry]) -> Dollars:
    """A maxHourlyPrice that excludes none of the machines."""
    prices = (machine.hourly_price for entry in shown for machine in entry.machines)
    default = GPUNodePoolSpec(node_class_ref=NodeClassRef(name=POOL_NAME)).max_hourly_price
    return max((default, *prices), key=lambda price: UsdPerHour(str(price)))


def _text(span: timedelta) -> str:
    """The duration as users write it, to the millisecond; very long ones to the hour."""
    seconds, milliseconds = divmod(span // timedelta(milliseconds=1), 1000)
    if seconds >= _MOST_SECONDS:
        return f"{seconds // 3600}h"
    return f"{seconds}s{milliseconds}ms" if milliseconds else f"{seconds}s"
