"""Startup scripts: how a machine is told to join, and what must not stay behind.

A script holds the credentials with which its machine joins. It has the machine's name, by which it is found again, and
is deleted as soon as it can no longer be needed: its machine is gone or was never made, or has had the time to join.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from urllib.parse import quote

import structlog

from forebay.providers.base import OutcomeUnknown, ProviderError, Unavailable
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.cloud_frame import stated_time
from forebay.providers.paperspace.errors import NothingThere
from forebay.providers.paperspace.pages import all_pages
from forebay.providers.paperspace.wire import SCRIPTS, PaperspaceNewScript, PaperspaceScript

log = structlog.get_logger(__name__)


class StartupScripts:
    """The scripts of one cluster: those whose name begins with `prefix`."""

    def __init__(
        self,
        calls: CloudCalls,
        prefix: str,
        clock: Callable[[], datetime],
        *,
        launch_takes: timedelta,
        join_takes: timedelta,
    ) -> None:
        self._calls = calls
        self._prefix = prefix
        self._clock = clock
        self._launch_takes = launch_takes
        self._join_takes = join_takes
        #: False: the account has none of this cluster, so that nothing must be listed.
        self._may_exist = True
        #: How many were made, or may have been: what is made during a sweep is not in its listing.
        self._made = 0
        #: Names of machines that were terminated.
        self._ended: set[str] = set()
        #: When scripts were first listed, by id, of which it is not told when they were made.
        self._first_seen: dict[str, datetime] = {}

    async def add(self, name: str, text: str) -> str:
        """Id of a new script. Nothing is launched yet, so a failure never leaves the launch unknown."""
        try:
            new = PaperspaceNewScript(name=name, script=text)
            return (await self._calls.act("POST", SCRIPTS, PaperspaceScript, new)).id
        except OutcomeUnknown as error:
            raise Unavailable(f"The startup script could not be made: {error}") from None
        finally:
            self._made += 1
            self._may_exist = True

    async def discard(self, script_id: str) -> None:
        """Deletes the script of a launch that failed. Where that fails too, `sweep` does it."""
        with suppress(ProviderError):
            await self._delete(script_id)

    def machine_ended(self, name: str) -> None:
        """Notes that the machine of this name was terminated: its script goes with the next listing."""
        self._ended.add(name)

    async def sweep(self, machines: Mapping[str, bool]) -> tuple[str, ...]:
        """Deletes the scripts that are not needed (any more). `machines`: names, and whether each may still boot.

        Returns the names of those that stay without a machine. A failure is logged and repeated with the next listing.
        """
        if not self._may_exist:
            return ()
        made = self._made
        try:
            own = [each for each in await all_pages(self._calls, SCRIPTS, PaperspaceScript) if self._is_own(each)]
            # By id: a launch whose answer was lost is repeated with a script of the same name.
            left = {each.id: each.name for each in own}
            for script in own:
                may_boot = False if script.name in self._ended else machines.get(script.name)
                if not self._needed(script, may_boot=may_boot):
                    await self._delete(script.id)
                    del left[script.id]
        except ProviderError as error:
            log.warning("startup scripts not deleted", prefix=self._prefix, error=str(error))
            return (f"{self._prefix}...",)
        self._may_exist = bool(left) or made != self._made
        self._ended &= machines.keys()
        there = {each.id for each in own}
        self._first_seen = {key: at for key, at in self._first_seen.items() if key in there}
        return tuple(sorted(set(left.values()) - machines.keys()))

    def _is_own(self, script: PaperspaceScript) -> bool:
        return script.name.startswith(self._prefix) and not script.dt_deleted

    def _needed(self, script: PaperspaceScript, *, may_boot: bool | None) -> bool:
        if may_boot is False:
            return False
        now = self._clock()
        age = now - (stated_time(script.dt_created) or self._first_seen.setdefault(script.id, now))
        # Without a machine, the launch may still be on its way, or the listing lag.
        return age < (self._launch_takes if may_boot is None else self._join_takes)

    async def _delete(self, script_id: str) -> None:
        with suppress(NothingThere):
            await self._calls.act("DELETE", f"{SCRIPTS}/{quote(script_id, safe='')}", PaperspaceScript)
