"""Whether PodDisruptionBudgets let pods be evicted: asked before a move, which nobody has to make."""

from collections.abc import Collection, Iterable

from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.workloads import Pod, pod_names


def eviction_refused(pods: Collection[Pod], budgets: Iterable[PodDisruptionBudget]) -> str | None:
    """Why these pods cannot all be evicted now, as a clause; None where they can."""
    by_pod: dict[str, PodDisruptionBudget] = {}
    for budget in budgets:
        selected = [pod for pod in pods if budget.selects(pod)]
        if len(selected) > budget.allowed:
            return (
                f"PodDisruptionBudget {budget.namespace}/{budget.name} lets {budget.allowed} of its pods be evicted "
                f"now, and {pod_names(selected)} would have to move"
            )
        for pod in selected:
            other = by_pod.setdefault(pod.uid, budget)
            if other is not budget:
                # Kubernetes refuses to evict such a pod at all.
                return (
                    f"{pod_names([pod])} has two PodDisruptionBudgets, {other.name} and {budget.name}, so that it "
                    "cannot be evicted"
                )
    return None
