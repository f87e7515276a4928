"""Usage, forecast and headroom of a budget."""

from datetime import timedelta

import pytest

from forebay.budgets.assessment import Assessor, QuotaLimits, earliest_headroom, headroom
from forebay.budgets.usage import seconds
from forebay.model.quantities import GpuHours, Usd, UsdPerHour
from forebay.model.reasons import Reason
from tests.unit.budgets.factories import START, assessed, at, budget, pod

T0 = seconds(START)
KEY = ("default", "team-a")
HOUR = 3600


def standing(*pods, when=0, **fields):
    _, found, _ = assessed(*pods, budgets=[budget(**fields)], when=when)
    return found[KEY]


def test_a_budget_says_what_is_used_what_is_left_and_how_fast_it_goes():
    found = standing(pod(gpus=8, started=0), pod("done", 2, started=0, finished=HOUR), when=2 * HOUR)
    assert (found.consumed, found.remaining) == (GpuHours.parse(18), GpuHours.parse(82))
    assert (found.tracked, found.burn) == (2, 8)
    assert not found.exceeded
    assert found.reason is Reason.WITHIN_BUDGET
    assert found.sentence == "18 GPU-h of 100 GPU-h used in the last 24h."


def test_exceeded_means_reached_to_the_microsecond():
    one = pod(gpus=1, started=0)
    assert not standing(one, hours="1", when=HOUR - 0.000001).exceeded
    found = standing(one, hours="1", when=HOUR)
    assert found.exceeded
    assert (found.remaining, found.reason) == (GpuHours.zero(), Reason.QUOTA_REACHED)


def test_the_forecast_is_when_the_quota_is_reached_at_the_present_rate():
    assert standing(pod(gpus=8, started=0), when=HOUR).exhausted == at(12.5 * HOUR)
    assert standing(pod(gpus=4, started=0), when=HOUR).exhausted is None
    assert standing(pod(gpus=5, started=0), when=HOUR).exhausted == at(20 * HOUR)
    assert standing(when=HOUR).exhausted is None
    assert standing(pod(gpus=8, started=0), hours="1", when=HOUR).exhausted == at(HOUR)


def test_the_forecast_knows_that_what_was_used_leaves_the_window():
    # 10 GPUs for an hour leave the window while 5 go on: they leave before the quota is used up, so it never is.
    before = pod("before", 10, started=0, finished=HOUR)
    now = pod("now", 4, started=20 * HOUR)
    assert standing(before, now, hours="97", when=20 * HOUR).earliest is None
    assert standing(before, now, hours="24", when=20 * HOUR).earliest == at(23.5 * HOUR)
    # 24 h after the first use ten an hour leave and four come; when these have gone, four come again.
    assert standing(before, now, hours="27", when=20 * HOUR).earliest == at(26.75 * HOUR)


def test_a_forecast_is_cached_until_the_ledger_changes():
    accounts, _, _ = assessed(pod(gpus=8, started=0), when=0)
    budgets, assessor = [budget()], Assessor()
    assert assessor.assess(budgets, accounts, at(10))[KEY].earliest == at(12.5 * HOUR)
    assert assessor.assess(budgets, accounts, at(20))[KEY].earliest == at(12.5 * HOUR)
    accounts.see(pod("more", 8, started=20), at(20))
    assert assessor.assess(budgets, accounts, at(20))[KEY].earliest == at(20 + (100 * HOUR - 160) / 16)
    assert assessor.assess([budget(hours="8")], accounts, at(20))[KEY].earliest == at(20 + (8 * HOUR - 160) / 16)
    assert assessor.assess([], accounts, at(20)) == {}


def test_running_pods_are_assumed_to_run_for_another_hour():
    accounts, _, _ = assessed(pod(gpus=8, started=0), when=HOUR)
    found = headroom(accounts.get(KEY), QuotaLimits.of(budget().spec.quota), at(HOUR))
    assert found.gpu_hours == GpuHours.parse(84)
    assert found.until == at(2 * HOUR)
    assert found.usd is None


def test_headroom_includes_what_will_have_left_the_window_by_then():
    steady = pod(gpus=4, started=0)
    accounts, _, _ = assessed(steady, when=48 * HOUR)
    assert headroom(accounts.get(KEY), QuotaLimits.of(budget().spec.quota), at(48 * HOUR)).gpu_hours == GpuHours.parse(
        4
    )


