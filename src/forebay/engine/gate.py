"""Keeps track of whether new pods of used-up budgets are held, while there are budgets."""

import asyncio
from typing import Final, NoReturn

import structlog

from forebay.engine.views import Views
from forebay.kube.admission import gate_missing
from forebay.kube.client import Client
from forebay.kube.errors import KubeError
from forebay.net.transport import TransportError

log = structlog.get_logger(__name__)

#: Seconds between two checks: policies are installed and removed by people.
_CHECK_INTERVAL: Final = 300.0
_FIRST_BUDGET: Final = 5.0


class GateWatch:
    """`missing` says why nothing holds new pods of used-up budgets; None: they are held, or it is not known yet."""

    def __init__(self, client: Client, views: Views) -> None:
        self._client = client
        self._views = views
        self.missing: str | None = None

    async def run(self) -> NoReturn:
        while True:
            if not self._views.budgets.values():
                await asyncio.sleep(_FIRST_BUDGET)
                continue
            try:
                missing = await gate_missing(self._client)
            except (KubeError, TransportError) as error:
                log.warning("admission policies not checked", error=str(error))
            else:
                if missing != self.missing:
                    self.missing = missing
                    self._views.wake.set()
                    log.warning("new pods not held", error=missing) if missing else log.info("new pods held")
            await asyncio.sleep(_CHECK_INTERVAL)
