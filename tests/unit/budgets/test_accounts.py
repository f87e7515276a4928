"""Usage of pods in the accounts of budgets: docs/budgets.md, rule by rule."""

import msgspec
import pytest

from forebay.api.parts import LabelSelectorEntry, SelectorExpression, SelectorOperator
from forebay.budgets.accounts import Accounts
from forebay.budgets.usage import Interval, microseconds, seconds, usage
from forebay.model.quantities import GpuHours, Resources
from forebay.model.workloads import Phase, PodShape
from tests.unit.budgets.factories import DAY, MICRO, START, Store, at, budget, pod

T0 = seconds(START)


def opened(*budgets, when=0):
    accounts = Accounts()
    for each in budgets or (budget(),):
        accounts.open(each, at(when))
    return accounts


def used(accounts, when, key=("default", "team-a"), hours=24):
    """Usage in GPU-seconds."""
    ledger = accounts.get(key).ledger
    return ledger.consumed(microseconds(at(when)), hours * 3600 * MICRO) / 1000 / MICRO


def test_a_pod_counts_from_its_first_start_to_its_last_finish_and_by_the_clock_in_between():
    accounts = opened()
    accounts.see(pod(gpus=8, started=0), at(5))
    assert used(accounts, 10) == 80
    assert used(accounts, 20) == 160
    accounts.see(pod(gpus=8, started=0, finished=30, version=2), at(31))
    assert used(accounts, 100) == 240


def test_usage_leaves_the_window_second_by_second():
    accounts = opened(budget(window=1))
    accounts.see(pod(started=0, finished=600), at(700))
    assert used(accounts, 3600, hours=1) == 600
    assert used(accounts, 3900, hours=1) == 300
    assert used(accounts, 4200, hours=1) == 0


def test_a_deleted_pod_still_counts():
    accounts = opened()
    running = pod(started=0)
    accounts.see(running, at(1))
    accounts.gone(pod(started=0, finished=60, version=2), at(61))
    assert used(accounts, 3600) == 60


def test_a_pod_deleted_while_it_runs_counts_until_the_deletion_was_seen():
    accounts = opened()
    accounts.see(pod(started=0), at(1))
    accounts.gone(pod(started=0), at(90))
    assert used(accounts, 3600) == 90


def test_a_pod_seen_late_counts_from_its_start():
    accounts = opened()
    accounts.see(pod(started=0, finished=40), at(5000))
    assert used(accounts, 5000) == 40


def test_a_pod_keeps_counting_through_restarts_from_the_first_start_seen():
    accounts = opened()
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=300, version=2, restarted=True), at(301))
    assert used(accounts, 400) == 400
    accounts.see(pod(started=600, finished=700, version=3, restarted=True), at(701))
    assert used(accounts, 1000) == 700


def test_the_start_of_a_restarted_pod_survives_the_operator():
    accounts, store = opened(), Store()
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, version=2, restarted=True), at(301))
    store.save(accounts.get(("default", "team-a")).ledger, T0 + 302)

    later = Accounts()
    later.open(budget(), at(900), ledger=store.load())
    later.see(pod(started=600, version=4, restarted=True), at(900))
    later.close_missing()
    assert used(later, 1000) == 1000


def test_a_pod_that_failed_before_any_container_ran_counts_nothing():
    accounts = opened()
    accounts.see(pod(phase=Phase.FAILED), at(10))
    assert used(accounts, 100) == 0
    assert accounts.get(("default", "team-a")).ledger.tracked(microseconds(at(100)), DAY * MICRO) == 0


def test_a_failed_pod_without_container_statuses_does_not_accrue_forever():
    accounts = opened()
    accounts.see(pod(started=0), at(1))
    lost = pod(phase=Phase.FAILED, version=2)
    accounts.see(lost, at(100))
    accounts.see(msgspec.structs.replace(lost, resource_version=3), at(500))
    assert used(accounts, 9000) == 100


def test_an_end_that_a_kubelet_reports_late_takes_the_place_of_when_the_loss_was_seen():
    accounts = opened()
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, phase=Phase.FAILED, version=2), at(100))
    accounts.see(pod(started=0, finished=150, phase=Phase.FAILED, version=3), at(200))
    assert used(accounts, 9000) == 150


