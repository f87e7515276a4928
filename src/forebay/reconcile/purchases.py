"""Purchases in one tick: budgets admit pods first, then capacity is planned for the admitted ones."""

from typing import NamedTuple

import msgspec

from forebay.budgets.admission import Held
from forebay.demand.reservation import Reservations
from forebay.reconcile.budgeting import Admitted, Budgeting, admit, assess_budgets
from forebay.reconcile.buying import BuyResult, buy, plan_for
from forebay.reconcile.group_growth import GrowthForPods, grow_for_pods, sized_provisioners
from forebay.reconcile.remote_orders import order_containers
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
    bought, grown = _served(snapshot, admitted, budgeting, reservations)
    found = Purchases(admitted=admitted, bought=bought, grown=grown, budgeting=budgeting)
    state = snapshot.budget_state
    if state is None or not bought.left_out or not (admitted.held or state.gated):
        return found
    return _without_unservable(snapshot, reservations, found)


def _served(
    snapshot: Snapshot, admitted: Admitted, budgeting: Budgeting, reservations: Reservations
) -> tuple[BuyResult, GrowthForPods]:
    """Remote containers first, then nodes of instance groups, then machines."""
    remote = order_containers(snapshot, admitted.pods, budgeting.admission)
    counted = remote.counted(snapshot)
    sized = sized_provisioners(counted) if remote.left else ()
    grown = grow_for_pods(counted, remote.left, budgeting.admission, sized, reservations.placed)
    bought = _with_notes(buy(counted, grown.left, budgeting.admission, reserved=reservations.placed), grown)
    due = [at for at in (bought.requeue_at, remote.requeue_at) if at is not None]
    found = msgspec.structs.replace(
        bought,
        decisions=(*remote.decisions, *bought.decisions),
        left_out=(*remote.explained(bought.left_out), *remote.left_out),
        held=(*remote.held, *bought.held),
        requeue_at=min(due, default=None),
    )
    return found, grown


def _without_unservable(snapshot: Snapshot, reservations: Reservations, first: Purchases) -> Purchases:
    """The purchases anew, without the pods that no offer fits.

    An admitted pod that is too large for every machine would otherwise hold back the pods after it for ever.
    """
    # Whether a pod that may run remotely can be served is for the first pass to say: no plan of nodes knows.
    held = (each.pod for each in first.admitted.held if isinstance(each, Held))
    waiting = [pod for pod in held if pod.uid not in snapshot.portable and pod.uid not in snapshot.unread]
    reserved = reservations.placed
    left_out = tuple(each for each in first.bought.left_out if each.pod.node is None)
    if waiting:
        left_out += plan_for(snapshot, waiting, reserved=reserved).left_out
    unservable = {each.pod.uid for each in left_out}
    rest = tuple(pod for pod in reservations.left if pod.uid not in unservable)
    budgeting = assess_budgets(snapshot)
    admitted = admit(snapshot, budgeting, msgspec.structs.replace(reservations, left=rest))
    bought, grown = _served(snapshot, admitted, budgeting, reservations)
    return Purchases(
        admitted=admitted,
        bought=msgspec.structs.replace(
            bought, left_out=(*left_out, *bought.left_out), plans=(*first.bought.plans, *bought.plans)
        ),
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
