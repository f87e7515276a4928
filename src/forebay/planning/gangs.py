"""Gangs: pods that are of use only together, and the annotations and labels that name them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from forebay.model.requirements import integer
from forebay.model.workloads import Pod

#: Annotation: name of the pod's gang. The labels of the kube-scheduler plugins name it too.
POD_GROUP: Final = "forebay.dev/pod-group"
POD_GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
#: Annotation on pods with an owner: "true" makes a gang of all pods of the owner; a number is the gang's least size.
GANG: Final = "forebay.dev/gang"
#: Annotation: least number of pods that the gang needs. Default: all of them.
MIN_COUNT: Final = "forebay.dev/pod-group-min-count"
#: Annotation `zone`, `region` or `provider`: all pods of the gang must share one.
TOGETHER: Final = "forebay.dev/together"


class GangKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a gang beyond the annotations of its pods."""

    #: Least number of pods that must run for any of them to be of use. None: as annotated, else all.
    min_count: int | None = None
    #: Pods of the gang that already run or have room on a free or launching node.
    placed: int = 0
    #: Pods of the gang that wait, and that capacity cannot be planned for: the scheduler has not tried them yet or has
    #: refused a node launched for them, or they are gated.
    others: int = 0
    #: Label whose value the nodes of all its pods must share.
    together: str | None = None
    #: Labels of the nodes of those that are placed, where the gang must share something.
    nodes: tuple[Mapping[str, str], ...] = ()


Gangs = Mapping[GangKey, Gang]


def gang_key(pod: Pod) -> GangKey | None:
    if name := pod.annotations.get(POD_GROUP):
        return GangKey(pod.namespace, name)
    if pod.owner is not None and pod.annotations.get(GANG, "false") not in ("false", "0", ""):
        return GangKey(pod.namespace, pod.owner.name)
    for label in POD_GROUP_LABELS:
        if name := pod.labels.get(label):
            return GangKey(pod.namespace, name)
    return None


def least_size(pod: Pod) -> int | None:
    """Least size of the gang by the pod's annotations; None where no valid number is given: then all are needed."""
    for key in (MIN_COUNT, GANG):
        count = integer(pod.annotations.get(key, ""))
        if count is not None and count > 0:
            return count
    return None
