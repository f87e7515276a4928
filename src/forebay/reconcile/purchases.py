"""What is bought, and for whom: budgets are asked first, and those that nothing can be bought for take no room."""

from typing import NamedTuple

import msgspec

from forebay.budgets.admission import Held
from forebay.demand.reservation import Reservations
from forebay.reconcile.budgeting import Admitted, Budgeting, admit, assess_budgets
from forebay.reconcile.buying import BuyResult, buy, plan_for
from forebay.reconcile.snapshot import Snapshot


class Purchases(NamedTuple):
    admitted: Admitted
    bought: BuyResult
    #: With what was admitted taken from the room of each budget.
    budgeting: Budgeting


def purchases(snapshot: Snapshot, budgeting: Budgeting, reservations: Reservations) -> Purchases:
    admitted = admit(snapshot, budgeting, reservations)
    bought = buy(snapshot, admitted.pods, budgeting.admission)
    found = Purchases(admitted=admitted, bought=bought, budgeting=budgeting)
    budget_state = snapshot.budget_state
    if budget_state is None or not bought.left_out or not (admitted.held or budget_state.gated):
        return found
    return _without_the_hopeless(snapshot, reservations, found)


def _without_the_hopeless(snapshot: Snapshot, reservations: Reservations, first: Purchases) -> Purchases:
    """Else a pod that is too large for every machine would keep those behind it waiting for ever."""
    waiting = [each.pod for each in first.admitted.held if isinstance(each, Held)]
    left_out = (*first.bought.left_out, *(plan_for(snapshot, waiting).left_out if waiting else ()))
    hopeless = {each.pod.uid for each in left_out}
    others = tuple(pod for pod in reservations.left if pod.uid not in hopeless)
    budgeting = assess_budgets(snapshot)
    admitted = admit(snapshot, budgeting, msgspec.structs.replace(reservations, left=others))
    bought = buy(snapshot, admitted.pods, budgeting.admission)
    return Purchases(
        admitted=admitted,
        bought=msgspec.structs.replace(bought, left_out=(*left_out, *bought.left_out)),
        budgeting=budgeting,
    )
