"""Records of owned machines whose configuration has moved, from environment variables to a class or between classes."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, PoolRef
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.lifecycle.facts import machine_sources, serving_source, source_of
from forebay.model.kept import KeptTuple, kept_tuple
from forebay.model.sources import Source, SourceKey


class CurrentRecords:
    """The records, those of machines that have moved as if launched from where they are configured now.

    The spec of a record never changes in the cluster, but the class and the pool that a machine belongs to today say
    when it is powered off. From tick to tick what has not changed stays the same object: ticks compare by identity.
    """

    def __init__(self) -> None:
        self._configured: tuple[object, ...] = ()
        self._observed: Collection[GPUInstance] = ()
        self._shown: KeptTuple[GPUInstance] = KeptTuple()
        self._known: dict[str, tuple[GPUInstance, GPUInstance]] = {}

    def current(
        self, records: Collection[GPUInstance], sources: Mapping[SourceKey, Source], pools: Collection[GPUNodePool]
    ) -> KeptTuple[GPUInstance]:
        configured = (*((key, source.offers) for key, source in sources.items()), *pools)
        as_before = self._configured == configured
        if as_before and isinstance(records, KeptTuple) and records is self._observed:
            return self._shown
        before = self._known if as_before else {}
        machines = None
        known: dict[str, tuple[GPUInstance, GPUInstance]] = {}
        for record in records:
            name = record.metadata.name
            pair = before.get(name)
            if pair is None or pair[0] is not record:
                machines = machine_sources(sources) if machines is None else machines
                pair = record, _with_source(record, serving_source(record, machines), pools)
            known[name] = pair
        self._configured, self._observed, self._known = configured, records, known
        self._shown = kept_tuple(self._shown, (shown for _, shown in known.values()))
        return self._shown


def _with_source(record: GPUInstance, source: SourceKey, pools: Collection[GPUNodePool]) -> GPUInstance:
    if source == source_of(record):
        return record
    using = [pool for pool in pools if pool.spec.node_class_ref.name == source.node_class]
    pool = min(using, key=lambda each: (-each.spec.weight, each.key), default=None)
    reference = PoolRef(namespace=pool.key[0], name=pool.key[1]) if pool is not None else None
    return replace(record, spec=replace(record.spec, node_class_name=source.node_class, pool_ref=reference))
