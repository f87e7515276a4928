"""Members of a managed instance group as Forebay knows them, from what Google lists.

`currentAction` says what the group is doing with a member, `instanceStatus` what its machine does, and `lastAttempt`
why the group could not do it so far. A group repairs its members by itself, so a member that is being recreated or
restarted is one that starts: Forebay follows that, and does not terminate it.

| currentAction                                | the member                                              |
|----------------------------------------------|---------------------------------------------------------|
| CREATING..., no instance yet                 | asked for; failed where lastAttempt says why            |
| CREATING..., RECREATING, RESTARTING, STARTING, RESUMING | starts                                       |
| NONE, VERIFYING, REFRESHING                  | runs; or stopped, in a group that does not repair       |
| DELETING, ABANDONING                         | is leaving the group                                    |
| any, targetStatus STOPPED or SUSPENDED       | of a standby pool: no member for Forebay                |
"""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from forebay.model.sources import Failure, Instance, InstancePhase
from forebay.providers.base import GroupMember, ProviderError
from forebay.providers.gcp.errors import GoogleErrors
from forebay.providers.gcp.group_wire import ManagedInstance
from forebay.providers.gcp.machines import PHASES
from forebay.providers.gcp.wire import Operation, OperationErrors, last_part

LEAVING: Final = frozenset({"DELETING", "ABANDONING"})
_CREATING: Final = frozenset({"CREATING", "CREATING_WITHOUT_RETRIES"})
_STARTING: Final = _CREATING | {"RECREATING", "RESTARTING", "STARTING", "RESUMING"}
_STANDBY: Final = frozenset({"STOPPED", "SUSPENDED"})
_NOT_THERE_YET: Final = frozenset({"", "PENDING"})


def zone_of(found: ManagedInstance) -> str:
    """The zone in the instance's URL; "" for a queued one, which has no URL."""
    _, zones, rest = found.instance.partition("/zones/")
    return rest.partition("/")[0] if zones else ""


def exists(found: ManagedInstance) -> bool:
    """Whether there is a machine."""
    return bool(found.id) and found.instance_status not in _NOT_THERE_YET


def counts(found: ManagedInstance) -> bool:
    """Whether it is a member for Forebay: a standby pool is the user's own."""
    return found.target_status not in _STANDBY


def member(
    found: ManagedInstance, project: str, created: datetime | None, errors: GoogleErrors, *, repairs: bool
) -> GroupMember:
    """`repairs`: the group recreates members that have failed."""
    failure = creation_failure(found, errors)
    if found.current_action in LEAVING:
        return GroupMember(name=found.name, instance=_instance(found, project, InstancePhase.ENDING, created))
    if not exists(found):
        if found.current_action in _CREATING or not found.current_action:
            return GroupMember(name=found.name, failure=failure)
        # Its group repairs it: it has been there, and will be again.
        told = replace(_instance(found, project, InstancePhase.STARTING, created), message=failure and failure.sentence)
        return GroupMember(name=found.name, instance=told, failure=failure)
    phase = PHASES.get(found.instance_status, InstancePhase.RUNNING)
    # The group, or Google itself, is about to do something about a machine that is stopped or broken.
    mends = phase is InstancePhase.FAILED or repairs or found.current_action in _STARTING
    if mends and phase is not InstancePhase.RUNNING:
        phase = InstancePhase.STARTING
    return GroupMember(name=found.name, instance=_instance(found, project, phase, created), failure=failure)


def creation_failure(found: ManagedInstance, errors: GoogleErrors) -> Failure | None:
    """Why the group could not do what it wants to do with the member."""
    last = found.last_attempt.errors if found.last_attempt is not None else None
    return None if last is None else failure_of(last, f"Creation of {found.name}", errors)


def failure_of(said: OperationErrors, what: str, errors: GoogleErrors) -> Failure | None:
    ended = Operation(name="", status="DONE", error=said)
    failure = errors.of_operation(ended, what=what, correct="Correct the instance template.")
    return failure.failure() if isinstance(failure, ProviderError) else None


def _instance(found: ManagedInstance, project: str, phase: InstancePhase, created: datetime | None) -> Instance:
    zone = zone_of(found)
    return Instance(
        id=found.name,
        phase=phase,
        created=created,
        node_name=found.name,
        ends_at=found.scheduling.termination_timestamp if found.scheduling is not None else None,
        provider_id=f"gce://{project}/{zone}/{found.name}" if exists(found) and zone else None,
    )


def instance_key(url: str) -> str:
    """`ZONE/NAME` of an instance's URL."""
    _, _, rest = url.partition("/zones/")
    return f"{rest.partition('/')[0]}/{last_part(url)}"
