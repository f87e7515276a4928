"""When machines of Crusoe's ended whose deletion this process requested: their operations say."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from forebay.providers.base import InstanceGone, ProviderError
from forebay.providers.cloud_calls import CloudCalls
from forebay.providers.crusoe.account import CrusoeAccount
from forebay.providers.crusoe.wire import VmOperation

#: So long the end of a machine is told.
_ENDS_HOLD: Final = timedelta(hours=2)


def operation_path(account: CrusoeAccount, operation_id: str) -> str:
    return f"/projects/{account.project_id}/compute/vms/instances/operations/{quote(operation_id, safe='')}"


class Deletions:
    """Ends of machines by id. Listings show only that a machine is missing, seconds after it ended, and Crusoe bills
    whole minutes.
    """

    def __init__(self, calls: CloudCalls, clock: Callable[[], datetime]) -> None:
        self._calls = calls
        self._clock = clock
        #: Operations by machine.
        self._requested: dict[str, str] = {}
        self._ended: dict[str, datetime] = {}

    def requested(self, vm_id: str, operation: VmOperation) -> None:
        self._requested[vm_id] = operation.operation_id

    async def ends(
        self, account: CrusoeAccount, present: Collection[str], left: Collection[str]
    ) -> Mapping[str, datetime]:
        """Ends of machines that are not `present` any more. Those of which a disk is `left` are billed on."""
        for vm_id in left:
            self._requested.pop(vm_id, None)
            self._ended.pop(vm_id, None)
        for vm_id, operation_id in list(self._requested.items()):
            if vm_id in present:
                continue
            try:
                operation = await self._calls.get(operation_path(account, operation_id), VmOperation)
            except InstanceGone:
                del self._requested[vm_id]
                continue
            except ProviderError:
                # The listing is complete without it; the next one looks again.
                continue
            if operation.state == "IN_PROGRESS":
                continue
            del self._requested[vm_id]
            if operation.state == "SUCCEEDED" and operation.completed is not None:
                self._ended[vm_id] = operation.completed
        now = self._clock()
        self._ended = {vm_id: at for vm_id, at in self._ended.items() if now < at + _ENDS_HOLD}
        return dict(self._ended)
