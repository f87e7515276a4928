"""An independent check of plans, pod by pod, written from the rules of kube-scheduler.

Shares nothing with the planner but its input and result types. Slow and plain on purpose.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"


class Instance(NamedTuple):
    """One input of the planner."""

    pods: list
    candidates: list
    caps: Sequence = ()
    #: By (namespace, name), as `plan` takes them.
    gangs: Mapping = MappingProxyType({})
    running: Sequence = ()
    nodes: Sequence = ()


def violations(instance, plan):
    """What is wrong with a plan, as sentences. None: every rule is kept."""
    found = []
    seen = Counter(pod.uid for purchase in plan.purchases for pod in purchase.pods)
    seen.update(left.pod.uid for left in plan.left_out)
    if seen != Counter(pod.uid for pod in instance.pods):
        found.append("a pod is missing or there twice")
    if any(purchase.candidate not in instance.candidates for purchase in plan.purchases):
        found.append("bought a candidate that is not offered")
    if any(not purchase.pods for purchase in plan.purchases):
        found.append("a node was bought for no pod")
    nodes = [(purchase.candidate, list(purchase.pods)) for purchase in plan.purchases]
    for node in nodes:
        found += wrong_on_node(*node)
    found += over_stock([candidate for candidate, _ in nodes])
    found += over_limits([candidate for candidate, _ in nodes], instance.caps)
    found += wrong_places(nodes, instance)
    found += incomplete_gangs(nodes, instance)
    if plan.cost < plan.bound:
        found.append(f"the cost {plan.cost} is below the bound {plan.bound}")
    if any(not left.sentence for left in plan.left_out) or any(not each.sentence for each in plan.purchases):
        found.append("a sentence is missing")
    return found


def may_go(pod, candidate):
    """Whether the pod may run on an empty node of the candidate."""
    return admits(pod, candidate) and all(
        candidate.node.allocatable.get(name, 0) >= amount for name, amount in pod.shape.requests.items()
    )


def admits(pod, candidate):
    shape, node = pod.shape, candidate.node
    if candidate.namespaces is not None and pod.namespace not in candidate.namespaces:
        return False
    # A pod that says nothing of architectures has an image for amd64, unless its pool knows better.
    asked = {each.key for term in shape.node_affinity or () for each in term.match_expressions} | set(
        shape.node_selector
    )
    if node.labels.get(ARCH, "amd64") != "amd64" and ARCH not in asked and not candidate.any_architecture:
        return False
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in shape.tolerations):
            return False
    return _node_affinity(shape, node.labels)


def _node_affinity(shape, labels):
    if any(labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    return shape.node_affinity is None or any(_term(term, labels) for term in shape.node_affinity)


def _tolerates(toleration, taint):
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _term(term, labels):
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(each, labels.get(each.key)) for each in term.match_expressions)


def _holds(requirement, value):
    match requirement.operator.value:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(requirement.values[0])
        case "Lt":
            return value is not None and value.isdigit() and int(value) < int(requirement.values[0])


def _selects(owner, selector, namespaces, other):
    """`other`: a pod, or a running pod."""
    if other.namespace not in (namespaces or (owner.namespace,)) or selector is None:
        return False
    return all(other.labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(each, other.labels.get(each.key)) for each in selector.match_expressions
    )


def wrong_on_node(candidate, pods):
    found = []
    used, ports = Counter(), Counter()
    for pod in pods:
        if not may_go(pod, candidate):
            found.append(f"{pod.name} is where it must not be")
        used.update(dict(pod.shape.requests))
        ports.update(pod.shape.host_ports)
        for term in pod.shape.pod_anti_affinity:
            others = [
                other for other in pods if other is not pod and _selects(pod, term.selector, term.namespaces, other)
            ]
            if term.topology_key == HOSTNAME and others:
                found.append(f"{pod.name} is beside pods it keeps away from")
        for spread in pod.shape.topology_spread:
            alike = [other for other in pods if _selects(pod, spread.selector, (), other)]
            if spread.topology_key == HOSTNAME and len(alike) > spread.max_skew:
                found.append(f"{pod.name} is beside too many like it")
    if any(amount > candidate.node.allocatable.get(name, 0) for name, amount in used.items()):
        found.append("a node is overfull")
    if any(count > 1 for count in ports.values()):
        found.append("a host port is taken twice")
    return found


def wrong_places(nodes, instance):
    """Breaches of rules about zones and other places larger than a node."""
    found = []
    placed = [(pod, candidate.node.labels) for candidate, pods in nodes for pod in pods]
    everything = placed + [(pod, pod.node_labels) for pod in instance.running]
    for pod, labels in placed:
        for term in pod.shape.pod_anti_affinity:
            place = labels.get(term.topology_key)
            if term.topology_key == HOSTNAME or place is None:
                continue
            if any(
                other is not pod
                and _selects(pod, term.selector, term.namespaces, other)
                and there.get(term.topology_key) == place
                for other, there in everything
            ):
                found.append(f"{pod.name} shares its zone with pods it keeps away from")
        for term in pod.shape.pod_affinity:
            place = labels.get(term.topology_key)
            near = [
                there.get(term.topology_key)
                for other, there in everything
                if other is not pod and _selects(pod, term.selector, term.namespaces, other)
            ]
            # The first pod of a set that selects itself may go anywhere; the others then go where it is.
            alone = not near and _selects(pod, term.selector, term.namespaces, pod)
            if place is None or (place not in near and not alone):
                found.append(f"{pod.name} is not near the pods it wants to be near")
        found += _wrong_spread(pod, labels, everything, instance)
    return found


def _wrong_spread(pod, labels, everything, instance):
    found = []
    for spread in pod.shape.topology_spread:
        key = spread.topology_key
        if key == HOSTNAME:
            continue
        if labels.get(key) is None:
            found.append(f"{pod.name} is on a node without {key}")
            continue
        if not _selects(pod, spread.selector, (), pod):
            continue
        counts = Counter(
            there.get(key)
            for other, there in everything
            if _selects(pod, spread.selector, (), other) and _is_seen(pod, spread, other)
        )
        domains = spread_domains(pod, spread, instance)
        fewest = 0 if len(domains) < (spread.min_domains or 1) else min(counts[zone] for zone in domains)
        if counts[labels.get(key)] - fewest > spread.max_skew:
            found.append(f"{pod.name} is in a zone with too many like it")
    return found


def spread_domains(pod, spread, instance):
    key = spread.topology_key
    offered = {c.node.labels.get(key) for c in instance.candidates if c.available != 0 and may_go(pod, c)}
    there = {node.labels.get(key) for node in instance.nodes if _counts(pod, spread, node.labels, node.taints)}
    return (offered | there) - {None}


def _is_seen(pod, spread, other):
    """Whether the spread counts the other pod; of running pods, those on nodes to spread over."""
    return not hasattr(other, "node_labels") or _counts(pod, spread, other.node_labels, other.node_taints)


def _counts(pod, spread, labels, taints):
    """Whether a node of the cluster is one of those to spread over."""
    tolerated = all(
        taint.effect == "PreferNoSchedule" or any(_tolerates(each, taint) for each in pod.shape.tolerations)
        for taint in taints
    )
    return (tolerated or not spread.honors_node_taints) and (
        _node_affinity(pod.shape, labels) or not spread.honors_node_affinity
    )


def over_stock(bought):
    counts = Counter()
    limits = {}
    for candidate in bought:
        offer = candidate.offer
        key = (candidate.source, offer.key, offer.node_name)
        counts[key] += 1
        limit = 1 if offer.node_name is not None else candidate.available
        if limit is not None:
            limits[key] = min(limit, limits.get(key, limit))
    return [f"more of {key} than there is" for key, limit in limits.items() if counts[key] > limit]


def over_limits(bought, caps):
    found = []
    for cap in caps:
        mine = [candidate for candidate in bought if candidate.pool in cap.pools]
        if cap.nodes is not None and len(mine) > cap.nodes:
            found.append(f"{cap.name}: too many nodes")
        paid = sum((each.offer.price.amount for each in mine), start=0)
        if cap.hourly_cost is not None and paid > cap.hourly_cost.amount:
            found.append(f"{cap.name}: too expensive")
        for name, most in (cap.resources or {}).items():
            counted = sum(each.node.capacity.get(name, 0) for each in mine if each.node.capacity.get(name, 0) < 2**50)
            if counted > most:
                found.append(f"{cap.name}: too much {name}")
    return found


def incomplete_gangs(nodes, instance):
    """Gangs of which some pods but not enough get a node."""
    found = []
    members = defaultdict(list)
    for pod in instance.pods:
        if name := pod.annotations.get("forebay.dev/pod-group"):
            members[pod.namespace, name].append(pod)
    served = {pod.uid for _, pods in nodes for pod in pods}
    for key, pods in members.items():
        known = instance.gangs.get(key)
        stated = [pod.annotations.get("forebay.dev/pod-group-min-count") for pod in pods]
        least = max((int(each) for each in stated if each is not None), default=None)
        if known is not None and known.min_count is not None:
            least = known.min_count
        placed = known.placed if known is not None else 0
        others = known.others if known is not None else 0
        needed = len(pods) + others if least is None else max(least - placed, 0)
        got = sum(pod.uid in served for pod in pods)
        if 0 < got < needed:
            found.append(f"the gang {key} is served in part: {got} of {needed}")
        key_together = pods[0].annotations.get("forebay.dev/together")
        if got and key_together == "zone":
            zones = {
                candidate.node.labels.get("topology.kubernetes.io/zone")
                for candidate, there in nodes
                if any(pod in pods for pod in there)
            }
            if len(zones) > 1 or None in zones:
                found.append(f"the gang {key} is in {len(zones)} zones")
            there = {labels.get("topology.kubernetes.io/zone") for labels in (known.nodes if known else ())} - {None}
            if there and not zones <= there:
                found.append(f"the gang {key} is in {zones}, and runs in {there}")
    return found


def rank(instance, plan_nodes):
    """Sort key of a way to serve the pods, least is best: pods left out, highest priority first, then the cost."""
    served = {pod.uid for _, pods in plan_nodes for pod in pods}
    left = Counter(pod.shape.priority for pod in instance.pods if pod.uid not in served)
    priorities = sorted({pod.shape.priority for pod in instance.pods}, reverse=True)
    cost = sum((candidate.effective_price.amount for candidate, _ in plan_nodes), start=0)
    return (tuple(left[priority] for priority in priorities), cost)


def brute_force(instance):
    """Rank of the best plan, by trying every way to share nodes. For a handful of pods without preferences."""
    best = [rank(instance, [])]
    pods = instance.pods

    def leaf(nodes):
        mine = rank(instance, nodes)
        if mine < best[0] and not wrong_places(nodes, instance) and not incomplete_gangs(nodes, instance):
            best[0] = mine

    def go(at, nodes, room_of_last):
        if at == len(pods):
            leaf(nodes)
            return
        pod = pods[at]
        go(at + 1, nodes, None)
        # A pod that is like the one before goes to no earlier node than that: the other order is the same plan.
        first = room_of_last[1] if room_of_last is not None and room_of_last[0] is pod.shape else 0
        for number in range(first, len(nodes)):
            candidate, there = nodes[number]
            there.append(pod)
            if not wrong_on_node(candidate, there):
                go(at + 1, nodes, (pod.shape, number))
            there.pop()
        for candidate in instance.candidates:
            if not may_go(pod, candidate):
                continue
            nodes.append((candidate, [pod]))
            bought = [each for each, _ in nodes]
            if not over_stock(bought) and not over_limits(bought, instance.caps):
                go(at + 1, nodes, (pod.shape, len(nodes) - 1))
            nodes.pop()

    go(0, [], None)
    return best[0]
