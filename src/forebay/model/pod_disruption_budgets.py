"""PodDisruptionBudgets: how many pods of a set may be evicted now."""

import msgspec

from forebay.model.requirements import LabelSelector
from forebay.model.workloads import Pod


class PodDisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget, as far as it decides about evictions."""

    namespace: str
    name: str
    uid: str
    resource_version: int
    #: None: it selects no pod.
    selector: LabelSelector | None = None
    #: Pods that may be evicted now; 0 while Kubernetes has not counted them since the last change.
    allowed: int = 0

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def selects(self, pod: Pod) -> bool:
        return self.selector is not None and pod.namespace == self.namespace and self.selector.matches(pod.labels)
