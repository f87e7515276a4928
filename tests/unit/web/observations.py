"""Observations for the tests of the dashboard."""

from datetime import timedelta

from forebay.budgets.accounts import Accounts
from forebay.budgets.bill_keys import BillKey
from forebay.budgets.ledger.ledger import Ledger
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.reconcile.decisions import PodEvent
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reporting.decision_log import DecisionLog
from forebay.reporting.observation import Observation
from tests.unit.budgets.factories import budget
from tests.unit.reporting.objects import NOW, S, node, pod, pool, record, running

HOUR = 3600
#: What somebody might call an object to run a script in the browser of whoever looks at it.
HOSTILE = "<img src=x onerror=pwned()><script>pwned()</script>\"'><svg onload=pwned()>"


def bill(*keys, dollars=2, hours=3):
    """Ledgers of the bill in which each key has cost so many dollars an hour, until now."""
    end = int(NOW.timestamp())
    found = {}
    for key in keys or (BillKey("team", "team/lab", "owned"),):
        found[key] = Ledger(key.owner)
        found[key].record("machine", end - hours * HOUR, end, UsdPerHour(str(dollars)).units)
    return found


def offers(*changed):
    key = SourceKey("owned", "webhook")
    made = tuple(
        Offer(
            **{
                "provider": "webhook",
                "instance_type": "m1",
                "gpu_count": 4,
                "price": UsdPerHour("1.80"),
                "allocatable": Resources(),
                **each,
            }
        )
        for each in changed
    )
    return {key: Source(key=key, capabilities=Capabilities(deliveries=(Delivery.POWER,)), offers=made)}


def budgets(count=1, at=NOW):
    made = [budget(f"team-{number}", hours="10", window=24) for number in range(count)]
    accounts = Accounts()
    for number, each in enumerate(made):
        ledger = Ledger(each.uid)
        ledger.record("pod", int(at.timestamp()) - 2 * HOUR, int(at.timestamp()), 1000 * (number + 1))
        accounts.open(each, at, ledger=ledger)
    return tuple(made), BudgetState(accounts=accounts.frozen())


def observed(*, now=NOW, decisions=(), bill_ledgers=None, **fields):
    """A cluster with a machine, a waiting pod, a budget, an offer and a decision; `fields` replace parts of it."""
    known_budgets, state = budgets(at=now)
    waiting = pod("waits", capacity="NoOfferFits: None of 3 offers fits the pod.")
    snapshot = Snapshot(
        **{
            "now": now,
            "cluster": "11111111-2222-3333-4444-555555555555",
            "pools": (pool(),),
            "nodes": {"m1": node()},
            "used": {"m1": Resources({"cpu": 1000, "nvidia.com/gpu": 3})},
            "pending": (waiting,),
            "records": (record(), record("old", S.GONE, billed_until=now - timedelta(minutes=1))),
            "pods_by_node": {"m1": (running(),)},
            "sources": offers({}, {"instance_type": "big", "gpu_count": 8, "price": UsdPerHour("2.00"), "spot": True}),
            "budgets": known_budgets,
            "budget_state": state,
            **fields,
        }
    )
    log = DecisionLog()
    told = PodEvent(pod=waiting, reason=Reason.NO_OFFER_FITS, sentence="None of 3 offers fits the pod.")
    log.add((told, *decisions), now)
    return Observation(
        snapshot=snapshot,
        decisions=(told, *decisions),
        log=log,
        bill=bill() if bill_ledgers is None else bill_ledgers,
    )
