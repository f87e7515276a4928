"""When instances of Google's ended: from the deletions among the operations of their zones."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

from forebay.providers.base import ProviderError
from forebay.providers.gcp.calls import LIST_SECONDS, GoogleCalls
from forebay.providers.gcp.group_members import instance_key
from forebay.providers.gcp.group_wire import OperationPage

#: The latest deletions of a zone that are read.
_LATEST: Final = 500
#: So long the end of an instance is told, and so long is looked for that of one which is missing.
ENDS_HOLD: Final = timedelta(hours=2)
_LOOKED_FOR: Final = timedelta(minutes=10)


async def zone_deletions(calls: GoogleCalls, zone: str) -> list[tuple[str, datetime]]:
    """The latest deletions of a zone's instances: ZONE/NAME, and when each was done."""
    query = {"filter": 'operationType="delete"', "orderBy": "creationTimestamp desc", "maxResults": str(_LATEST)}
    path = f"zones/{quote(zone, safe='')}/operations?{urlencode(query)}"
    page = await calls.get(path, OperationPage, seconds=LIST_SECONDS)
    return [
        (instance_key(each.target_link), each.end_time)
        for each in page.items
        if each.end_time is not None and "/instances/" in each.target_link
    ]


class InstanceEnds:
    """When instances ended that this process has listed or was asked to terminate, by ZONE/NAME.

    Listings show only that an instance is missing, seconds after it ended.
    """

    def __init__(self, calls: GoogleCalls, clock: Callable[[], datetime]) -> None:
        self._calls = calls
        self._clock = clock
        #: Known instances, with the time since when each is missing.
        self._known: dict[str, datetime | None] = {}
        self._ended: dict[str, datetime] = {}

    def watch(self, instance_id: str) -> None:
        """The instance exists, or has existed until now."""
        self._known.setdefault(instance_id, None)

    async def learn(self, present: Collection[str], left: Collection[str]) -> Mapping[str, datetime]:
        """Ends of instances that are not `present` any more. Those of which a disk is `left` are billed on."""
        now = self._clock()
        for key in left:
            self._known.pop(key, None)
        self._known |= dict.fromkeys(present)
        for key in (*present, *left):
            self._ended.pop(key, None)
        missing = {key: since or now for key, since in self._known.items() if key not in present}
        for zone in sorted({key.partition("/")[0] for key in missing}):
            try:
                deletions = await zone_deletions(self._calls, zone)
            except ProviderError:
                # The listing is complete without them; the next one looks again.
                continue
            for key, at in deletions:
                if key in missing:
                    self._ended[key] = max(at, self._ended.get(key, at))
        self._known = dict.fromkeys(present) | {
            key: since for key, since in missing.items() if key not in self._ended and now < since + _LOOKED_FOR
        }
        self._ended = {key: at for key, at in self._ended.items() if now < at + ENDS_HOLD}
        return dict(self._ended)
