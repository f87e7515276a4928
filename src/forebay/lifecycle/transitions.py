"""The table of a GPUInstance's transitions. Nothing else changes a state; docs/lifecycle.md is drawn from it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState, Transition
from forebay.api.parts import Condition, Truth
from forebay.model.reasons import Reason

S = InstanceState
R = Reason

#: The GPUInstance, its pool or its class was deleted: whatever runs there has to leave.
_REVOKED: Final = frozenset({R.DELETED, R.POOL_GONE})
_NO_NODE: Final = frozenset({R.LAUNCH_TIMEOUT, R.JOIN_TIMEOUT})
_NO_GPUS: Final = frozenset({R.JOIN_TIMEOUT, R.GPUS_MISSING})
#: Its NodeProvisioner was deleted, which leaves the member in its group.
_LEFT_IN_GROUP: Final = frozenset({R.LEFT_IN_GROUP})
_VANISHED: Final = frozenset({R.VANISHED})
_RECLAIMED: Final = frozenset({R.RECLAIMED})
_CONTAINER_ENDED: Final = frozenset({R.CONTAINER_FINISHED, R.CONTAINER_FAILED})
#: The provider's answer guarantees that nothing was started.
_REFUSED: Final = frozenset(
    {R.NO_CAPACITY, R.PROVIDER_QUOTA, R.LAUNCH_REJECTED, R.BAD_CREDENTIALS, R.RATE_LIMITED, R.PROVIDER_UNAVAILABLE}
)

#: Which state may follow which, and for which reasons. None: the record has just been created.
TABLE: Final[Mapping[InstanceState | None, Mapping[InstanceState, frozenset[Reason]]]] = {
    None: {
        S.REQUESTED: frozenset({R.CAPACITY_NEEDED, R.GROUP_TARGET, R.MIN_NODES}),
        S.LAUNCHED: frozenset({R.ADOPTED}),
        S.JOINED: frozenset({R.ADOPTED}),
        S.READY: frozenset({R.ADOPTED}),
        S.TERMINATING: frozenset({R.LEFTOVER, R.DUPLICATE}),
    },
    S.REQUESTED: {
        S.LAUNCHING: frozenset({R.LAUNCH_STARTED}),
        S.LAUNCHED: frozenset({R.ADOPTED}),
        S.GONE: _REVOKED
        | _LEFT_IN_GROUP
        | {R.NOT_NEEDED, R.PROVIDER_NOT_CONFIGURED, R.COOLING_DOWN, R.UNDER_MAINTENANCE}
        # The class or pool was changed before the launch, or the virtual node was cordoned.
        | {R.PROVIDER_DISABLED, R.PRICE_TOO_HIGH, R.LIMIT_REACHED, R.NOT_ALLOWED},
    },
    S.LAUNCHING: {
        S.LAUNCHING: frozenset({R.LAUNCH_STARTED}),
        S.LAUNCHED: frozenset({R.LAUNCH_ACCEPTED, R.ADOPTED}),
        S.REQUESTED: frozenset({R.RATE_LIMITED, R.PROVIDER_UNAVAILABLE, R.CONTAINER_CONFIG_ERROR}),
        S.TERMINATING: _REVOKED | {R.NOT_NEEDED, R.LAUNCH_FAILED, R.LAUNCH_TIMEOUT, R.UNDER_MAINTENANCE},
        # Not needed: its pod was lost to another node before the provider was called.
        S.GONE: _REFUSED | _LEFT_IN_GROUP | {R.NOT_NEEDED},
    },
    S.LAUNCHED: {
        S.JOINED: frozenset({R.NODE_JOINED}),
        S.RUNNING: frozenset({R.CONTAINER_RUNNING}),
        S.FINISHED: _CONTAINER_ENDED,
        S.DRAINING: _REVOKED | _NO_NODE | _RECLAIMED,
        S.TERMINATING: _REVOKED | _NO_NODE | _RECLAIMED | {R.LAUNCH_FAILED, R.NOT_NEEDED, R.PRICE_RAISED},
        S.GONE: _VANISHED | _LEFT_IN_GROUP,
    },
    S.JOINED: {
        S.READY: frozenset({R.NODE_READY}),
        S.DRAINING: _REVOKED | _NO_GPUS | _RECLAIMED,
        S.TERMINATING: _REVOKED | _NO_GPUS | _RECLAIMED | {R.LAUNCH_FAILED},
        S.GONE: _VANISHED | _LEFT_IN_GROUP,
    },
    S.READY: {
        S.DRAINING: _REVOKED | _RECLAIMED | {R.IDLE, R.UNDERUTILIZED, R.EXPIRED, R.DRIFTED, R.UNHEALTHY},
        S.TERMINATING: _REVOKED | _RECLAIMED | {R.UNHEALTHY},
        S.GONE: _VANISHED | _LEFT_IN_GROUP,
    },
    S.RUNNING: {
        S.FINISHED: _CONTAINER_ENDED,
        S.TERMINATING: _REVOKED | {R.EXPIRED, R.NOT_NEEDED, R.PRICE_RAISED},
        S.GONE: _VANISHED,
    },
    S.FINISHED: {
        S.TERMINATING: _REVOKED | {R.CONTAINER_FINISHED},
        S.GONE: _VANISHED,
    },
    S.DRAINING: {
        S.READY: frozenset({R.BACK_IN_USE, R.NODE_READY, R.UNDER_MAINTENANCE}),
        # It was to go if it stayed empty; now it has to go.
        S.DRAINING: _REVOKED,
        S.TERMINATING: _REVOKED
        | _NO_NODE
        | _NO_GPUS
        | _RECLAIMED
        | {R.IDLE, R.UNDERUTILIZED, R.EXPIRED, R.DRIFTED, R.UNHEALTHY},
        S.GONE: _VANISHED | _LEFT_IN_GROUP,
    },
    S.TERMINATING: {
        # No termination was accepted, and pods wait for the machine.
        S.READY: frozenset({R.BACK_IN_USE}),
        S.GONE: frozenset({R.TERMINATED}) | _LEFT_IN_GROUP,
    },
    S.GONE: {},
}

#: States in which the condition Ready is True.
SERVING: Final = frozenset({S.READY, S.RUNNING})
MOST_TRANSITIONS: Final = 64
LONGEST_MESSAGE: Final = 2048

#: Conditions of a GPUInstance, beside `Idle`, which `disruption` keeps.
READY: Final = "Ready"
NODE_READY: Final = "NodeReady"
MACHINE_RUNNING: Final = "MachineRunning"


class IllegalTransition(AssertionError):
    """A bug of Forebay's: the table does not allow this transition."""

    def __init__(self, before: InstanceState | None, to: InstanceState, reason: Reason) -> None:
        super().__init__(f"the transition table has no step from {before or 'nothing'} to {to} because of {reason}")


