"""Purchases in one tick: budgets admit pods first, then capacity is planned for the admitted ones."""

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
    #: The budgets, with the admitted pods counted against their quotas.
    budgeting: Budgeting


def purchases(snapshot: Snapshot, budgeting: Budgeting, reservations: Reservations) -> Purchases:
    """What is bought for the pods without a reservation, and which of them budgets hold back."""
    admitted = admit(snapshot, budgeting, reservations)
    bought = buy(snapshot, admitted.pods, budgeting.admission, reserved=reservations.placed)
    found = Purchases(admitted=admitted, bought=bought, budgeting=budgeting)
    state = snapshot.budget_state
    if state is None or not bought.left_out or not (admitted.held or state.gated):
        return found
    return _without_unservable(snapshot, reservations, found)


def _without_unservable(snapshot: Snapshot, reservations: Reservations, first: Purchases) -> Purchases:
    """The purchases anew, without the pods that no offer fits.

    An admitted pod that is too large for every machine would otherwise hold back the pods after it for ever.
    """
    waiting = [each.pod for each in first.admitted.held if isinstance(each, Held)]
    reserved = reservations.placed
    left_out = first.bought.left_out
    if waiting:
        left_out += plan_for(snapshot, waiting, reserved=reserved).left_out
    unservable = {each.pod.uid for each in left_out}
    rest = tuple(pod for pod in reservations.left if pod.uid not in unservable)
    budgeting = assess_budgets(snapshot)
    admitted = admit(snapshot, budgeting, msgspec.structs.replace(reservations, left=rest))
    bought = buy(snapshot, admitted.pods, budgeting.admission, reserved=reserved)
    return Purchases(
        admitted=admitted,
        bought=msgspec.structs.replace(bought, left_out=(*left_out, *bought.left_out)),
        budgeting=budgeting,
    )
