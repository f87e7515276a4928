"""Purchases in one tick: budgets admit pods first, then capacity is planned for the admitted ones."""

from typing import NamedTuple

import msgspec

from forebay.budgets.admission import Held
from forebay.demand.reservation import Reservations
from forebay.reconcile.budgeting import Admitted, Budgeting, admit, assess_budgets
from forebay.reconcile.buying import BuyResult, buy, plan_for
from forebay.reconcile.group_growth import GrowthForPods, grow_for_pods, sized_provisioners
from forebay.reconcile.snapshot import Snapshot


class Purchases(NamedTuple):
    admitted: Admitted
    bought: BuyResult
    #: Nodes that instance groups add for the pods.
    grown: GrowthForPods
    #: The budgets, with the admitted pods counted against their quotas.
    budgeting: Budgeting


def purchases(snapshot: Snapshot, budgeting: Budgeting, reservations: Reservations) -> Purchases:
    """What is bought for the pods without a reservation, and which of them budgets hold back."""
    admitted = admit(snapshot, budgeting, reservations)
    sized = sized_provisioners(snapshot) if admitted.pods else ()
    grown = grow_for_pods(snapshot, admitted.pods, budgeting.admission, sized)
    bought = buy(snapshot, grown.left, budgeting.admission, reserved=reservations.placed)
    found = Purchases(admitted=admitted, bought=_with_notes(bought, grown), grown=grown, budgeting=budgeting)
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
    grown = grow_for_pods(snapshot, admitted.pods, budgeting.admission, sized_provisioners(snapshot))
    bought = buy(snapshot, grown.left, budgeting.admission, reserved=reserved)
    return Purchases(
        admitted=admitted,
        bought=msgspec.structs.replace(bought, left_out=(*left_out, *_with_notes(bought, grown).left_out)),
        grown=grown,
        budgeting=budgeting,
    )


def _with_notes(bought: BuyResult, grown: GrowthForPods) -> BuyResult:
    """Adds to each pod that nothing is bought for why an instance group that fits it does not grow."""
    if not grown.notes:
        return bought
    left_out = tuple(
        msgspec.structs.replace(each, sentence=f"{each.sentence} Besides, {grown.notes[each.pod.uid]}.")
        if each.pod.uid in grown.notes
        else each
        for each in bought.left_out
    )
    return msgspec.structs.replace(bought, left_out=left_out)
