"""A look at a cluster and its providers, without touching anything: for those who ask, not for those who act."""

import asyncio
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from forebay.api.machines import Machine
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.engine.observe import Observer
from forebay.engine.sources.configuration import source_configs
from forebay.engine.sources.sources import CALL_LIMIT, SourceConfig, Sources
from forebay.engine.views import Views, watching
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.model.sources import Offer, Source, SourceKey
from forebay.net.transport import TransportError
from forebay.providers.base import Provider, ProviderError
from forebay.providers.registry import NotInThisRelease, ProviderContext
from forebay.reconcile.snapshot import OperatorRules, Snapshot

#: A cluster that cannot be listed in this time is not going to be.
PATIENCE: Final = 60.0


class NotSeen(Exception):
    """One sentence: what could not be looked at, and why."""


async def survey(
    client: Client, server: str, machines: tuple[Machine, ...], context: ProviderContext, rules: OperatorRules
) -> Snapshot:
    """What the operator's next tick would see. Providers are asked for their offers only. Raises `NotSeen`."""
    watch = watching(client.transport, server, clock=context.clock, gpu_resources=rules.gpu_resources)
    async with watch as views:
        for informer in views.informers:
            try:
                await asyncio.wait_for(informer.wait_synced(), PATIENCE)
            except TimeoutError:
                why = informer.last_error or "the server is answering, but slowly"
                raise NotSeen(f"could not list {informer.resource.plural} within {PATIENCE:.0f} s: {why}") from None
        nobody = Sources(views.wake.set, context.clock)
        budget_accounting = await _budget_accounting(client, views, context, rules)
        observer = Observer(
            views,
            nobody,
            ProviderCalls(views.wake.set),
            cluster=context.cluster,
            machines=machines,
            rules=rules,
            clock=context.clock,
            budget_accounting=budget_accounting,
        )
        seen = observer.observe()
    return await with_offers(seen, machines, context)


async def _budget_accounting(
    client: Client, views: Views, context: ProviderContext, rules: OperatorRules
) -> BudgetAccounting | None:
    """What budgets have used; None where there are none, or whoever asks may not see it."""
    if not views.budgets.values():
        return None
    accounting = BudgetAccounting(
        views,
        LedgerStore(client, context.namespace),
        clock=context.clock,
        still_leader=lambda: False,
        counts=Counts(),
        states=dict,
        gpu_resources=rules.gpu_resources,
    )
    try:
        await accounting.sync.load_once()
        await accounting.count_resources()
    except (KubeError, TransportError):
        return None
    return accounting


async def with_offers(snapshot: Snapshot, machines: tuple[Machine, ...], context: ProviderContext) -> Snapshot:
    """With what the providers of its classes and these machines offer now."""
    sources, unusable = await ask(source_configs(snapshot.classes, machines, context))
    return replace(snapshot, sources=sources, unusable=unusable)


async def ask(wanted: Iterable[SourceConfig]) -> tuple[dict[SourceKey, Source], dict[SourceKey, str]]:
    """Each for its offers, once; and those that cannot be asked at all, with the reason."""
    unusable: dict[SourceKey, str] = {}
    made: list[tuple[SourceConfig, Provider]] = []
    for each in wanted:
        try:
            made.append((each, each.build()))
        except NotInThisRelease as error:
            unusable[each.key] = str(error)
    sources = await asyncio.gather(*(_asked(each, provider) for each, provider in made))
    return {source.key: source for source in sources}, unusable


async def _asked(each: SourceConfig, provider: Provider) -> Source:
    offers: tuple[Offer, ...] | None = None
    why: str | None = None
    try:
        async with asyncio.timeout(CALL_LIMIT):
            offers = tuple(await provider.offers())
    except (ProviderError, TimeoutError) as error:
        why = str(error) or f"{each.key.provider} did not answer within {CALL_LIMIT:.0f} s"
    finally:
        await provider.close()
    return Source(
        key=each.key,
        capabilities=provider.capabilities(),
        priority=each.priority,
        enabled=each.enabled,
        offers=offers,
        error=why,
    )
