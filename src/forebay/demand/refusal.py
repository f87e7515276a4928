"""Refusals: pods that the scheduler does not place on a node launched for them, and until when that holds.

A refusal is recorded on the pod, as the condition `REFUSED_CONDITION` with the scheduler's message. Records of machines
expire; the pod, and what is wrong with it, may stay for weeks.
"""

import re
from typing import Final

import msgspec

from forebay.model.workloads import Pod

#: What kube-scheduler writes before the reasons, and before the reasons why preemption does not help.
_PREFIX: Final = re.compile(r"^\d+/\d+ nodes are available: ")
_PREEMPTION: Final = " preemption: "


class RecordRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Write the pod's `REFUSED_CONDITION`."""

    pod: Pod
    #: The scheduler's message; None: the refusal no longer holds.
    message: str | None


def refusal_holds(pod: Pod) -> bool:
    """Whether the recorded refusal of the pod still stands, so that another machine would fare no better.

    Reasons that lie in the pod itself ("pod has unbound immediate PersistentVolumeClaims") stand in every message until
    they are resolved. Reasons that count nodes go with the machine when it is powered off: they stand as long as the
    pod does.
    """
    if pod.refusal is None:
        return False
    own = _reasons_of_pod(pod.refusal)
    return not own or any(reason in (pod.unschedulable_message or "") for reason in own)


def _reasons_of_pod(message: str) -> list[str]:
    """The reasons that do not begin with a number of nodes."""
    reasons = _PREFIX.sub("", message).partition(_PREEMPTION)[0].rstrip(". ")
    return [each for each in reasons.split(", ") if each and not each[0].isdigit()]
