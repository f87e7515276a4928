"""Whose account a machine is in: a listing of another account says nothing about it.

Most providers do not tell whose account their answers are of, so credentials stand for it. Where a Secret or a class
has other ones than before, the instances that are listed with these tell whether the account is the same.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, InstanceState
from forebay.lifecycle.facts import Facts, source_of
from forebay.lifecycle.presence import shows
from forebay.model.sources import Found, SourceKey
from forebay.reconcile.snapshot import Snapshot

#: States in which there is no instance, whatever an earlier call has noted.
_NOTHING_STARTED: Final = frozenset({InstanceState.REQUESTED, InstanceState.GONE})


class _Earlier(NamedTuple):
    """What records say of their account."""

    #: Accounts with an instance that is listed all the same: they are the one that is listed.
    shown: frozenset[str]
    #: Accounts with an instance that is not listed.
    missing: frozenset[str]


class ProviderAccounts:
    """The accounts of GPUInstances, by the latest listings."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        #: Asked only where a record names another account than the listing.
        self._earlier: dict[SourceKey, _Earlier] = {}

    def told(self, facts: Facts, served_by: SourceKey) -> Facts:
        """The facts with what is known of the account."""
        if self._is_other(facts.record, served_by):
            # No listing can show the machine, and a termination call would reach the wrong account.
            return replace(facts, capabilities=None, other_account=True)
        account = self._to_note(facts.record, served_by)
        return facts if account is None else replace(facts, account=account)

    def _is_other(self, record: GPUInstance, served_by: SourceKey) -> bool:
        """True where the source lists another account than the one that the machine is in."""
        own, found = _account(record), self._found(served_by)
        if own is None or found is None or own == found.account or shows(found, record):
            return False
        return own not in self._among(served_by, found).shown

    def _to_note(self, record: GPUInstance, served_by: SourceKey) -> str | None:
        """The account that the record lacks; None where there is nothing to note now.

        What is listed shows that the account of an instance that is not is the same. So it keeps the earlier account
        until no record with that is left whose instance is missing: a crash in between forgets nothing.
        """
        own, found = _account(record), self._found(served_by)
        if found is None or own == found.account or record.state in _NOTHING_STARTED:
            return None
        if own is None:
            return found.account if shows(found, record) else None
        shown = shows(found, record)
        return None if shown and own in self._among(served_by, found).missing else found.account

    def _found(self, served_by: SourceKey) -> Found | None:
        """The source's listing, where it names the account."""
        source = self._snapshot.sources.get(served_by)
        if source is None or source.listing is None or source.listing.found.account is None:
            return None
        return source.listing.found

    def _among(self, served_by: SourceKey, found: Found) -> _Earlier:
        if served_by not in self._earlier:
            accounts: defaultdict[bool, set[str]] = defaultdict(set)
            for each in self._snapshot.records:
                own = _account(each)
                if own is not None and source_of(each) == served_by:
                    accounts[shows(found, each)].add(own)
            self._earlier[served_by] = _Earlier(frozenset(accounts[True]), frozenset(accounts[False]))
        return self._earlier[served_by]


def _account(record: GPUInstance) -> str | None:
    """The account that its instance is in; None where that is not known, or there is no instance."""
    return None if record.status is None or record.state in _NOTHING_STARTED else record.status.account
