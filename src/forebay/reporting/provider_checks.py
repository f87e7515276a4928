"""What the operator has found out about the providers of every GPUNodeClass."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.parts import Truth
from forebay.reconcile.reports import provider_condition


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One provider of one class, by the class's condition about it."""

    node_class: str
    provider: str
    enabled: bool
    #: True, False, or Unknown where the operator has not said anything about this generation of the class yet.
    ready: Truth
    reason: str = ""
    message: str = ""
    #: Since when it has been so.
    since: datetime | None = None

    @property
    def passed(self) -> bool:
        return not self.enabled or self.ready is Truth.TRUE


def provider_checks(classes: Iterable[GPUNodeClass]) -> list[ProviderCheck]:
    """The providers of all classes, by class and in the order in which a class names them."""
    return [
        _check(node_class, entry.name, enabled=entry.enabled)
        for node_class in sorted(classes, key=lambda each: each.metadata.name)
        for entry in node_class.spec.providers
    ]


def _check(node_class: GPUNodeClass, provider: str, *, enabled: bool) -> ProviderCheck:
    name = node_class.metadata.name
    if not enabled:
        return ProviderCheck(
            node_class=name, provider=provider, enabled=False, ready=Truth.UNKNOWN, message="Disabled in the class."
        )
    conditions = node_class.status.conditions if node_class.status is not None else ()
    found = next((each for each in conditions if each.type == provider_condition(provider)), None)
    if found is None or found.observed_generation != node_class.metadata.generation:
        return ProviderCheck(
            node_class=name,
            provider=provider,
            enabled=True,
            ready=Truth.UNKNOWN,
            message="The operator has not checked it yet. Is it running? See: forebay status",
        )
    return ProviderCheck(
        node_class=name,
        provider=provider,
        enabled=True,
        ready=found.status,
        reason=found.reason,
        message=found.message,
        since=found.last_transition_time,
    )
