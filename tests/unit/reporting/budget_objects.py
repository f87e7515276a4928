"""Budgets with usage for the tests of what users see of them."""

from forebay.budgets.accounts import Account
from forebay.budgets.assessment import Assessor
from forebay.model.quantities import UsdPerHour
from forebay.reporting.budget_views import budget_view
from tests.unit.budgets.factories import at, budget

HOUR = 3600


def used(*pieces, running=None, gpus=1):
    """The view of a budget of 10 GPU-hours in 24 h, used by pods of one GPU; `pieces` are (start, end) in hours.

    `running`: since when a pod of so many `gpus` runs.
    """
    made = budget(hours="10", window=24)
    account = Account(made)
    for number, (start, end) in enumerate(pieces):
        account.ledger.record(f"pod-{number}", second(start), second(end), 1000)
    if running is not None:
        account.ledger.begin("running", second(running), 1000 * gpus, second(0))
    return budget_view(made, account, Assessor(), at(0))


def paid(*, hours=None, usd="100", gpus=0):
    """The view of a budget of so many GPU-hours and dollars in 24 h, of which $5 an hour were paid for the last six.

    `gpus`: how many were used in the same hours.
    """
    made = budget(hours=hours, usd=usd, window=24)
    account = Account(made)
    account.money.begin("machine", second(-6), UsdPerHour("5").units, second(0))
    account.ledger.record("pod", second(-6), second(0), 1000 * gpus)
    return budget_view(made, account, Assessor(), at(0))


def reported_exceeded():
    """The view of a budget by its status alone, without its ledger."""
    return budget_view(budget(hours="10", since=at(-60)), None, Assessor(), at(0))


def second(hours):
    return int((at(hours * HOUR)).timestamp())
