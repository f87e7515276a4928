"""Whose account a machine is in, by what is listed with the credentials of now."""

import pytest
from msgspec.structs import replace

from forebay.lifecycle.facts import source_of
from forebay.model.sources import Found, Listing, Source, SourceKey
from forebay.reconcile.provider_accounts import ProviderAccounts
from forebay.reconcile.snapshot import Snapshot
from tests.unit.lifecycle.builders import NOW, RENTED, S, facts, instance, record, rented_spec

KEY = source_of(record())


def machine(name="m1", account=None, state=S.READY, **fields):
    return record(state, name=name, instance_id=f"i-{name}", account=account, **fields)


def listing(*names, account="new"):
    """Instances of these machines, listed with the credentials of an account."""
    found = tuple(instance(f"i-{name}", owner=f"uid-{name}") for name in names)
    return Listing(asked=NOW, found=Found(instances=found, account=account))


NOTHING_SAID, ELSEWHERE = (False, None), (True, None)


def told(mine, found, *others, served_by=KEY, at=KEY):
    """(It is in another account than the one that is listed, the account to note)."""
    sources = {at: Source(key=at, capabilities=RENTED, listing=found)}
    accounts = ProviderAccounts(Snapshot(now=NOW, records=(mine, *others), sources=sources))
    said = accounts.told(facts(mine), served_by)
    assert (said.capabilities is None) is said.other_account, "without its provider nothing is asked of it"
    return said.other_account, said.account


@pytest.mark.parametrize(
    ("mine", "found", "expected"),
    [
        (machine(), listing("m1"), (False, "new")),
        (machine(), listing("m2"), NOTHING_SAID),
        (machine(account="new"), listing("m1"), NOTHING_SAID),
        (machine(account="new"), listing(), NOTHING_SAID),
        (machine(account="old"), listing(), ELSEWHERE),
        (machine(account="old"), listing("m1"), (False, "new")),
        (machine(account="old"), listing(account=None), NOTHING_SAID),
        (machine(account="old"), None, NOTHING_SAID),
        (machine(account="old", state=S.REQUESTED), listing(), NOTHING_SAID),
        (machine(account="old", state=S.GONE), listing(), NOTHING_SAID),
        (machine(state=S.GONE), listing("m1"), NOTHING_SAID),
        (replace(machine(), status=None), listing("m1"), NOTHING_SAID),
    ],
    ids=[
        "listed: its account is noted",
        "not listed: it may be anywhere",
        "of this account",
        "of this account and gone from the listing",
        "of another account",
        "listed under other credentials: the account is the same",
        "the provider names no account",
        "not listed yet",
        "launched again",
        "proven gone",
        "proven gone, and still listed for a while",
        "without a status",
    ],
)
def test_a_listing_says_nothing_about_machines_of_another_account(mine, found, expected):
    assert told(mine, found) == expected


def test_a_source_that_is_not_there_any_more_says_nothing():
    assert told(machine(account="old"), listing(), served_by=SourceKey("other", "simulated")) == NOTHING_SAID


def test_a_machine_that_another_class_lists_now_is_in_the_account_of_that():
    moved = SourceKey("after", "simulated")
    assert told(machine(account="old"), listing("m1"), served_by=moved, at=moved) == (False, "new")
    assert told(machine(account="old"), listing(), served_by=moved, at=moved) == ELSEWHERE


def test_one_machine_that_is_listed_shows_that_the_account_of_the_others_is_the_same():
    missing, seen = machine("m1", "old"), machine("m2", "old")
    assert told(missing, listing("m2"), seen) == (False, "new")
    assert told(missing, listing("m2"), machine("m2", "older")) == ELSEWHERE
    assert told(missing, listing("m2"), machine("m2", "new")) == ELSEWHERE
    assert told(missing, listing("m2"), machine("m2", "old", S.GONE)) == ELSEWHERE, "what is gone is in no account"
    assert told(missing, listing(), machine("m2", "old")) == ELSEWHERE


def test_what_is_listed_keeps_its_earlier_account_while_another_of_that_account_is_missing():
    """It is the evidence that the account is the same, and must outlive a crash before the other is noted."""
    seen, missing = machine("m1", "old"), machine("m2", "old")
    assert told(seen, listing("m1"), missing) == NOTHING_SAID
    assert told(seen, listing("m1"), machine("m2", "older")) == (False, "new")
    assert told(seen, listing("m1", "m2"), missing) == (False, "new")


def test_machines_of_another_source_are_no_evidence():
    missing = machine("m1", "old")
    elsewhere = machine("m2", "old", spec=rented_spec("m2", node_class_name="another"))
    assert told(missing, listing("m2"), elsewhere) == ELSEWHERE
    assert told(machine("m1", "old"), listing("m1"), elsewhere) == (False, "new")
