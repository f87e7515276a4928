"""Builds the immutable `Snapshot` that one tick decides on."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from forebay.api.gpu_instance import GPUInstance
from forebay.api.machines import Machine
from forebay.demand.bound_pods import waiting_for_their_machine
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.sources.configuration import claimed_twice
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views
from forebay.kube.pods import BY_NODE, PENDING_GPU
from forebay.model.nodes import Node
from forebay.model.sources import Source
from forebay.model.workloads import Pod
from forebay.reconcile.snapshot import Memory, OperatorRules, Snapshot
from forebay.reconcile.what_runs import looks_at_other_pods


class Observer:
    """Copies informers, providers and ledgers into snapshots. Later changes do not alter a snapshot already taken."""

    def __init__(
        self,
        views: Views,
        sources: Sources,
        provider_calls: ProviderCalls,
        *,
        cluster: str,
        machines: tuple[Machine, ...],
        rules: OperatorRules,
        clock: Callable[[], datetime],
        budget_accounting: BudgetAccounting | None = None,
    ) -> None:
        self._views = views
        self._sources = sources
        self._provider_calls = provider_calls
        self._cluster = cluster
        self._machines = machines
        self._rules = rules
        self._clock = clock
        self._budget_accounting = budget_accounting
        self._last_known: dict[str, Node] = {}
        #: Result of the last tick, input of the next.
        self.memory = Memory()

    def observe(self) -> Snapshot:
        views = self._views
        records = tuple(views.instances.values())
        sources = self._sources.states()
        nodes = {node.name: node for node in views.nodes.values()}
        pending = (*views.pods.by(PENDING_GPU, True), *self._bound_to_machines_off(sources.values(), nodes, records))
        now = self._clock()
        accounting = self._budget_accounting
        return Snapshot(
            now=now,
            cluster=self._cluster,
            classes=tuple(views.classes.values()),
            pools=tuple(views.pools.values()),
            namespaces={each.metadata.name: each.metadata.labels for each in views.namespaces.values()},
            nodes=nodes,
            last_seen_nodes=self._remember_nodes(sources.values(), nodes),
            pending=pending,
            used=views.used.all_used(),
            ports=views.used.all_ports(),
            daemons=views.used.daemons(),
            pods_by_node=self._pods_by_node(records, nodes, pending),
            records=records,
            sources=sources,
            unusable=self._sources.failed_builds,
            claimed_twice=claimed_twice(views.classes.values(), self._machines),
            budgets=tuple(views.budgets.values()),
            budget_state=None if accounting is None else accounting.update(now),
            unrecorded_cost=frozenset() if accounting is None else accounting.unrecorded_cost(),
            unreadable_pools=frozenset(views.pools.undecodable),
            unreadable_classes=frozenset(name for _, name in views.classes.undecodable),
            unreadable_pods=tuple(
                (pod, why)
                for key, why in views.pods.undecodable.items()
                if (pod := views.pods.get(key)) is not None and pod.node is not None
            ),
            memory=self.memory,
            calls_in_flight=self._provider_calls.busy,
            rules=self._rules,
        )

    def _remember_nodes(self, sources: Iterable[Source], nodes: Mapping[str, Node]) -> Mapping[str, Node]:
        """Last known Node of every owned machine, also after its Node object was deleted while the machine was off."""
        names = {offer.node_name for source in sources for offer in source.offers or () if offer.node_name is not None}
        self._last_known = {
            name: node for name in names if (node := nodes.get(name) or self._last_known.get(name)) is not None
        }
        return dict(self._last_known)

    def _bound_to_machines_off(
        self, sources: Iterable[Source], nodes: Mapping[str, Node], records: Iterable[GPUInstance]
    ) -> tuple[Pod, ...]:
        machines = (offer.node_name for source in sources for offer in source.offers or ())
        found = waiting_for_their_machine((each for each in machines if each), nodes, records, self._bound_to)
        return tuple(pod for pod in found if pod.shape.gpus(self._rules.gpu_resources))

    def _pods_by_node(
        self, records: Iterable[GPUInstance], nodes: Iterable[str], pending: Iterable[Pod]
    ) -> dict[str, tuple[Pod, ...]]:
        """Pods on the nodes of GPUInstances; on all nodes while a waiting pod has rules about other pods."""
        names = {name for record in records if (name := record.node_name) is not None}
        if looks_at_other_pods(pending):
            names.update(nodes)
        return {name: self._pods_on(name) for name in sorted(names)}

    def _pods_on(self, node: str) -> tuple[Pod, ...]:
        return self._views.pods_by_node.of(node, self._bound_to)

    def _bound_to(self, node: str) -> tuple[Pod, ...]:
        return self._views.pods.by(BY_NODE, node)
