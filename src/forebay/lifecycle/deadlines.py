"""Deadlines of a launch: for a running machine, for a registered node, for its GPUs."""

from datetime import datetime

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.parts import Truth
from forebay.lifecycle.deliveries.policies import policy_of
from forebay.lifecycle.deliveries.policy import boot_deadline
from forebay.lifecycle.transitions import MACHINE_RUNNING, condition
from forebay.model.sources import Capabilities


def deadline(record: GPUInstance, status: GPUInstanceStatus, capabilities: Capabilities) -> datetime | None:
    """When the state of `status` counts as failed if nothing has come of it; None for a state without a deadline."""
    since = status.since or record.metadata.creation_timestamp
    if since is None or status.state not in (InstanceState.LAUNCHING, InstanceState.LAUNCHED, InstanceState.JOINED):
        return None
    if status.state is InstanceState.LAUNCHING:
        return since + capabilities.launch_deadline
    boot = boot_deadline(record)
    if boot is not None:
        # The user stated one limit for all of it, from the launch call on.
        return (status.attempted_at or since) + boot
    if status.state is InstanceState.JOINED:
        return since + capabilities.gpu_deadline
    running = condition(status, MACHINE_RUNNING)
    running_since = running.last_transition_time if running is not None and running.status is Truth.TRUE else None
    return policy_of(record).launched_deadline(since, running_since, capabilities)
