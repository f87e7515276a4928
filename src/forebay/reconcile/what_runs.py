"""What runs, as far as planning looks at it: the pods that rules about zones count, and the members of gangs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from forebay.demand.planned_pods import planned_nodes
from forebay.demand.reservation import Reservation
from forebay.model.workloads import Pod
from forebay.planning.gangs import TOGETHER, Gang, GangKey, gang_key
from forebay.planning.plan import RunningPod
from forebay.reconcile.snapshot import Snapshot

NO_RESERVATIONS: Final[Mapping[str, Reservation]] = MappingProxyType({})


def looks_at_other_pods(pods: Iterable[Pod]) -> bool:
    """Whether any of the pods has a rule about other pods, or belongs to a gang."""
    return any(
        pod.shape.pod_affinity or pod.shape.pod_anti_affinity or pod.shape.topology_spread or gang_key(pod) is not None
        for pod in pods
    )


def running_pods(snapshot: Snapshot) -> tuple[RunningPod, ...]:
    return tuple(
        RunningPod(
            namespace=pod.namespace,
            labels=pod.labels,
            node_labels=node.labels,
            node_name=name,
            node_taints=node.taints,
        )
        for name, pods in snapshot.pods_by_node.items()
        if (node := snapshot.nodes.get(name)) is not None
        for pod in pods
    )


def known_gangs(
    snapshot: Snapshot, pods: Sequence[Pod], reserved: Mapping[str, Reservation] = NO_RESERVATIONS
) -> dict[GangKey, Gang]:
    """The gangs of the pods to plan for, with the number of their other pods that run or wait.

    `reserved` are pods (by UID) with room on a free or launching node.
    """
    asked = {key for pod in pods if (key := gang_key(pod)) is not None}
    if not asked:
        return {}
    shares = {key for pod in pods if TOGETHER in pod.annotations and (key := gang_key(pod)) is not None}
    nodes: defaultdict[GangKey, set[str]] = defaultdict(set)
    placed: Counter[GangKey] = Counter()
    planned_for = {pod.uid for pod in pods}
    elsewhere = {pod.uid: pod for pod in snapshot.pending if pod.uid not in planned_for}
    launching = planned_nodes(snapshot.records, elsewhere.keys())
    for name, pod in ((name, pod) for name, on_node in snapshot.pods_by_node.items() for pod in on_node):
        if (key := gang_key(pod)) is not None and key in asked:
            placed[key] += 1
            nodes[key].add(name)
    others: Counter[GangKey] = Counter()
    for uid, pod in elsewhere.items():
        if (key := gang_key(pod)) is not None and key in asked:
            (placed if uid in launching or uid in reserved else others)[key] += 1
            nodes[key] |= {reserved[uid].node} if uid in reserved else launching.get(uid, set())
    labels = _node_labels(snapshot) if shares else {}
    return {
        key: Gang(
            placed=placed[key],
            others=others[key],
            nodes=tuple(labels[name] for name in sorted(nodes[key]) if name in labels) if key in shares else (),
        )
        for key in sorted(asked)
    }


def _node_labels(snapshot: Snapshot) -> dict[str, Mapping[str, str]]:
    """Labels of the nodes that are there, and that those which are launching will have."""
    planned = (record.spec.node for record in snapshot.records)
    found: dict[str, Mapping[str, str]] = {each.name: each.labels for each in planned if each is not None}
    return found | {name: node.labels for name, node in snapshot.nodes.items()}
