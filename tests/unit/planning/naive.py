"""An independent check of plans, pod by pod. Shares nothing with the planner but its input and result types."""

from collections import Counter, defaultdict


def violations(pods, candidates, caps, plan, gangs=None):
    found = []
    seen = Counter(pod.uid for purchase in plan.purchases for pod in purchase.pods)
    seen.update(left.pod.uid for left in plan.left_out)
    if seen != Counter(pod.uid for pod in pods):
        found.append("a pod is missing or there twice")
    for purchase in plan.purchases:
        found += _node(purchase)
        if purchase.candidate not in candidates:
            found.append("bought a candidate that is not offered")
    found += _zones(plan, candidates)
    found += _stock(plan)
    found += _caps(plan, caps)
    found += _gangs(pods, plan, gangs or {})
    if plan.cost < plan.bound:
        found.append(f"the cost {plan.cost} is below the bound {plan.bound}")
    if any(not left.sentence for left in plan.left_out) or any(not each.sentence for each in plan.purchases):
        found.append("a sentence is missing")
    return found


def may_go(pod, candidate):
    """Whether the pod may run on an empty node of the candidate."""
    shape, node = pod.shape, candidate.node
    if candidate.namespaces is not None and pod.namespace not in candidate.namespaces:
        return False
    for taint in node.taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(each, taint) for each in shape.tolerations):
            return False
    if any(node.labels.get(key) != value for key, value in shape.node_selector.items()):
        return False
    if shape.node_affinity is not None and not any(_term(term, node) for term in shape.node_affinity):
        return False
    return all(node.allocatable.get(name, 0) >= amount for name, amount in shape.requests.items())


def _tolerates(toleration, taint):
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or toleration.value == taint.value


def _term(term, node):
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_holds(each, node.labels.get(each.key)) for each in term.match_expressions)


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


def _selects(owner, selector, other):
    if other.namespace != owner.namespace or selector is None:
        return False
    return all(other.labels.get(key) == value for key, value in selector.match_labels.items())


def _node(purchase):
    found = []
    used, ports = Counter(), Counter()
    for pod in purchase.pods:
        if not may_go(pod, purchase.candidate):
            found.append(f"{pod.name} is where it must not be")
        used.update(dict(pod.shape.requests))
        ports.update(pod.shape.host_ports)
        for term in pod.shape.pod_anti_affinity:
            others = [other for other in purchase.pods if other is not pod and _selects(pod, term.selector, other)]
            if term.topology_key == "kubernetes.io/hostname" and others:
                found.append(f"{pod.name} is beside pods it keeps away from")
        for spread in pod.shape.topology_spread:
            alike = [other for other in purchase.pods if _selects(pod, spread.selector, other)]
            if spread.topology_key == "kubernetes.io/hostname" and len(alike) > spread.max_skew:
                found.append(f"{pod.name} is beside too many like it")
    if any(amount > purchase.candidate.node.allocatable.get(name, 0) for name, amount in used.items()):
        found.append("a node is overfull")
    if any(count > 1 for count in ports.values()):
        found.append("a host port is taken twice")
    if not purchase.pods:
        found.append("a node was bought for no pod")
    return found


def _zones(plan, candidates):
    found = []
    placed = [(pod, each.candidate.node.labels) for each in plan.purchases for pod in each.pods]
    for pod, labels in placed:
        for term in pod.shape.pod_anti_affinity:
            zone = labels.get(term.topology_key)
            if term.topology_key != "kubernetes.io/hostname" and any(
                other is not pod and _selects(pod, term.selector, other) and there.get(term.topology_key) == zone
                for other, there in placed
            ):
                found.append(f"{pod.name} shares its zone with pods it keeps away from")
        for spread in pod.shape.topology_spread:
            if spread.topology_key == "kubernetes.io/hostname":
                continue
            counts = Counter(
                there.get(spread.topology_key) for other, there in placed if _selects(pod, spread.selector, other)
            )
            eligible = {
                c.node.labels.get(spread.topology_key) for c in candidates if c.available != 0 and may_go(pod, c)
            }
            fewest = min(counts[zone] for zone in eligible - {None})
            mine = counts[labels.get(spread.topology_key)]
            if _selects(pod, spread.selector, pod) and mine - fewest > spread.max_skew:
                found.append(f"{pod.name} is in a zone with too many like it")
    return found


def _stock(plan):
    bought = Counter()
    limits = {}
    for each in plan.purchases:
        offer = each.candidate.offer
        key = (each.candidate.source, offer.key, offer.node_name)
        bought[key] += 1
        limit = 1 if offer.node_name is not None else each.candidate.available
        if limit is not None:
            limits[key] = min(limit, limits.get(key, limit))
    return [f"more of {key} than there is" for key, limit in limits.items() if bought[key] > limit]


def _caps(plan, caps):
    found = []
    for cap in caps:
        mine = [each.candidate for each in plan.purchases if each.candidate.pool in cap.pools]
        if cap.nodes is not None and len(mine) > cap.nodes:
            found.append(f"{cap.name}: too many nodes")
        paid = sum((each.offer.price.amount for each in mine), start=0)
        if cap.hourly_cost is not None and paid > cap.hourly_cost.amount:
            found.append(f"{cap.name}: too expensive")
        for name, most in (cap.resources or {}).items():
            if sum(each.node.capacity.get(name, 0) for each in mine) > most:
                found.append(f"{cap.name}: too much {name}")
    return found


def _gangs(pods, plan, gangs):
    found = []
    members = defaultdict(set)
    for pod in pods:
        if name := pod.annotations.get("forebay.dev/pod-group"):
            members[pod.namespace, name].add(pod.uid)
    served = {pod.uid for each in plan.purchases for pod in each.pods}
    for key, group in members.items():
        if 0 < len(group & served) < gangs.get(key, len(group)):
            found.append(f"the group {key} is served in part")
    return found
