"""Ready: it does what it is there for, until its node says otherwise."""

from datetime import timedelta
from typing import Final

from forebay.api.parts import Truth
from forebay.lifecycle.cordon import cordon_is_ours
from forebay.lifecycle.disappearance import vanished
from forebay.lifecycle.presence import presence_of
from forebay.lifecycle.rule import RuleContext, RuleResult, Wait
from forebay.lifecycle.termination import give_up, revoked, uncordon
from forebay.lifecycle.transitions import NODE_READY, condition, restore_message, with_condition, with_message
from forebay.model.reasons import Reason
from forebay.model.spans import human

#: A node that is not ready for this long is given up.
UNHEALTHY_AFTER: Final = timedelta(minutes=5)


def ready(known: RuleContext) -> RuleResult:
    facts = known.facts
    if (why := revoked(facts)) is not None:
        return give_up(known, why[0], f"Given back: {why[1]}.")
    node = facts.node
    if node is not None and cordon_is_ours(node):
        return uncordon(known, node)
    if (thought := vanished(known, presence_of(facts))) is not None:
        return thought
    return _healthy(known, node.name) if node is not None and node.ready else _unhealthy(known)


def _healthy(known: RuleContext, node: str) -> RuleResult:
    before = condition(known.status, NODE_READY)
    if before is not None and before.status is Truth.TRUE:
        return None
    sentence = f"Node {node} is ready."
    status = with_condition(restore_message(known.status), NODE_READY, True, Reason.NODE_READY, sentence, known.now)
    return known.write(status, Reason.NODE_READY, sentence)


def _unhealthy(known: RuleContext) -> RuleResult:
    facts, now = known.facts, known.now
    name = known.record.node_name
    what = f"Node {name} is not ready" if facts.node is not None else f"Node {name} is not there any more"
    before = condition(known.status, NODE_READY)
    if before is None or before.status is not Truth.FALSE:
        sentence = f"{what}. If that lasts for {human(UNHEALTHY_AFTER)}, the machine is given up."
        status = with_condition(known.status, NODE_READY, False, Reason.UNHEALTHY, sentence, now)
        return known.write(with_message(status, Reason.UNHEALTHY, sentence), Reason.UNHEALTHY, sentence)
    late = before.last_transition_time + UNHEALTHY_AFTER
    if now < late:
        return Wait(late)
    if facts.braked:
        sentence = (
            f"{what}, and neither are so many others of its pool that the cause may lie elsewhere: nothing is given up "
            "until fewer are unhealthy. Look at the network and the control plane; delete a GPUInstance to give it up."
        )
        return known.write(
            with_message(known.status, Reason.DISRUPTION_PAUSED, sentence), Reason.DISRUPTION_PAUSED, sentence
        )
    since = human(now - before.last_transition_time)
    return give_up(known, Reason.UNHEALTHY, f"{what} since {since} ago. The machine is given up.", failed=True)
