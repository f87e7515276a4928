"""The accounting of budgets on its own: what it leaves behind, and what it knows before its ledgers are read."""

import asyncio

from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.engine.ledger.store import LedgerStore
from forebay.net.clock import now
from tests.engine.views_world import watched_cluster
from tests.unit.demand.builders import running


async def test_who_stops_leading_keeps_only_deletions_for_the_next_time_and_stores_what_is_left():
    async with watched_cluster() as watched:
        views = watched.views
        accounting = BudgetAccounting(
            views, LedgerStore(watched.client, "kube-system"), clock=now, still_leader=lambda: True, counts=Counts()
        )
        assert accounting.update(now()) is None, "the stored ledgers are not read yet"
        assert accounting.unrecorded_cost() == frozenset()
        keeping = asyncio.ensure_future(accounting.run())
        await asyncio.sleep(1)
        assert accounting.update(now()) is not None
        assert views.pod_changes.followed
        views.pod_changes.add(running())
        assert len(views.pod_changes.take()) == 1
        keeping.cancel()
        await asyncio.wait({keeping})
        assert not views.pod_changes.followed
        views.pod_changes.add(running())
        assert views.pod_changes.take() == []
        await accounting.finish(5.0)