def transition(
    status: GPUInstanceStatus | None,
    to: InstanceState,
    reason: Reason,
    sentence: str,
    now: datetime,
    **changes: Any,
) -> GPUInstanceStatus:
    """The status after a transition of the table, with `changes` to its other fields.

    Fields that belonged to the state before (`deadline`, `not_before`) are cleared unless they are among the changes.
    """
    before = status.state if status is not None else None
    if before is None and to not in TABLE[None]:
        # A record is created without a status, which means Requested.
        before = S.REQUESTED
    if reason not in TABLE[before].get(to, ()):
        raise IllegalTransition(before, to, reason)
    at, message = whole_seconds(now), shortened(sentence)
    old = status or GPUInstanceStatus()
    transitions = (*old.transitions, Transition(state=to, at=at, reason=reason, message=message))
    if len(transitions) > MOST_TRANSITIONS:
        # The first transition and the latest ones tell most.
        transitions = (transitions[0], *transitions[1 - MOST_TRANSITIONS :])
    new = replace(
        old,
        state=to,
        reason=reason,
        message=message,
        since=at,
        transitions=transitions,
        **{"deadline": None, "not_before": None, **changes},
    )
    return with_condition(new, READY, to in SERVING, reason, message, now)


def with_message(status: GPUInstanceStatus, reason: Reason, sentence: str, **changes: Any) -> GPUInstanceStatus:
    """The same state with another reason and message; equal to `status` where it has these already."""
    return replace(status, reason=reason, message=shortened(sentence), **changes)


def restore_message(status: GPUInstanceStatus) -> GPUInstanceStatus:
    """The status with the reason and message of its last transition: undoes `with_message`."""
    last = status.transitions[-1] if status.transitions else None
    if last is None:
        return replace(status, reason=None, message=None)
    return replace(status, reason=last.reason, message=last.message)


def cause(status: GPUInstanceStatus | None) -> str | None:
    """Reason of the last transition, whatever `with_message` has written since."""
    if status is None:
        return None
    return status.transitions[-1].reason if status.transitions else status.reason


def with_condition(  # noqa: PLR0917 (a condition has so many fields)
    status: GPUInstanceStatus,
    type: str,  # noqa: A002 (a condition's own word)
    holds: bool,  # noqa: FBT001 (the fact itself)
    reason: Reason,
    sentence: str,
    now: datetime,
) -> GPUInstanceStatus:
    """The status with this condition. The transition time changes only when the condition's truth does."""
    truth = Truth.TRUE if holds else Truth.FALSE
    before = condition(status, type)
    fact = Condition(
        type=type,
        status=truth,
        reason=reason,
        message=shortened(sentence),
        last_transition_time=(
            before.last_transition_time if before is not None and before.status is truth else whole_seconds(now)
        ),
    )
    if before is None:
        return replace(status, conditions=(*status.conditions, fact))
    return replace(status, conditions=tuple(fact if each is before else each for each in status.conditions))


def condition(status: GPUInstanceStatus | None, type: str) -> Condition | None:  # noqa: A002
    for each in status.conditions if status is not None else ():
        if each.type == type:
            return each
    return None


def whole_seconds(moment: datetime) -> datetime:
    """The moment as the API stores it. With fractions, what is read back would never equal what was decided."""
    return moment.replace(microsecond=0)


def shortened(sentence: str) -> str:
    """The sentence cut to what the API accepts: providers write long errors."""
    return sentence if len(sentence) <= LONGEST_MESSAGE else sentence[: LONGEST_MESSAGE - 1] + "…"
