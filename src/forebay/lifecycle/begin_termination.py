"""How the end of an instance begins: through Draining where pods run or could be bound, else in Terminating."""

from collections.abc import Mapping
from typing import Any

from forebay.api.gpu_instance import InstanceState
from forebay.lifecycle.call_outcomes import MOST_VERSIONS
from forebay.lifecycle.presence import (
    NO_ABSENCES,
)
from forebay.lifecycle.rule import RuleContext
from forebay.lifecycle.steps import AnyStep, Uncordon, WriteStatus
from forebay.model.nodes import Node
from forebay.model.reasons import Reason
from forebay.model.sources import FailureScope


def begin_termination(
    ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False, scope: FailureScope | None = None
) -> AnyStep:
    """The way out: through Draining where pods run or could be bound, otherwise straight to Terminating.

    `scope`: what the failure speaks against, where that is more than the offer.
    """
    node = ctx.facts.node
    if node is None or not (node.ready or ctx.facts.pods):
        return into_terminating(ctx, reason, sentence, failed=failed, scope=scope)
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    learned = _learned(ctx, scope) if failed else {}
    return ctx.move(InstanceState.DRAINING, reason, sentence, failures=failures, **learned)


def into_terminating(
    ctx: RuleContext, reason: Reason, sentence: str, *, failed: bool = False, scope: FailureScope | None = None
) -> WriteStatus:
    """`scope`: what the failure speaks against, where that is more than the offer."""
    failures = (ctx.status.failures or 0) + 1 if failed else ctx.status.failures
    learned = _learned(ctx, scope) if failed else {}
    return ctx.move(InstanceState.TERMINATING, reason, sentence, failures=failures, **learned, **NO_ABSENCES)


def _learned(ctx: RuleContext, scope: FailureScope | None) -> Mapping[str, Any]:
    """What a failure speaks against, and by which change of the configuration it may be mended."""
    revision = () if scope is None else sorted(ctx.facts.revision.items())[:MOST_VERSIONS]
    return {"failure_scope": scope, "failure_revision": dict(revision)}


def uncordon(ctx: RuleContext, node: Node) -> Uncordon:
    sentence = f"Uncordoning node {node.name}: Forebay cordoned it, and the reason no longer holds."
    return Uncordon(record=ctx.record, reason=Reason.BACK_IN_USE, sentence=sentence, node=node)
