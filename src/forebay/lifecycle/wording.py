"""Phrases that every sentence about a GPUInstance shares, so that one thing always has one name."""

from forebay.api.gpu_instance import GPUInstance, Purpose
from forebay.lifecycle.deliveries.policies import policy_of


def describe(record: GPUInstance) -> str:
    """What the record stands for: `gpu-1`, `a100x2 in us-east at simulated`, `simulated instance i-1`."""
    return policy_of(record).describe(record)


def launch_noun(record: GPUInstance) -> str:
    return policy_of(record).words.launch_call.capitalize()


def launch_phrase(record: GPUInstance) -> str:
    """`Powering on gpu-1`, `Launching a100x2 in us-east at simulated`."""
    return f"{policy_of(record).words.launching.capitalize()} {describe(record)}"


def termination_noun(record: GPUInstance) -> str:
    return policy_of(record).words.termination.capitalize()


def termination_phrase(record: GPUInstance) -> str:
    """`Powering off gpu-1`, `Terminating a100x2 in us-east at simulated`."""
    return f"{policy_of(record).words.terminating.capitalize()} {describe(record)}"


def terminating_it(record: GPUInstance) -> str:
    """`termination_phrase` where the sentence has named the machine already."""
    return policy_of(record).words.terminating_it.capitalize()


def terminated(record: GPUInstance) -> str:
    return policy_of(record).words.terminated


def for_pods(record: GPUInstance) -> str:
    """The pods that the record was created for: `team/a and 4 more`."""
    pods = record.spec.pods
    if not pods:
        if record.purpose is Purpose.STATIC:
            return "minNodes of its pool"
        reference = record.spec.provisioner_ref
        return "no pod in particular" if reference is None else f"the target of NodeProvisioner {reference.name}"
    first = f"{pods[0].namespace}/{pods[0].name}"
    return first if len(pods) == 1 else f"{first} and {len(pods) - 1} more"