def test_a_pod_of_a_lost_node_ends_when_it_was_failed_and_deleted():
    accounts = opened()
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, phase=Phase.FAILED, deleted=at(80), version=2), at(100))
    assert used(accounts, 9000) == 80


def test_an_unreported_end_stays_where_it_was_seen_after_a_restart():
    accounts, store = opened(), Store()
    accounts.see(pod(started=0, phase=Phase.FAILED), at(100))
    store.save(accounts.get(("default", "team-a")).ledger, T0 + 101)
    later = Accounts()
    later.open(budget(), at(900), ledger=store.load())
    later.see(pod(started=0, phase=Phase.FAILED), at(900))
    assert used(later, 9000) == 100


def test_a_clock_that_is_ahead_delays_and_one_that_is_behind_shifts_but_nothing_is_negative():
    ahead = opened()
    ahead.see(pod(started=600), at(0))
    assert used(ahead, 300) == 0
    ahead.see(pod(started=600, finished=660, version=2), at(61))
    assert used(ahead, 300) == 0
    assert used(ahead, 5000) == 60

    behind = opened()
    behind.see(pod(started=-300, created=at(0), finished=-200), at(101))
    assert used(behind, 99) == 99
    assert used(behind, 5000) == 100

    backwards = opened()
    backwards.see(pod(started=50, finished=20), at(60))
    assert used(backwards, 5000) == 0


def test_a_clock_set_right_while_the_pod_ran_does_not_count_decades():
    accounts = opened()
    accounts.see(pod(started=-40 * 365 * DAY, created=at(0), finished=100), at(101))
    assert used(accounts, 5000) == 101


def test_a_pod_counts_while_its_labels_match():
    accounts = opened(budget("team-a"), budget("team-b", labels={"team": "b"}))
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, version=2, labels={"team": "b"}), at(100))
    accounts.see(pod(started=0, version=3), at(150))
    accounts.see(pod(started=0, finished=200, version=4), at(201))
    accounts.see(pod(started=0, finished=200, version=5), at(202))
    assert used(accounts, 1000) == 150
    assert used(accounts, 1000, ("default", "team-b")) == 50


def test_the_time_of_a_label_change_survives_the_operator():
    accounts, stores = opened(budget("team-a"), budget("team-b", labels={"team": "b"})), {}
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, version=2, labels={"team": "b"}), at(100))
    for account in accounts:
        stores[account.key] = Store()
        stores[account.key].save(account.ledger, T0 + 100)
    later = Accounts()
    for each in (budget("team-a"), budget("team-b", labels={"team": "b"})):
        later.open(each, at(900), ledger=stores[each.key].load(each.uid))
    later.see(pod(started=0, version=2, labels={"team": "b"}), at(900))
    later.close_missing()
    assert used(later, 1000) == 100
    assert used(later, 1000, ("default", "team-b")) == 900


def test_a_label_change_that_was_not_stored_counts_too_much_rather_than_twice():
    accounts, store = opened(), Store()
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, version=2, labels={}), at(100))
    store.save(accounts.get(("default", "team-a")).ledger, T0 + 100)
    accounts.see(pod(started=0, version=3), at(150))  # and the operator dies
    later = Accounts()
    later.open(budget(), at(200), ledger=store.load(), pods=[pod(started=0, version=3)])
    assert used(later, 300) == 300


def test_a_pod_whose_labels_changed_before_it_ran_counts_from_its_start():
    accounts = opened(budget("team-b", labels={"team": "b"}))
    accounts.see(pod(), at(1))
    accounts.see(pod(version=2, labels={"team": "b"}), at(5))
    accounts.see(pod(started=10, version=3, labels={"team": "b"}), at(11))
    assert used(accounts, 100, ("default", "team-b")) == 90


def test_a_pod_counts_for_several_budgets_but_not_for_those_of_other_namespaces():
    labels = {"team": "a", "app": "x"}
    accounts = opened(budget("team-a"), budget("app-x", labels={"app": "x"}), budget("team-a", namespace="other"))
    accounts.see(pod(started=0, labels=labels), at(1))
    assert used(accounts, 60) == 60
    assert used(accounts, 60, ("default", "app-x")) == 60
    assert used(accounts, 60, ("other", "team-a")) == 0


