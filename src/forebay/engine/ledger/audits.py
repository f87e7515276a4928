"""Audits of all budgets, one after the other: pods are listed from the API server, apart from what informers saw."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NoReturn

import structlog

from forebay.budgets.accounts import selector_of
from forebay.budgets.audit import audit, ghosts
from forebay.budgets.budget_accounts import BudgetKey
from forebay.engine.boundary import LoggedBugs
from forebay.engine.counts import Counts
from forebay.engine.ledger.budget_accounting import BudgetAccounting
from forebay.kube.audited import AUDITED_BUDGETS, AUDITED_PODS
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Seconds between two audits of one budget, and at least between two lists, however many budgets there are.
_INTERVAL: Final = 600.0
_BETWEEN_LISTS: Final = 1.0
#: A ratio further from 1 than this is logged.
_TOLERANCE: Final = 0.001


class Audits:
    """Audits the budgets of an accounting while this process leads, and keeps its `accuracy` current."""

    def __init__(
        self, client: Client, accounting: BudgetAccounting, *, clock: Callable[[], datetime], counts: Counts
    ) -> None:
        self._client = client
        self._accounting = accounting
        self._clock = clock
        self._counts = counts
        #: UIDs of pods that the last audit found running in the ledger and nowhere else.
        self._suspects: dict[BudgetKey, frozenset[str]] = {}

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(_INTERVAL)
            await self.audit_all()

    async def audit_all(self) -> None:
        accuracy = self._accounting.accuracy
        for key in list(self._accounting.budgets):
            ratio = None
            with LoggedBugs("budget not audited", self._counts, namespace=key[0], budget=key[1]):
                try:
                    ratio = await self._audit(key)
                except (KubeError, TransportError) as error:
                    log.warning("budget not audited", namespace=key[0], budget=key[1], error=str(error))
            if ratio is None:
                accuracy.pop(key, None)
            else:
                accuracy[key] = ratio
            await asyncio.sleep(_BETWEEN_LISTS)
        for key in (accuracy.keys() | self._suspects.keys()) - self._accounting.budgets.keys():
            accuracy.pop(key, None)
            self._suspects.pop(key, None)

    async def _audit(self, key: BudgetKey) -> float | None:
        """Accuracy of one budget; None if there is nothing to compare."""
        accounting = self._accounting
        budget = accounting.budgets.get(key)
        if budget is None:
            return None
        audited = await self._client.get(AUDITED_BUDGETS, key[1], key[0])
        pods = (await self._client.list_all(AUDITED_PODS, key[0], labels=str(selector_of(budget)))).items
        account = accounting.accounts.get(key)
        if account is None or account.uid != audited.uid or account.selector != selector_of(budget):
            return None  # another budget or selector meanwhile
        unlisted = ghosts(pods, account)
        lasting = unlisted & self._suspects.get(key, frozenset())
        self._suspects[key] = unlisted
        window = timedelta(hours=budget.spec.quota.window_hours)
        selected_since = audited.selected_since(account.ledger.chunk_log.owner)
        ratio = audit(pods, account, self._clock(), window, selected_since).ratio
        if lasting:
            ratio = float("inf")
        if ratio is not None and abs(ratio - 1) > _TOLERANCE:
            log.error(
                "ledger differs from pods", namespace=key[0], budget=key[1], ratio=ratio, unlisted=sorted(lasting)
            )
        return ratio
