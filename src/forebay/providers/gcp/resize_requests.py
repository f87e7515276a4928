"""Resize requests: members that Google's Dynamic Workload Scheduler creates when it has capacity, for a stated time.

Each new member has a request of its own, of the member's name: so a request that is repeated finds the name taken, and
one member can be cancelled without the others. A request waits in a queue at no cost (ACCEPTED); when it has SUCCEEDED
its member is in the list of the group, and Google deletes the member at the end of its run. Inactive requests are
deleted once their member is gone.
"""

from collections.abc import AsyncIterator, Collection
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode
from uuid import UUID

import msgspec

from forebay.model.sources import Failure, FailureKind
from forebay.providers.base import GroupMember, InstanceGone, ProviderError, Rejected, Unavailable
from forebay.providers.gcp.calls import LIST_SECONDS, GoogleCalls
from forebay.providers.gcp.errors import NameTaken
from forebay.providers.gcp.group_members import failure_of
from forebay.providers.gcp.wire import Operation, OperationErrors

#: By which Forebay's own requests are known.
RESIZE_DESCRIPTION: Final = "One member of an instance group that Forebay sizes."
_PAGE: Final = 500
_MOST_PAGES: Final = 100
_WAITING: Final = frozenset({"CREATING", "ACCEPTED"})
_FAILED: Final = "FAILED"


class ResizeAttempt(msgspec.Struct, frozen=True, kw_only=True):
    error: OperationErrors | None = None


class ResizeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: Why it has failed for good.
    error: OperationErrors | None = None
    #: Why it could not be done so far.
    last_attempt: ResizeAttempt | None = None


class ResizeRequest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str = ""
    #: CREATING, ACCEPTED, SUCCEEDED, FAILED or CANCELLED.
    state: str = ""
    status: ResizeStatus = ResizeStatus()

    @property
    def waits(self) -> bool:
        return self.state in _WAITING


class _ResizePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    items: tuple[ResizeRequest, ...] = ()
    next_page_token: str = ""


class ResizeRequests:
    """The resize requests of one group, by the path of the group and of its place."""

    def __init__(self, calls: GoogleCalls, group_path: str, scope: str) -> None:
        self._calls = calls
        self._path = f"{group_path}/resizeRequests"
        self._scope = scope

    async def listed(self) -> AsyncIterator[ResizeRequest]:
        token = ""
        for _ in range(_MOST_PAGES):
            query = {"maxResults": str(_PAGE)} | ({"pageToken": token} if token else {})
            page = await self._calls.get(f"{self._path}?{urlencode(query)}", _ResizePage, seconds=LIST_SECONDS)
            for each in page.items:
                yield each
            token = page.next_page_token
            if not token:
                return
        raise Unavailable(f"Google's list of resize requests has no end after {_MOST_PAGES} pages.")

    async def insert(self, name: str, run: timedelta, request_id: UUID) -> None:
        """Asks for one member. A request of that name that exists already is this one."""
        body = {
            "name": name,
            "description": RESIZE_DESCRIPTION,
            "instances": [{"name": name}],
            "requestedRunDuration": {"seconds": str(int(run.total_seconds()))},
        }
        what = f"Resize request {name}"
        try:
            operation = await self._calls.post(f"{self._path}?requestId={request_id}", body, Operation)
            operation = await self._calls.finished(self._scope, operation, what=what)
        except NameTaken:
            return
        failure = self._calls.errors.of_operation(operation, what=what, correct="Correct the instance template.")
        if isinstance(failure, ProviderError):
            raise failure

    async def withdraw(self, request: ResizeRequest, request_id: UUID) -> None:
        """Cancels a request that waits, and deletes one that is over. The members that it brought stay."""
        path = f"{self._path}/{quote(request.name, safe='')}"
        try:
            if request.waits:
                await self._calls.post(f"{path}/cancel?requestId={request_id}", None, Operation)
            else:
                await self._calls.delete(f"{path}?requestId={request_id}")
        except InstanceGone:
            return
        except Rejected:
            if not request.waits:
                raise
            # It has ended meanwhile: the next listing tells how.
            return


def queued_members(
    requests: Collection[ResizeRequest], there: Collection[str], calls: GoogleCalls
) -> list[GroupMember]:
    """Members that were asked for and are not in the group: they wait, or their request has failed."""
    found = []
    for each in requests:
        if each.name in there:
            continue
        if each.waits:
            found.append(GroupMember(name=each.name, failure=_waits(each, calls)))
        elif each.state == _FAILED:
            found.append(GroupMember(name=each.name, failure=_failed(each, calls)))
    return found


def _waits(request: ResizeRequest, calls: GoogleCalls) -> Failure | None:
    """Why a request still waits. It is not given up for that: to wait is what it is for."""
    last = request.status.last_attempt.error if request.status.last_attempt is not None else None
    failure = None if last is None else failure_of(last, f"Resize request {request.name}", calls.errors)
    if failure is None:
        return None
    sentence = f"{failure.sentence} The request stays in Google's queue, at no cost."
    return Failure(kind=FailureKind.UNAVAILABLE, sentence=sentence, scope=failure.scope)


def _failed(request: ResizeRequest, calls: GoogleCalls) -> Failure:
    said = request.status.error
    failure = None if said is None else failure_of(said, f"Resize request {request.name}", calls.errors)
    if failure is None:
        return Failure(kind=FailureKind.NO_CAPACITY, sentence=f"Resize request {request.name} failed.")
    if failure.kind in {FailureKind.NO_CAPACITY, FailureKind.QUOTA}:
        return failure
    return Failure(kind=FailureKind.REJECTED, sentence=failure.sentence, scope=failure.scope)