@pytest.mark.parametrize(
    ("operator", "values", "counts"),
    [
        (SelectorOperator.IN, ("a", "b"), True),
        (SelectorOperator.NOT_IN, ("a",), False),
        (SelectorOperator.EXISTS, (), True),
        (SelectorOperator.DOES_NOT_EXIST, (), False),
    ],
)
def test_selectors_with_only_expressions_work(operator, values, counts):
    expression = SelectorExpression(key="team", operator=operator, values=values)
    accounts = opened(budget(selector=LabelSelectorEntry(match_expressions=(expression,))))
    accounts.see(pod(started=0), at(1))
    assert bool(used(accounts, 60)) is counts


def test_a_budget_counts_pods_that_ran_before_it_was_created():
    accounts = opened(budget("other", labels={"team": "b"}))
    accounts.see(pod(started=0), at(1))
    accounts.see(pod("done", started=0, finished=40), at(41))
    accounts.open(budget(), at(100))
    assert used(accounts, 100) == 140


def test_the_first_budget_of_a_namespace_counts_the_existing_pods():
    accounts = Accounts()
    there = [pod(started=0), pod("done", started=0, finished=40), pod("no-gpu", 0, started=0)]
    for each in there:
        accounts.see(each, at(50))
    assert accounts.visible() == set()
    assert accounts.may_delete(there[1])
    accounts.open(budget(), at(100), pods=there)
    assert used(accounts, 100) == 140
    assert accounts.visible() == {"uid-train", "uid-done"}
    accounts.close(("default", "team-a"), at(100))
    assert accounts.visible() == set()


def test_a_changed_selector_counts_from_the_change():
    accounts = opened(budget(labels={"team": "b"}))
    accounts.see(pod(started=0), at(1))
    accounts.open(budget(), at(100))
    assert used(accounts, 160) == 60
    accounts.open(budget(labels={"team": "c"}), at(200))
    assert used(accounts, 500) == 100


def test_a_recreated_budget_of_the_same_name_starts_from_zero():
    accounts = opened()
    accounts.see(pod("old", started=0), at(1))
    accounts.gone(pod("old", started=0, finished=10, version=2), at(11))
    accounts.see(pod(started=0), at(1))
    again = budget()
    again.metadata.uid = "another"
    accounts.open(again, at(50))
    assert used(accounts, 60) == 60


def test_cpu_counts_in_thousandths_and_any_resource_can_be_counted():
    accounts = opened(budget("cores", gpu_resource_name="cpu"), budget("fpgas", gpu_resource_name="example.com/fpga"))
    asked = PodShape(requests=Resources({"cpu": 100, "example.com/fpga": 2}))
    accounts.see(pod(started=0, shape=asked), at(1))
    ledger = accounts.get(("default", "cores")).ledger
    assert GpuHours.from_units(ledger.consumed(microseconds(at(36)), DAY * MICRO)) == GpuHours.parse("1m")
    assert used(accounts, 36, ("default", "fpgas")) == 72


def test_a_pod_resized_while_it_runs_counts_each_size_for_its_time():
    accounts = opened(budget("cores", gpu_resource_name="cpu"))
    small, large = PodShape(requests=Resources({"cpu": 1000})), PodShape(requests=Resources({"cpu": 4000}))
    accounts.see(pod(started=0, shape=small), at(1))
    accounts.see(pod(started=0, shape=large, version=2), at(100))
    assert used(accounts, 150, ("default", "cores")) == 100 + 4 * 50


def test_stale_pod_states_are_ignored_and_a_uid_never_returns():
    accounts = opened()
    accounts.see(pod(started=0, finished=50, version=5), at(51))
    accounts.see(pod(started=0, version=3), at(60))
    accounts.gone(pod(started=0, finished=50, version=6), at(70))
    accounts.see(pod(started=0, version=4), at(80))
    assert used(accounts, 1000) == 50


def test_a_pod_with_only_a_stored_start_counts_until_it_was_last_known_to_run():
    accounts, store = opened(), Store()
    accounts.see(pod(started=0, restarted=True), at(1))
    store.save(accounts.get(("default", "team-a")).ledger, T0 + 120)
    later = Accounts()
    later.open(budget(), at(5000), ledger=store.load())
    later.close_missing()
    assert used(later, 9000) == 120


