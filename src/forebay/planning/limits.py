"""Caps: what pools and classes may still buy. An instance counts until it is proven gone."""

from collections.abc import Callable, Collection, Iterable, Sequence

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.parts import Limits
from forebay.api.values import Figure
from forebay.model.quantities import Resources, UsdPerHour
from forebay.planning.plan import Cap, PoolKey


def caps(
    pools: Iterable[GPUNodePool], classes: Iterable[GPUNodeClass], records: Iterable[GPUInstance]
) -> tuple[Cap, ...]:
    pools = list(pools)
    held = [record for record in records if record.state is not InstanceState.GONE]
    made: list[Cap] = []
    for pool in sorted(pools, key=lambda each: each.key):
        key = PoolKey(*pool.key)
        if pool.spec.limits is not None:
            mine = [each for each in held if _pool_of(each) == key]
            made += _caps(f"GPUNodePool {key.namespace}/{key.name}", frozenset({key}), pool.spec.limits, mine)
    for node_class in sorted(classes, key=lambda each: each.key):
        name = node_class.metadata.name
        if node_class.spec.limits is not None:
            members = frozenset(PoolKey(*pool.key) for pool in pools if pool.spec.node_class_ref.name == name)
            mine = [each for each in held if each.spec.node_class_name == name]
            made += _caps(f"GPUNodeClass {name}", members, node_class.spec.limits, mine)
    return tuple(made)


def beyond_limits(
    pools: Iterable[GPUNodePool],
    classes: Iterable[GPUNodeClass],
    records: Iterable[GPUInstance],
    waiting: Collection[str],
) -> Iterable[tuple[GPUInstance, str]]:
    """Those of the `waiting` (UIDs), the newest first to go, that limits leave no room for, with the limit's name.

    Limits may have been lowered since these were ordered.
    """
    held = sorted(
        (each for each in records if each.state is not InstanceState.GONE), key=lambda each: _age(each, waiting)
    )
    limited = [(f"GPUNodePool {'/'.join(each.key)}", each.spec.limits, _of_pool(each)) for each in pools]
    limited += [(f"GPUNodeClass {each.metadata.name}", each.spec.limits, _of_class(each)) for each in classes]
    gone: set[str] = set()
    for owner, limits, holds in limited:
        mine = [each for each in held if limits is not None and each.uid not in gone and holds(each)]
        if limits is None or not mine or mine[-1].uid not in waiting:
            continue
        allowed = _Allowed(limits)
        for record in mine:
            broken = allowed.take(record, needed=record.uid not in waiting)
            if broken is not None:
                gone.add(record.uid)
                yield record, f"{broken} of {owner}"


class _Allowed:
    """What limits leave as machines are counted."""

    def __init__(self, limits: Limits) -> None:
        most = Resources.parse(limits.resources)
        self._nodes = limits.max_nodes
        self._cost = None if limits.max_hourly_cost is None else UsdPerHour(limits.max_hourly_cost)
        self._resources = {name: most.amount(name) for name in sorted(limits.resources)}

    def take(self, record: GPUInstance, *, needed: bool) -> str | None:
        """The limit that the machine would exceed; None where it is counted, as one that is `needed` always is."""
        nodes = None if self._nodes is None else self._nodes - 1
        cost = None if self._cost is None else self._cost - hourly_price(record)
        amounts = _amounts(record) if self._resources else Resources()
        resources = {name: left - amounts.amount(name) for name, left in self._resources.items()}
        broken = next((f"limits.resources.{name}" for name, left in resources.items() if left < 0), None)
        if cost is not None and cost < UsdPerHour.zero():
            broken = "limits.maxHourlyCost"
        if nodes is not None and nodes < 0:
            broken = "limits.maxNodes"
        if broken is None or needed:
            self._nodes, self._cost, self._resources = nodes, cost, resources
            return None
        return broken


def _age(record: GPUInstance, waiting: Collection[str]) -> tuple[bool, float, str]:
    created = record.metadata.creation_timestamp
    return record.uid in waiting, created.timestamp() if created is not None else 0.0, record.uid


def _of_pool(pool: GPUNodePool) -> Callable[[GPUInstance], bool]:
    return lambda record: record.pool_key == pool.key


def _of_class(node_class: GPUNodeClass) -> Callable[[GPUInstance], bool]:
    return lambda record: record.spec.node_class_name == node_class.metadata.name


def _pool_of(record: GPUInstance) -> PoolKey | None:
    ref = record.spec.pool_ref
    return None if ref is None else PoolKey(ref.namespace, ref.name)


def _caps(owner: str, pools: frozenset[PoolKey], limits: Limits, held: Sequence[GPUInstance]) -> Iterable[Cap]:
    """One cap for each limit, so that the sentence of a refusal can name it."""
    if limits.max_nodes is not None:
        yield Cap(name=f"limits.maxNodes of {owner}", pools=pools, nodes=max(limits.max_nodes - len(held), 0))
    if limits.max_hourly_cost is not None:
        left = UsdPerHour(limits.max_hourly_cost) - sum(map(hourly_price, held), start=UsdPerHour.zero())
        yield Cap(name=f"limits.maxHourlyCost of {owner}", pools=pools, hourly_cost=max(left, UsdPerHour.zero()))
    for name, amount in sorted(limits.resources.items()):
        most = Resources.parse({name: amount}).amount(name)
        used = sum(_amounts(record).amount(name) for record in held)
        # `Resources` drops amounts of 0, and an amount that is not listed is not limited: -1 stands for nothing left.
        yield Cap(
            name=f"limits.resources.{name} of {owner}",
            pools=pools,
            resources=Resources({name: most - used if most > used else -1}),
        )


def hourly_price(record: GPUInstance) -> UsdPerHour:
    """Billed price where the provider reports it, else the offered one; 0 for owned machines without a price."""
    figure: Figure | None = record.status.hourly_price if record.status is not None else None
    if figure is None:
        figure = record.spec.hourly_price
    return UsdPerHour.zero() if figure is None else UsdPerHour(figure)


def _amounts(record: GPUInstance) -> Resources:
    spec = record.spec
    if not spec.delivers.has_node and spec.offer is not None:
        # A remote container: how much CPU and memory come with its GPUs is the provider's matter.
        return Resources({spec.offer.gpu_resource: spec.offer.gpu_count})
    return Resources() if spec.node is None else Resources.parse(spec.node.allocatable)
