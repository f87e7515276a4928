"""An independent check of plans that shares nothing with the planner."""

from collections import Counter
from collections.abc import Sequence

from forebay.model.workloads import Pod
from forebay.planning.plan import Candidate, Plan


def check(pods: Sequence[Pod], offers: Sequence[Candidate], made: Plan) -> None:
    """Every pod is placed or has a reason, pods fit on their nodes, and no more is bought than is in stock."""
    seen = Counter(pod.uid for purchase in made.purchases for pod in purchase.pods)
    seen.update(left.pod.uid for left in made.left_out)
    assert seen == Counter(pod.uid for pod in pods), "a pod is missing, or is there twice"
    known = {id(offer) for offer in offers}
    for purchase in made.purchases:
        node = purchase.candidate.node
        assert id(purchase.candidate) in known, "a candidate was bought that is not offered"
        assert purchase.pods, "a node was bought for no pod"
        free = dict(node.allocatable)
        for pod in purchase.pods:
            for key, value in pod.shape.node_selector.items():
                assert node.labels.get(key) == value, f"{pod.name} is where it must not be"
            for name, amount in pod.shape.requests.items():
                free[name] = free.get(name, 0) - amount
        assert min(free.values(), default=0) >= 0, "a node is overfull"
    bought = Counter(id(purchase.candidate) for purchase in made.purchases)
    for offer in offers:
        assert offer.available is None or bought[id(offer)] <= offer.available, "more is bought than is in stock"
    assert made.cost >= made.bound, "the cost is below the bound"