def test_a_pod_may_be_deleted_when_every_budget_has_stored_its_usage():
    accounts, store = opened(), Store()
    ledger = accounts.get(("default", "team-a")).ledger
    running, ended = pod(started=0), pod(started=0, finished=10, version=2)
    accounts.see(running, at(1))
    assert not accounts.may_delete(running)
    accounts.see(ended, at(11))
    assert not accounts.may_delete(ended)
    store.save(ledger, T0 + 12)
    assert accounts.may_delete(ended)
    assert accounts.may_delete(pod("no-gpu", 0, started=0))
    other = pod("other", started=0, finished=5, labels={})
    assert not accounts.may_delete(other)
    accounts.see(other, at(12))
    assert accounts.may_delete(other)


def test_usage_added_up_interval_by_interval_is_the_same():
    intervals = [Interval(T0, T0 + 3600, 1000), Interval(T0 + 1800, None, 2000)]
    assert usage(intervals, at(7200), at(7200) - at(0)) == GpuHours.parse("4")
    before = [Interval(T0, T0 + 3600, 1000)]
    assert usage(before, at(7200), at(7200) - at(3600)) == GpuHours.zero(), "what has left the window counts nothing"


def test_a_pod_counts_until_its_machine_is_proven_off_and_from_when_the_machine_is_on_again():
    accounts = opened(budget())
    there = pod(started=0)
    accounts.see(there, at(10))
    accounts.machines_off({"n1": at(100)}, lambda _: [there], at(150))
    assert used(accounts, 500) == 100
    accounts.see(msgspec.structs.replace(there, resource_version=2), at(600))
    assert used(accounts, 900) == 100
    account = accounts.get(("default", "team-a"))
    assert account is not None
    assert not account.pods
    accounts.machines_off({}, lambda _: [there], at(1000))
    assert used(accounts, 1050) == 150
    assert set(account.pods) == {"uid-train"}


def test_a_pod_that_left_the_selector_ended_and_was_labelled_back_counts_only_while_it_matched():
    accounts = opened(budget())
    accounts.see(pod(started=0), at(1))
    accounts.see(pod(started=0, version=2, labels={}), at(99))
    accounts.see(pod(started=0, finished=7200, version=3, labels={}), at(7200))
    back = pod(started=0, finished=7200, version=4)
    accounts.see(back, at(8000))
    assert used(accounts, 9000) == 99
    store = Store()
    store.save(accounts.get(("default", "team-a")).ledger, T0 + 8001)
    again = Accounts()
    again.open(budget(), at(8100), ledger=store.load())
    again.see(back, at(8100))
    assert used(again, 9000) == 99


def test_compaction_keeps_the_usage_and_forgets_the_pods_that_are_gone():
    accounts = opened(budget())
    done = [pod(name, started=0, finished=600) for name in ("done", "also-done")]
    for each in (*done, pod("there", started=0, finished=600)):
        accounts.see(each, at(700))
    for each in done:
        accounts.gone(each, at(800))
    ledger = accounts.get(("default", "team-a")).ledger
    window = {("default", "team-a"): 10 * DAY}
    accounts.compact(at(700 + DAY), {**window}, ())
    Store().save(ledger, T0 + 700 + DAY)
    assert ledger.intervals("uid-done") == ()
    assert ledger.intervals("uid-there") != ()
    assert used(accounts, 2 * DAY, hours=240) == 1800
    accounts.compact(at(12 * DAY), window, ())
    assert used(accounts, 12 * DAY, hours=300) < 1800


def test_dollars_are_compacted_as_the_hours_are():
    accounts = opened(budget())
    money = accounts.get(("default", "team-a")).money
    for key in ("old", "older", "unfinished"):
        money.record(key, T0, T0 + 600, 1000)
    before = money.consumed((T0 + 700) * MICRO, 10 * DAY * MICRO)
    accounts.compact(at(700 + DAY), {("default", "team-a"): 10 * DAY}, {"unfinished"})
    assert money.intervals("old") == ()
    assert money.intervals("unfinished") != ()
    assert money.consumed((T0 + 2 * DAY) * MICRO, 10 * DAY * MICRO) == before > 0
