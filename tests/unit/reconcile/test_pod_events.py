"""Events about pods that wait: few, whatever their number."""

from datetime import timedelta

import pytest

from forebay.api.names import BUDGET_GATE
from forebay.demand.assessment import Assessment, NotDemand
from forebay.demand.reservation import Reservations
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Source, SourceKey
from forebay.model.workloads import Owner
from forebay.planning.plan import LeftOut
from forebay.reconcile.buying import BuyResult
from forebay.reconcile.decisions import OwnerEvent, PodEvent
from forebay.reconcile.pod_events import per_owner, pod_events
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, ago, pod, running

SWEEP = Owner("Job", "sweep", "uid-of-sweep")


def waits(count, reason=Reason.NO_OFFER_FITS, prefix="p", **fields):
    return [
        PodEvent(
            pod=pod(f"{prefix}{number}", created=NOW - timedelta(seconds=number), **fields),
            reason=reason,
            sentence="None of 3 offers fits.",
            warning=True,
        )
        for number in range(count)
    ]


def test_a_few_pods_of_a_job_get_an_event_each():
    few = waits(8, owner=SWEEP)

    assert list(per_owner(few)) == few


def test_of_many_pods_the_oldest_get_an_event_and_the_owner_gets_one_with_their_number():
    found = list(per_owner(waits(3000, owner=SWEEP)))

    assert [each.pod.name for each in found if isinstance(each, PodEvent)] == [f"p{n}" for n in range(2999, 2991, -1)]
    assert [each for each in found if isinstance(each, OwnerEvent)] == [
        OwnerEvent(
            namespace=found[0].pod.namespace,
            owner=SWEEP,
            pods=3000,
            reason=Reason.NO_OFFER_FITS,
            sentence="None of 3 offers fits.",
            warning=True,
        )
    ]


def test_each_reason_of_an_owner_is_told():
    both = [*waits(9, owner=SWEEP), *waits(9, Reason.LIMIT_REACHED, "q", owner=SWEEP)]

    assert {each.reason for each in per_owner(both) if isinstance(each, OwnerEvent)} == {
        Reason.NO_OFFER_FITS,
        Reason.LIMIT_REACHED,
    }


def test_of_many_pods_without_an_owner_a_few_get_an_event():
    assert len(list(per_owner(waits(3000)))) == 8


def told(*not_demand, left_out=(), unreadable=(), sources=()):
    snapshot = Snapshot(now=NOW, unreadable_pods=tuple(unreadable), sources={each.key: each for each in sources})
    bought = BuyResult(left_out=tuple(left_out))
    return list(pod_events(snapshot, Assessment(not_demand=not_demand), Reservations(), bought))


def test_only_what_somebody_has_to_act_on_is_a_warning():
    gated = NotDemand(pod=pod("gated"), reason=Reason.GATED, sentence="It has a gate.")
    bare = NotDemand(pod=pod("bare"), reason=Reason.CONTAINER_CONFIG_ERROR, sentence="Its Secret is missing.")
    left = LeftOut(pod=pod("huge"), reason=Reason.NO_OFFER_FITS, sentence="None fits.")

    found = told(gated, bare, left_out=[left], unreadable=[(running("odd"), "a quantity")])

    assert [(each.pod.name, each.reason, each.warning) for each in found] == [
        ("odd", Reason.UNREADABLE, True),
        ("gated", Reason.GATED, False),
        ("bare", Reason.CONTAINER_CONFIG_ERROR, True),
        ("huge", Reason.NO_OFFER_FITS, True),
    ]


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [({}, False), ({"scheduler_error_since": ago(minutes=1)}, True)],
)
def test_a_pod_that_the_scheduler_has_not_tried_yet_is_told_only_where_the_scheduler_fails(fields, is_told):
    untried = NotDemand(pod=pod(**fields), reason=Reason.NOT_YET_SCHEDULED, sentence="Not tried.")
    assert bool(told(untried)) is is_told


def test_a_pod_behind_the_gate_of_a_budget_hears_from_its_budget():
    gated = pod(scheduling_gates=(BUDGET_GATE,))
    assert told(NotDemand(pod=gated, reason=Reason.GATED, sentence="It has a gate.")) == []


def test_no_pod_is_told_that_nothing_fits_before_every_source_has_answered_or_failed():
    def source(name, **fields):
        return Source(key=SourceKey(name, "simulated"), capabilities=Capabilities(deliveries=()), **fields)

    left = [LeftOut(pod=pod("huge"), reason=Reason.NO_OFFER_FITS, sentence="None fits.")]
    known, failed, silent = source("a", offers=()), source("b", offers=None, error="401"), source("c", offers=None)
    assert len(told(left_out=left, sources=[known, failed])) == 1
    assert told(left_out=left, sources=[known, silent]) == []
