"""Pods that are of use only together."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from forebay.model.requirements import integer
from forebay.model.workloads import Pod

#: On the pods of a group: its name. With the kube-scheduler plugins' own label, the group is known by that.
POD_GROUP: Final = "forebay.dev/pod-group"
POD_GROUP_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
#: On the pods of a Job (or another owner): "true" makes a group of all pods of the owner; a number is its least size.
GANG: Final = "forebay.dev/gang"
#: How many pods the group needs at least. Default: all that there are.
MIN_COUNT: Final = "forebay.dev/pod-group-min-count"
#: `zone`, `region` or `provider`: all pods of the group must share one.
TOGETHER: Final = "forebay.dev/together"


class GangKey(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a group beyond the annotations of its pods."""

    #: Pods that must have a place for any of them to be of use. None: as the pods say, else all.
    min_count: int | None = None
    #: Of these, those which already run or have capacity coming.
    placed: int = 0
    #: Node label whose value all must share.
    together: str | None = None


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
    """As the pod says. A number that cannot be read counts as not given: then all are needed."""
    for key in (MIN_COUNT, GANG):
        count = integer(pod.annotations.get(key, ""))
        if count is not None and count > 0:
            return count
    return None
