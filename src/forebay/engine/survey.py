"""A read-only snapshot of a cluster and its providers, for commands such as `forebay plan`."""

import asyncio
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.engine.observe import Observer
from forebay.engine.sources.configuration import source_configs
from forebay.engine.sources.sources import CALL_TIMEOUT, SourceConfig, Sources, read_offers
from forebay.engine.views import Views, watching
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.model.sources import Offer, Source, SourceKey
from forebay.net.transport import TransportError
from forebay.providers.base import Provider, ProviderError
from forebay.providers.plugin import ProviderContext, ProviderNotServed
from forebay.reconcile.snapshot import OperatorRules, Snapshot
from forebay.reconcile.unserved_budgets import is_served

#: Seconds to wait for each kind to be listed.
_LIST_TIMEOUT: Final = 60.0


async def survey(client: Client, server: str, context: ProviderContext, rules: OperatorRules) -> Snapshot:
    """The snapshot that the operator's next tick would get, with offers but no listings. Raises `NotListed`."""
    rules = replace(rules, namespace=context.namespace)
    watch = watching(client.transport, server, clock=context.clock, gpu_resources=rules.gpu_resources)
    async with watch as views:
        for informer in views.informers:
            if informer is views.signing_requests:
                # Not everybody who may plan may list these, and no plan depends on them.
                continue
            await informer.wait_listed(_LIST_TIMEOUT)
        budget_accounting = await _read_ledgers(client, views, context, rules)
        observer = Observer(
            views,
            Sources(views.wake.set, context.clock),
            ProviderCalls(views.wake.set),
            cluster=context.cluster,
            environment=None,
            rules=rules,
            clock=context.clock,
            budget_accounting=budget_accounting,
        )
        snapshot = observer.observe()
        served = tuple(filter(is_served, snapshot.budgets))
        snapshot = replace(snapshot, budgets=served)
    return await with_offers(snapshot, context)


async def _read_ledgers(
    client: Client, views: Views, context: ProviderContext, rules: OperatorRules
) -> BudgetAccounting | None:
    """Usage of budgets; None where there are no budgets, or where their ledgers may not be read."""
    if not any(is_served(budget) for budget in views.budgets.values()):
        return None
    accounting = BudgetAccounting(
        views,
        LedgerStore(client, context.namespace),
        clock=context.clock,
        still_leader=lambda: False,
        counts=Counts(),
        gpu_resources=rules.gpu_resources,
    )
    try:
        await accounting.sync.load_once()
        await accounting.count_resources()
    except (KubeError, TransportError):
        return None
    return accounting


async def with_offers(snapshot: Snapshot, context: ProviderContext) -> Snapshot:
    """The snapshot with the current offers of its classes' providers."""
    sources, unusable = await fetch_offers(source_configs(snapshot.classes, context))
    return replace(snapshot, sources=sources, unusable=unusable)


async def fetch_offers(configs: Iterable[SourceConfig]) -> tuple[dict[SourceKey, Source], dict[SourceKey, str]]:
    """Sources with their current offers, and the errors of those that cannot be built."""
    unusable: dict[SourceKey, str] = {}
    built: list[tuple[SourceConfig, Provider]] = []
    for each in configs:
        try:
            built.append((each, each.build()))
        except ProviderNotServed as error:
            unusable[each.key] = str(error)
        else:
            unusable |= {} if each.problem is None else {each.key: each.problem}
    sources = await asyncio.gather(*(_fetch(each, provider) for each, provider in built))
    return {source.key: source for source in sources}, unusable


async def _fetch(config: SourceConfig, provider: Provider) -> Source:
    offers: tuple[Offer, ...] | None = None
    failure: str | None = None
    try:
        offers = await read_offers(provider, config.key.provider)
    except (ProviderError, TimeoutError) as error:
        failure = str(error) or f"{config.key.provider} did not answer within {CALL_TIMEOUT:.0f} s"
    finally:
        await provider.close()
    return Source(
        key=config.key,
        capabilities=provider.capabilities(),
        priority=config.priority,
        enabled=config.enabled,
        offers=offers,
        error=failure,
        problem=config.problem,
    )
