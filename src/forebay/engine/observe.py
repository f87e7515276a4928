"""Builds the immutable `Snapshot` that one tick decides on."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.demand.bound_pods import waiting_for_their_machine
from forebay.demand.devices import devices_by_node, with_devices
from forebay.demand.planned_pods import runs_remotely
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.startup_taints import RefusedTolerations
from forebay.engine.gate import GateWatch
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.sources.configuration import claimed_twice
from forebay.engine.sources.environment import Environment
from forebay.engine.sources.sources import Sources
from forebay.engine.views import Views
from forebay.engine.virtual_node.remote_work import Offloading, RemoteWork
from forebay.kube.pod_indexes import BY_NODE, PENDING_CLAIMS, PENDING_GPU, TOLD_BUT_BOUND
from forebay.model.kept import KeptMapping, KeptTuple, among, kept, kept_mapping, kept_tuple
from forebay.model.nodes import Node
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Pod
from forebay.reconcile.decisions import Publish, Unpublish
from forebay.reconcile.environment_class import of_this_operator
from forebay.reconcile.moved_machines import CurrentRecords
from forebay.reconcile.snapshot import Memory, OperatorRules, Snapshot
from forebay.reconcile.what_runs import looks_at_other_pods

#: Of an operator that leaves remote containers to somebody else, and of a dry run.
_NO_CONTAINERS: Final = Offloading({}, (), prevented="This operator orders no remote containers.")


class _Configured(NamedTuple):
    classes: tuple[GPUNodeClass, ...]
    pools: tuple[GPUNodePool, ...]
    claimed_twice: Mapping[str, Mapping[str, str]]
    publications: tuple[Publish | Unpublish, ...]


class Observer:
    """Copies informers, providers and ledgers into snapshots. Later changes do not alter a snapshot already taken."""

    def __init__(
        self,
        views: Views,
        sources: Sources,
        provider_calls: ProviderCalls,
        *,
        cluster: str,
        environment: Environment | None,
        rules: OperatorRules,
        clock: Callable[[], datetime],
        budget_accounting: BudgetAccounting | None = None,
        gate: GateWatch | None = None,
        refused_tolerations: RefusedTolerations | None = None,
        remote: RemoteWork | None = None,
    ) -> None:
        self._views = views
        self._sources = sources
        self._provider_calls = provider_calls
        self._cluster = cluster
        self._environment = environment
        self._rules = rules
        self._clock = clock
        self._budget_accounting = budget_accounting
        self._gate = gate
        self._refused_tolerations = refused_tolerations or RefusedTolerations()
        self._remote = remote
        self._records = CurrentRecords()
        self._configured: tuple[object, _Configured] | None = None
        self._last_known: KeptMapping[str, Node] = KeptMapping()
        self._last_container_pods: KeptMapping[str, Pod] = KeptMapping()
        self._nodes: KeptMapping[str, Node] = KeptMapping()
        self._offers: tuple[object, ...] = ()
        self._machines: KeptTuple[str] = KeptTuple()
        #: The machines and nodes that `_last_known` follows from.
        self._remembered: tuple[object, object] | None = None
        #: Nodes with GPUs of ResourceSlices, as observed and as they are given to ticks.
        self._with_devices: dict[str, tuple[Node, Mapping[str, int], Node]] = {}
        #: Result of the last tick, input of the next.
        self.memory = Memory()
        #: What has to be written, as of the last observation, to show the machines of environment variables.
        self.publications: tuple[Publish | Unpublish, ...] = ()

    def observe(self) -> Snapshot:
        views = self._views
        sources = self._sources.states()
        classes, pools, claimed, self.publications = self._classes_and_pools()
        records = self._records.current(views.instances.all(), sources, pools)
        nodes = self._nodes = kept_mapping(self._nodes, self._nodes_with_devices())
        machines = self._owned_machines(sources)
        pending = (*views.pods.by(PENDING_GPU, True), *self._bound_to_machines_off(machines, nodes, records))
        now = self._clock()
        accounting = self._budget_accounting
        remote = self._remote
        leaving = _NO_CONTAINERS if remote is None else remote.look(sources.values(), pending, records)
        return Snapshot(
            now=now,
            cluster=self._cluster,
            classes=classes,
            pools=pools,
            provisioners=tuple(views.provisioners.values()),
            namespaces={each.metadata.name: each.metadata.labels for each in views.namespaces.values()},
            nodes=nodes,
            last_seen_nodes=self._remember_nodes(machines, nodes),
            pending=pending,
            pending_claims=views.pods.by(PENDING_CLAIMS, True),
            used=views.used.all_used(),
            ports=views.used.all_ports(),
            daemons=views.used.daemons(),
            pods_by_node=self._pods_by_node(records, nodes, pending),
            container_pods=self._container_pods(records),
            portable=leaving.portable,
            stranded=leaving.stranded,
            unread=leaving.unread,
            remote_prevented=leaving.prevented,
            records=records,
            signing_requests=tuple(views.signing_requests.values()),
            pod_disruption_budgets=tuple(views.pod_disruption_budgets.values()),
            sources=sources,
            unusable=self._sources.unusable,
            claimed_twice=claimed,
            budgets=tuple(views.budgets.values()) if self._rules.budgets else (),
            unserved_budgets=() if self._rules.budgets else tuple(views.budgets.values()),
            budget_state=None if accounting is None else accounting.update(now),
            gate_missing=None if self._gate is None else self._gate.missing,
            unrecorded_cost=frozenset() if accounting is None else accounting.unrecorded_cost(),
            unreadable_pools=frozenset(views.pools.undecodable),
            unreadable_classes=frozenset(name for _, name in views.classes.undecodable),
            unreadable_provisioners=frozenset(name for _, name in views.provisioners.undecodable),
            unreadable_records={name: why for (_, name), why in views.instances.undecodable.items()},
            unreadable_pods=tuple(
                (pod, why)
                for key, why in views.pods.undecodable.items()
                if (pod := views.pods.get(key)) is not None and pod.node is not None
            ),
            told_but_bound=views.pods.by(TOLD_BUT_BOUND, True),
            intolerant=self._refused_tolerations.current(now),
            memory=self.memory,
            calls_in_flight=self._provider_calls.busy,
            rules=self._rules,
        )

    def _classes_and_pools(self) -> "_Configured":
        """Classes and pools with those of environment variables; without the operator's environment, as published."""
        views = self._views
        if self._environment is None:
            classes = tuple(of_this_operator(views.classes.values(), self._rules.namespace))
            pools = tuple(of_this_operator(views.pools.values(), self._rules.namespace))
            return _Configured(classes, pools, claimed_twice(classes), ())
        objects = self._environment.objects()
        if self._configured is None or self._configured[0] is not objects:
            claimed = claimed_twice(objects.classes, self._environment.own_classes(objects))
            found = _Configured(objects.classes, objects.pools, claimed, objects.decisions)
            self._configured = objects, found
        return self._configured[1]

    def _nodes_with_devices(self) -> Mapping[str, Node]:
        """All nodes, with the GPUs that ResourceSlices show. Unchanged nodes stay the same object from tick to tick."""
        views = self._views
        by_name = _by_name(views.nodes.all())
        before, self._with_devices = self._with_devices, {}
        if not len(views.resource_slices):
            return by_name
        nodes = dict(by_name)
        for name, devices in devices_by_node(views.resource_slices.values(), views.device_classes.values()).items():
            node = nodes.get(name)
            if node is None:
                continue
            last = before.get(name)
            if last is None or last[0] is not node or last[1] != devices:
                last = node, devices, with_devices(node, devices)
            self._with_devices[name], nodes[name] = last, last[2]
        return nodes

    def _owned_machines(self, sources: Mapping[SourceKey, Source]) -> KeptTuple[str]:
        """Names of the nodes of all owned machines."""
        offers = tuple(source.offers for source in sources.values())
        if offers != self._offers or not self._machines:
            names = (offer.node_name for each in offers for offer in each or () if offer.node_name is not None)
            self._offers, self._machines = offers, kept_tuple(self._machines, sorted(set(names)))
        return self._machines

    def _remember_nodes(self, machines: KeptTuple[str], nodes: KeptMapping[str, Node]) -> Mapping[str, Node]:
        """Node of every owned machine as it was when last Ready with GPUs, else as last seen.

        Also after its Node object was deleted, and after its GPUs were taken off the Node, while the machine was off.
        """
        if self._remembered is not None and self._remembered[0] is machines and self._remembered[1] is nodes:
            return self._last_known
        known: dict[str, Node] = {}
        for name in machines:
            node, before = nodes.get(name), self._last_known.get(name)
            up = node is not None and node.ready and bool(node.allocatable.gpus(self._rules.gpu_resources))
            remembered = node if up or before is None else before
            if remembered is not None:
                known[name] = remembered
        self._remembered, self._last_known = (machines, nodes), kept_mapping(self._last_known, known)
        return self._last_known

    def _bound_to_machines_off(
        self, machines: KeptTuple[str], nodes: KeptMapping[str, Node], records: KeptTuple[GPUInstance]
    ) -> tuple[Pod, ...]:
        found = waiting_for_their_machine(machines, nodes, records, self._bound_to)
        return tuple(pod for pod in found if pod.shape.requests.any_gpu(self._rules.gpu_resources))

    def _pods_by_node(
        self, records: KeptTuple[GPUInstance], nodes: KeptMapping[str, Node], pending: Iterable[Pod]
    ) -> KeptMapping[str, tuple[Pod, ...]]:
        """Pods on the nodes of GPUInstances; on all nodes while a waiting pod has rules about other pods."""
        names = _all_nodes(records, nodes) if looks_at_other_pods(pending) else _nodes_of(records)
        return self._views.pods_by_node.of_all(names, self._bound_to)

    def _container_pods(self, records: KeptTuple[GPUInstance]) -> KeptMapping[str, Pod]:
        named = (pod for record in among(records, runs_remotely) for pod in record.spec.pods)
        found = ((named_pod.uid, self._views.pods.get((named_pod.namespace, named_pod.name))) for named_pod in named)
        now = {uid: pod for uid, pod in found if pod is not None and pod.uid == uid}
        self._last_container_pods = kept_mapping(self._last_container_pods, now)
        return self._last_container_pods

    def _pods_on(self, node: str) -> tuple[Pod, ...]:
        return self._views.pods_by_node.of(node, self._bound_to)

    def _bound_to(self, node: str) -> tuple[Pod, ...]:
        return self._views.pods.by(BY_NODE, node)


@kept
def _by_name(nodes: KeptTuple[Node]) -> KeptMapping[str, Node]:
    return KeptMapping((node.name, node) for node in nodes)


@kept
def _nodes_of(records: KeptTuple[GPUInstance]) -> tuple[str, ...]:
    """Names of the nodes of GPUInstances."""
    return tuple(sorted({name for record in records if (name := record.node_name) is not None}))


@kept
def _all_nodes(records: KeptTuple[GPUInstance], nodes: KeptMapping[str, Node]) -> tuple[str, ...]:
    return tuple(sorted({*_nodes_of(records), *nodes}))