@pytest.mark.parametrize("usd", ["1", "0.50"])
def test_dollars_alone_can_use_a_budget_up(usd):
    one = budget(hours=None, usd=usd)
    accounts, _, _ = assessed(budgets=[one])
    accounts.get(KEY).money.begin("instance", T0, UsdPerHour(1).units, T0)
    found = Assessor().assess([one], accounts, at(1800))[KEY]
    assert found.consumed_usd == Usd("0.50")
    assert found.exceeded is (usd == "0.50")
    assert found.burn_usd == UsdPerHour(1)
    assert found.earliest == at(3600 if usd == "1" else 1800)
    assert found.sentence == f"$0.50 of {Usd(usd)} used in the last 24h."


def test_a_burst_is_forecast_at_the_mean_rate_of_the_last_hour_and_an_end_at_the_present_rate():
    # Ten minutes of 48 GPUs are 8 GPU-hours: a mean of 8 GPUs, which use up 100 GPU-hours 11.5 hours later.
    burst = standing(pod(gpus=48, started=HOUR - 600), when=HOUR)
    assert burst.exhausted == at(HOUR + 11.5 * HOUR)
    assert burst.earliest == at(HOUR + 92 * HOUR / 48)
    over = standing(pod("done", 48, started=0, finished=HOUR - 60), pod("rest", 1, started=0), when=HOUR)
    assert over.exhausted is None


def test_small_quotas_are_not_shown_as_zero_and_every_resource_has_its_unit():
    small = standing(pod(gpus=1, started=0), hours="400u", when=1)
    assert small.sentence == "0.0003 GPU-h of 0.0004 GPU-h used in the last 24h."
    assert standing(hours="2", gpu_resource_name="cpu").sentence == "0 core-h of 2 core-h used in the last 24h."
    assert "example.com/tpu-h" in standing(hours="2", gpu_resource_name="example.com/tpu").sentence


def test_the_forecast_is_of_the_quota_that_is_used_up_first():
    accounts, _, _ = assessed(pod(gpus=8, started=0), when=HOUR)
    account = accounts.get(KEY)
    assert account is not None
    rate = UsdPerHour(2).units
    account.money.begin("machine", seconds(at(0)), rate, seconds(at(0)))
    for hours, usd, first in (("100", "4", 2), ("16", "100", 2), ("24", "4", 2), ("16", "10", 2)):
        both = budget(hours=hours, usd=usd)
        assert Assessor().standing(both, account, at(HOUR)).exhausted == at(first * HOUR)


def spent(*hours):
    """Account with a GPU, and a dollar an hour, for each of these hours; a day later they leave the window."""
    accounts, _, _ = assessed(
        *(pod(f"at-{hour}", started=hour * HOUR, finished=(hour + 1) * HOUR) for hour in hours), when=20 * HOUR
    )
    account = accounts.get(KEY)
    for hour in hours:
        account.money.record(f"at-{hour}", T0 + hour * HOUR, T0 + (hour + 1) * HOUR, UsdPerHour("1").units)
    return account


@pytest.mark.parametrize(
    ("quota", "need", "hour"),
    [
        # 1 GPU-hour is used from hour 25 on, and none from hour 28: what is needed may be all that is left.
        ({"hours": "2"}, {"need": GpuHours.parse(1)}, 25),
        ({"hours": "2"}, {"need": GpuHours.parse(2)}, 28),
        ({"hours": "2"}, {"need": GpuHours.parse(5)}, 28),
        ({"hours": "3"}, {"need": GpuHours.parse(1)}, 20),
        ({"hours": None, "usd": "2"}, {"need_usd": Usd("1")}, 25),
        ({"hours": None, "usd": "2"}, {"need_usd": Usd("5")}, 28),
        # A budget of which all is used has room for nothing, not even for what costs nothing yet.
        ({"hours": None, "usd": "1"}, {}, 27),
        ({"hours": "2", "usd": "2"}, {"need": GpuHours.parse(1), "need_usd": Usd("2")}, 28),
    ],
)
def test_room_comes_when_enough_has_left_the_window(quota, need, hour):
    limits = QuotaLimits.of(budget(**quota).spec.quota)
    found = earliest_headroom(spent(0, 3), limits, need.pop("need", GpuHours.parse(0)), at(20 * HOUR), **need)
    assert timedelta(0) <= found - at(hour * HOUR) <= timedelta(seconds=1)
