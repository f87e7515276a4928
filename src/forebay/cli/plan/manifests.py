"""A snapshot from manifests: pods and workloads, nodes, and Forebay's own kinds.

Pods without a node count as unschedulable, and a node without conditions as ready. Workloads become the pods they would
create, unless their pods (or Jobs, or ReplicaSets) are in the files too: then those count instead.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from forebay.api.codec import all_faults, decode_any, unknown_fields
from forebay.api.gpu_instance import GPUInstance
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.gpu_workload_budget import GPUWorkloadBudget
from forebay.api.kinds import KINDS
from forebay.api.meta import Object
from forebay.api.names import API_VERSION, BUDGET_GATE
from forebay.budgets.accounts import Accounts
from forebay.cli.plan.manifest_documents import (
    DEFAULT_NAMESPACE,
    Document,
    Id,
    Json,
    ManifestError,
    Workload,
    convert,
    documents_in,
    encode_document,
    how_many,
    without_floats,
)
from forebay.kube.decoders import Decoders
from forebay.kube.node_usage import NodeUsage
from forebay.kube.nodes import NODES
from forebay.kube.pod_indexes import is_pending
from forebay.kube.pods import PODS
from forebay.kube.resources import Resource, T
from forebay.model.counts import counted
from forebay.model.nodes import Node
from forebay.model.workloads import Pod, PodShape
from forebay.reconcile.snapshot import BudgetState, OperatorRules, Snapshot

#: A workload of more pods is a mistake in the file.
_MOST_PODS: Final = 10**6
#: Kinds that are read, by API group.
_KINDS: Final = {
    "": ("Pod", "Node", "Namespace", "ReplicationController"),
    "apps": ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"),
    "batch": ("Job", "CronJob"),
}


class ManifestSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    snapshot: Snapshot
    #: What was ignored, and why.
    notes: tuple[str, ...] = ()


def snapshot_of(documents: Iterable[tuple[str, Any]], now: datetime, rules: OperatorRules) -> ManifestSnapshot:
    """Snapshot of `documents`, each with its file and position. Raises `ManifestError`."""
    found = [each for origin, document in documents for each in documents_in(origin, document)]
    return _SnapshotBuilder(now, rules).build(found)


class _SnapshotBuilder:
    def __init__(self, now: datetime, rules: OperatorRules) -> None:
        self.now = now
        self.rules = rules
        self.tally = NodeUsage()
        self._decoders = Decoders()
        self.pods: dict[tuple[str, str], Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.daemons: list[PodShape] = []
        self.own: list[Object] = []
        self.notes: list[str] = []
        self.ignored: Counter[str] = Counter()
        #: Workloads whose own pods, Jobs or ReplicaSets are in the files.
        self.owners: set[Id] = set()

    def build(self, documents: list[Document]) -> ManifestSnapshot:
        for each in documents:
            self.owners.update(
                (owner.kind, each.namespace, owner.name) for owner in each.header.metadata.owner_references or ()
            )
        for each in documents:
            self._add_document(each)
        waiting = [pod for pod in self.pods.values() if is_pending(pod)]
        pending = tuple(pod for pod in waiting if pod.shape.requests.any_gpu(self.rules.gpu_resources))
        if others := len(waiting) - len(pending):
            self.notes.append(
                f"{counted(others, 'pod requests no GPU and is', 'pods request no GPU and are')} not planned for."
            )
        for kind, count in sorted(self.ignored.items()):
            self.notes.append(f"{count} x {kind} ignored: it says nothing about GPU capacity.")
        pods_by_node: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods.values():
            if pod.node is not None:
                self.tally.add(pod)
                if pod.occupies_node:
                    pods_by_node[pod.node].append(pod)
        for pod in self.pods.values():
            self.namespaces.setdefault(pod.namespace, {})
        budgets = tuple(each for each in self.own if isinstance(each, GPUWorkloadBudget))
        snapshot = Snapshot(
            now=self.now,
            classes=tuple(each for each in self.own if isinstance(each, GPUNodeClass)),
            pools=tuple(each for each in self.own if isinstance(each, GPUNodePool)),
            records=tuple(each for each in self.own if isinstance(each, GPUInstance)),
            namespaces=self.namespaces,
            nodes=self.nodes,
            pending=tuple(self._as_unschedulable(pod) for pod in pending),
            used=self.tally.all_used(),
            ports=self.tally.all_ports(),
            daemons=(*self.tally.daemons(), *self.daemons),
            pods_by_node={name: tuple(pods) for name, pods in pods_by_node.items()},
            budgets=budgets,
            budget_state=self._budget_state(budgets) if budgets else None,
            rules=self.rules,
        )
        return ManifestSnapshot(snapshot=snapshot, notes=tuple(self.notes))

    def _budget_state(self, budgets: Iterable[GPUWorkloadBudget]) -> BudgetState:
        """Budget accounts in which only the pods of the files have used GPU time."""
        accounts = Accounts()
        for budget in budgets:
            accounts.open(budget, self.now)
        for pod in self.pods.values():
            accounts.see(pod, self.now)
        gated = tuple(pod for pod in self.pods.values() if BUDGET_GATE in pod.shape.scheduling_gates)
        return BudgetState(accounts=accounts.frozen(), gated=gated)

    def _as_unschedulable(self, pod: Pod) -> Pod:
        return pod if pod.unschedulable_since is not None else replace(pod, unschedulable_since=self.now)

    def _add_document(self, each: Document) -> None:
        group, _, _ = each.header.api_version.rpartition("/")
        kind = each.header.kind
        if each.header.api_version == API_VERSION:
            self._add_own(each)
        elif kind not in _KINDS.get(group, ()):
            self.ignored[kind] += 1
        elif kind == "Pod":
            self._add_pod(each, self._pod(each, each.body))
        elif kind == "Node":
            node = self._read(NODES, each, self._node(each))
            self.nodes[node.name] = node
        elif kind == "Namespace":
            self.namespaces[each.header.metadata.name] = each.header.metadata.labels or {}
        else:
            self._add_workload(each)

    def _add_own(self, each: Document) -> None:
        kind = next((kind for kind in KINDS if kind.kind == each.header.kind), None)
        body = each.body
        if kind is not None and kind.namespaced and not each.header.metadata.namespace:
            body = {**body, "metadata": {**body["metadata"], "namespace": DEFAULT_NAMESPACE}}
        text = encode_document(each, body)
        try:
            wrong = [
                f"{path}: {problem}" if path else problem for path, problem in all_faults(msgspec.json.decode(text))
            ]
            wrong += [
                f"{path} is not a field of {each.header.kind}{f' (did you mean {near}?)' if near else ''}"
                for path, near in unknown_fields(each.body).items()
            ]
        except ValueError as error:
            raise ManifestError(f"{each.title}: {error}") from error
        if wrong:
            raise ManifestError(f"{each.title}: {'; '.join(wrong)}")
        found = decode_any(text)
        if not isinstance(found, GPUNodeClass | GPUNodePool | GPUInstance | GPUWorkloadBudget):
            self.ignored[each.header.kind] += 1
        self.own.append(found)

    def _add_workload(self, each: Document) -> None:
        kind = each.header.kind
        workload = convert(each.body, Workload, each.title)
        spec = workload.spec
        if each.id in self.owners:
            return
        if spec.suspend:
            self.notes.append(f"{kind} {each.namespace}/{each.header.metadata.name} is suspended: it creates no pods.")
            return
        if kind == "CronJob" and spec.job_template is not None:
            spec = spec.job_template.spec
        if spec.template is None:
            raise ManifestError(f"{each.title}: it has no spec.template")
        if workload.over:
            return
        count = how_many(kind, spec, workload.succeeded)
        if not 0 <= count <= _MOST_PODS:
            raise ManifestError(f"{each.title}: {count} pods; there may be 0 to {_MOST_PODS:,}")
        # Pods of one template are equal: the first is read, the others are copies with other names.
        meta = each.header.metadata
        owner = {"kind": kind, "name": meta.name, "uid": meta.uid or "/".join(each.id), "controller": True}
        metadata = {
            **(spec.template.metadata or {}),
            "name": meta.name,
            "namespace": each.namespace,
            "ownerReferences": [owner],
        }
        first = self._pod(each, {"metadata": metadata, "spec": spec.template.spec})
        if kind == "DaemonSet":
            self.daemons.append(first.shape)
            return
        for number in range(count):
            name = f"{meta.name}-{number}"
            self._add_pod(each, replace(first, name=name, uid=f"{each.namespace}/{name}"))

    def _pod(self, each: Document, body: Json) -> Pod:
        meta = body.get("metadata") or {}
        name = meta.get("name") or f"{meta.get('generateName', '')}{len(self.pods)}"
        namespace = meta.get("namespace") or DEFAULT_NAMESPACE
        known = {"name": name, "namespace": namespace, "uid": meta.get("uid") or f"{namespace}/{name}"}
        parts = {part: body.get(part) or {} for part in ("spec", "status")}
        return self._read(PODS, each, {**parts, "metadata": {**self._dated(meta), **known}})

    def _node(self, each: Document) -> Json:
        body = each.body
        status = dict(body.get("status") or {})
        status.setdefault("conditions", [{"type": "Ready", "status": "True"}])
        status.setdefault("allocatable", status.get("capacity"))
        status.setdefault("capacity", status["allocatable"])
        meta = body["metadata"]
        return {**body, "metadata": {**self._dated(meta), "uid": meta.get("uid") or meta["name"]}, "status": status}

    def _dated(self, meta: Json) -> Json:
        version = str(meta.get("resourceVersion") or "0")
        created = meta.get("creationTimestamp") or self.now.isoformat()
        return {**meta, "resourceVersion": version, "creationTimestamp": created}

    def _add_pod(self, each: Document, pod: Pod) -> None:
        if pod.key in self.pods:
            raise ManifestError(f"{each.title}: pod {pod.namespace}/{pod.name} occurs twice")
        self.pods[pod.key] = pod

    def _read(self, resource: Resource[T], each: Document, body: Json) -> T:
        text = encode_document(each, without_floats(body))
        try:
            return self._decoders[resource].object(text)
        except ValueError as error:
            raise ManifestError(f"{each.title}: {error}") from error
