"""A record whose instance is no longer there, though nobody ended it."""

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.presence import ENOUGH, Presence, count_absences, settled_at
from forebay.lifecycle.rule import RuleContext, RuleResult
from forebay.lifecycle.transitions import whole_seconds
from forebay.lifecycle.wording import describe
from forebay.model.reasons import Reason

_HAS_SERVED = (InstanceState.READY, InstanceState.RUNNING, InstanceState.FINISHED, InstanceState.DRAINING)


def vanished(known: RuleContext, seen: Presence) -> RuleResult:
    """Counts the lists without it; two in a row are proof, unless its node says otherwise."""
    status, node = known.status, known.facts.node
    if seen.present and not status.absences:
        return None
    settled = (status.attempted_at or known.since) + settled_at(known.capabilities)
    now_counted = count_absences(status, seen, settled)
    if (now_counted.absences or 0) < ENOUGH or (node is not None and node.ready):
        why = f"{known.record.spec.provider} was listed: {now_counted.absences or 0} lists in a row are without it."
        return known.write(now_counted, Reason.VANISHED, why)
    sentence = (
        f"{describe(known.record)} is not there any more: {known.record.spec.provider} has listed its instances "
        f"{ENOUGH} times without it. Somebody else ended it, or the provider took it back. Pods that ran on it are "
        "counted as demand again."
    )
    # Lost before it was of use, it would be bought again at once, and again.
    failures = status.failures if status.state in _HAS_SERVED else (status.failures or 0) + 1
    return known.move(
        InstanceState.GONE,
        Reason.VANISHED,
        sentence,
        failures=failures,
        absences=now_counted.absences,
        absent_since=now_counted.absent_since,
        absent_at=now_counted.absent_at,
        billed_until=whole_seconds(known.now) if status.billed_from is not None else None,
    )
