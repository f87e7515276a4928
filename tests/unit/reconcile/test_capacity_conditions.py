"""What the condition of a waiting pod says, and when it is written anew."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.demand.reservation import Reservation, Reservations
from forebay.model.reasons import Reason
from forebay.planning.candidates import CandidateContext, CoolingDown, candidates
from forebay.reconcile.capacity_conditions import report_capacity, without_figures
from forebay.reconcile.decisions import PodEvent
from forebay.reconcile.snapshot import Snapshot
from tests.unit.demand.builders import NOW, pod, running
from tests.unit.planning.test_candidates import node_class, offer, pool, source


def written(*waits, now=NOW, reservations=None, **snapshot):
    reports = list(report_capacity(Snapshot(now=now, **snapshot), reservations or Reservations(), waits))
    assert len(reports) <= 1
    return reports[0] if reports else None


def wait(name="p", reason=Reason.NO_OFFER_FITS, sentence="None of 3 offers fits.", **fields):
    return PodEvent(pod=pod(name, **fields), reason=reason, sentence=sentence)


def test_a_pod_without_the_condition_gets_it_and_one_whose_condition_is_true_is_left_alone():
    report = written(wait("new"), wait("told", capacity="NoOfferFits: None of 3 offers fits."))

    assert [(each.pod.name, each.bound, each.text) for each in report.changes] == [
        ("new", False, "NoOfferFits: None of 3 offers fits.")
    ]
    assert report.refreshes == ()


def test_without_pods_that_wait_there_is_nothing_to_report():
    assert written() is None


@pytest.mark.parametrize(
    ("stored", "kind"),
    [
        ("NoOfferFits: None of 17 offers fits.", None),
        ("LimitReached: None of 3 offers fits.", "changes"),
        ("NoOfferFits: No offer of the 3 fits.", "refreshes"),
    ],
)
def test_figures_alone_are_no_reason_to_write_again(stored, kind):
    report = written(wait(capacity=stored))

    assert {name for name in ("changes", "refreshes") if getattr(report, name)} == ({kind} if kind else set())


def test_a_pod_told_to_wait_until_noon_is_told_anew_in_the_afternoon():
    sentence = "The pod starts not before {:%Y-%m-%d %H:%M:%S} UTC."
    noon, evening = NOW + timedelta(hours=1), NOW + timedelta(hours=9)
    held = wait(
        reason=Reason.HELD_BY_BUDGET,
        sentence=sentence.format(evening),
        capacity=f"HeldByBudget: {sentence.format(noon)}",
    )

    assert not written(held, now=noon).refreshes
    assert [each.message for each in written(held, now=noon + timedelta(seconds=1)).refreshes] == [held.sentence]


def test_a_pod_told_of_a_cooldown_that_is_over_is_told_of_the_next():
    def cooling(until):
        offers = source(offer())
        context = CandidateContext(now=NOW, cooldowns={offer().key: CoolingDown(until, "it failed")})
        (excluded,) = candidates(offers, [pool()], [node_class()], context).excluded
        return f"The only offer {excluded.sentence}."

    first, second = NOW + timedelta(minutes=5), NOW + timedelta(minutes=30)
    waiting = wait(sentence=cooling(second), capacity=f"NoOfferFits: {cooling(first)}")

    assert not written(waiting, now=first).refreshes
    assert written(waiting, now=first + timedelta(seconds=1)).refreshes


def test_what_is_no_date_in_the_text_of_somebody_else_is_no_date():
    assert not written(wait(capacity="NoOfferFits: None of 2 offers fits. 2026-13-45 99:99:99 UTC")).changes


def test_the_reason_of_most_pods_is_written_first_and_its_oldest_pods_before_the_others():
    late = {"created": NOW + timedelta(seconds=5)}
    report = written(
        wait("rare", Reason.LIMIT_REACHED),
        wait("young", **late),
        wait("old"),
    )

    assert [each.pod.name for each in report.changes] == ["old", "young", "rare"]


def test_a_bound_pod_that_was_told_to_wait_is_told_that_it_has_a_node():
    report = written(told_but_bound=(running("p", node="n1", capacity="NoOfferFits: None."),))

    assert [(each.bound, each.text) for each in report.changes] == [(True, "Bound: The pod is bound to node n1.")]


def test_a_pod_that_is_bound_to_the_virtual_node_and_gets_no_container_is_told_why():
    bound = running("p", node="runpod-virtual-node")
    waits = PodEvent(pod=bound, reason=Reason.COOLING_DOWN, sentence="All offers cool down.")
    report = written(waits, stranded=(bound,))
    assert [(each.bound, each.text) for each in report.changes] == [(False, "CoolingDown: All offers cool down.")]
    told = replace(bound, capacity="CoolingDown: All offers cool down.")
    waits = replace(waits, pod=told)
    assert not written(waits, stranded=(told,), told_but_bound=(told,)).changes
    # Its container is ordered.
    assert [each.reason for each in written(stranded=(told,), told_but_bound=(told,)).changes] == [Reason.BOUND]


def test_a_pod_whose_machine_is_launching_is_told_so_and_one_that_fits_now_is_not():
    launching = Reservation(node="n", launching="n", reason=Reason.CAPACITY_LAUNCHING, sentence="n is launching.")
    fits = Reservation(node="m", reason=Reason.FITS_EXISTING, sentence="m has room.")
    report = written(
        pending=(pod("a"), pod("b")),
        reservations=Reservations(placed={pod("a").uid: launching, pod("b").uid: fits}),
    )

    assert [(each.pod.name, each.text) for each in report.changes] == [("a", "CapacityLaunching: n is launching.")]


def test_a_sentence_is_cut_and_can_be_encoded():
    message = written(wait(sentence="\ud800" + "x" * 5000)).changes[0].message

    assert message.encode().endswith(b"...")
    assert len(message) == 1000


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("for 3m: wait", "for 1h5m: wait", True),
        ("at $0.80/h, 3 left", "at $12/h, 14 left", True),
        ("until 2030-01-01 12:00:00 UTC", "until 2031-11-11 00:00:01 UTC", True),
        ("gpu-7 is full", "gpu-8 is full", False),
        ("rack-4b (4 GPUs)", "rack-4b (8 GPUs)", True),
    ],
)
def test_figures_are_words_of_their_own(one, other, same):
    assert (without_figures(one) == without_figures(other)) is same
