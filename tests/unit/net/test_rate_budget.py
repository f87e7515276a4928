"""The rate budget: token bucket, order of requests, limits of the server."""

import asyncio
import random
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forebay.net import clock
from forebay.net.rate_budget import Lane, RateBudget
from forebay.net.server_hints import Window, retry_after, windows
from forebay.net.transport import Headers, NeverSent, Request, Response
from forebay.simulate.virtual_time import run

GET = Request(method="GET", url="http://here/")


class Sent:
    """Records when each request arrives; sends scripted responses, then 200."""

    def __init__(self, *answers, takes=0.0):
        self._answers = list(answers)
        self._takes = takes
        self.at: list[float] = []
        self.names: list[str] = []

    async def request(self, request):
        self.at.append(asyncio.get_running_loop().time())
        self.names.append(request.url)
        status, headers = self._answers.pop(0) if self._answers else (200, {})
        await asyncio.sleep(self._takes)
        return Response(status, headers)

    async def close(self):
        pass


async def test_a_burst_passes_at_once_and_the_rest_at_the_configured_rate():
    sent = Sent()
    budget = RateBudget(sent, qps=2, burst=3)
    await asyncio.gather(*(budget.request(GET) for _ in range(7)))
    assert sent.at == [0, 0, 0, 0.5, 1.0, 1.5, 2.0]
    await asyncio.sleep(10)  # the bucket fills up again, but not beyond its size
    began = asyncio.get_running_loop().time()
    await asyncio.gather(*(budget.request(GET) for _ in range(4)))
    assert [round(at - began, 9) for at in sent.at[7:]] == [0, 0, 0, 0.5]


async def test_a_request_behind_too_many_others_is_refused_at_once_and_not_after_waiting_in_vain():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, longest_wait=5)
    tasks = [asyncio.create_task(budget.request(GET)) for _ in range(6)]
    await asyncio.sleep(0.5)
    with pytest.raises(NeverSent, match=r"would delay the request by \d+ s, more than 5 s"):
        await budget.request(GET)
    assert asyncio.get_running_loop().time() == 0.5
    await asyncio.sleep(1)
    await budget.request(GET)
    await asyncio.gather(*tasks)
    assert sent.at == [0, 1, 2, 3, 4, 5, 6]


async def test_first_come_first_served_even_when_some_give_up():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1)
    tasks = [
        asyncio.create_task(budget.request(Request(method="GET", url=f"http://here/{number}"))) for number in range(6)
    ]
    await asyncio.sleep(1.5)
    tasks[2].cancel()
    tasks[4].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [name[-1] for name in sent.names] == ["0", "1", "3", "5"]
    assert sent.at == [0, 1, 2, 3]  # nor did the turns of those who left go to waste


async def test_a_wait_that_would_be_too_long_is_refused_at_once():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, longest_wait=5)
    results = await asyncio.gather(*(budget.request(GET) for _ in range(10)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, NeverSent)]
    assert (len(sent.at), len(refused)) == (6, 4)
    assert "the rate limit would delay the request by 6 s, more than 5 s (too many requests are queued)" in str(
        refused[0]
    )
    assert refused[0].lasting


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_pauses_all_requests(status):
    sent = Sent((status, {"Retry-After": "9"}))
    budget = RateBudget(sent, qps=100, burst=100)
    assert (await budget.request(GET)).status == status
    await asyncio.gather(*(budget.request(GET) for _ in range(3)))
    assert sent.at == [0, 9, 9, 9]


@pytest.mark.parametrize(("qps", "seconds"), [(10, 200), (100, 45), (0.1, 60)])
async def test_a_pause_longer_than_the_limit_says_that_the_server_asked_for_it(qps, seconds):
    budget = RateBudget(Sent((429, {"Retry-After": str(seconds)})), qps=qps, burst=10)
    await budget.request(GET)
    why = rf"delay the request by {seconds} s, more than 30 s \(the server asked for a pause\)"
    with pytest.raises(NeverSent, match=why):
        await budget.request(GET)


@pytest.mark.parametrize(
    "headers",
    [{"Retry-After": "86400"}, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "86400"}],
    ids=["retry after", "quota"],
)
async def test_a_server_that_asks_for_a_day_is_asked_again_after_five_minutes(headers):
    sent = Sent((429, headers))
    budget = RateBudget(sent, qps=10, burst=10)
    await budget.request(GET)
    await asyncio.sleep(299)
    await budget.request(GET)
    assert sent.at == [0, 300]


async def test_a_pause_also_applies_to_requests_that_already_wait():
    sent = Sent((200, {}), (429, {"Retry-After": "10"}))
    budget = RateBudget(sent, qps=1, burst=1)
    await asyncio.gather(*(budget.request(GET) for _ in range(4)))
    assert sent.at == [0, 1, 11, 12]


async def test_the_longest_of_several_pauses_counts():
    sent = Sent((429, {"Retry-After": "20"}), (429, {"Retry-After": "5"}), takes=1)
    budget = RateBudget(sent, qps=100, burst=100)
    await asyncio.gather(budget.request(GET), budget.request(GET))
    await budget.request(GET)
    assert sent.at == [0, 0, 21]


async def test_who_waits_is_refused_when_a_pause_comes_that_is_too_long():
    await asyncio.sleep(3600)  # as in a process that has run for a while
    began = asyncio.get_running_loop().time()
    sent = Sent((429, {"Retry-After": "600"}), takes=0.5)
    budget = RateBudget(sent, qps=1, burst=1)
    first, second = await asyncio.gather(budget.request(GET), budget.request(GET), return_exceptions=True)
    assert first.status == 429
    assert isinstance(second, NeverSent)
    assert "(the server asked for a pause)" in str(second)
    assert asyncio.get_running_loop().time() < began + 2


async def test_the_server_has_not_counted_the_requests_in_flight():
    sent = Sent((200, {"X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "20"}), takes=1)
    budget = RateBudget(sent, qps=100, burst=100)
    first = asyncio.create_task(budget.request(GET))
    await asyncio.sleep(0.5)
    second = asyncio.create_task(budget.request(GET))
    await first
    await asyncio.gather(second, *(budget.request(GET) for _ in range(3)))
    assert sent.at == [0, 0.5, 1, 1, 21]


async def test_a_quota_that_is_used_up_is_respected_until_it_is_renewed():
    sent = Sent((200, {"RateLimit": '"default";r=2;t=20'}))
    budget = RateBudget(sent, qps=100, burst=100)
    await budget.request(GET)
    for _ in range(4):
        await budget.request(GET)
    assert sent.at == [0, 0, 0, 20, 20]


async def test_a_better_rate_limit_header_ends_a_wait_early():
    sent = Sent((200, {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "20"}), takes=1)
    budget = RateBudget(sent, qps=100, burst=100)
    first = asyncio.create_task(budget.request(GET))
    await asyncio.sleep(0.5)
    sent._answers.append((200, {"X-RateLimit-Remaining": "50", "X-RateLimit-Reset": "20"}))
    second = asyncio.create_task(budget.request(GET))
    await first  # its answer counts the second as not yet seen by the server: nothing is left
    third = asyncio.create_task(budget.request(GET))
    await asyncio.gather(second, third)
    assert sent.at == [0, 0.5, 1.5]


@pytest.mark.law
@given(
    qps=st.floats(0.1, 200),
    burst=st.integers(1, 20),
    seed=st.integers(0, 2**32),
    count=st.integers(1, 60),
    pace=st.floats(0, 3),
)
@example(qps=0.3, burst=1, seed=0, count=40, pace=0.0)
def test_law_no_window_holds_more_than_the_burst_and_the_rate(qps, burst, seed, count, pace):
    async def world():
        chance = random.Random(seed)
        sent = Sent(takes=chance.random())
        budget = RateBudget(sent, qps=qps, burst=burst, longest_wait=1e9)
        tasks = []
        for _ in range(count):
            tasks.append(asyncio.create_task(budget.request(GET)))
            if chance.random() < 0.1:
                tasks[-1].cancel()
            await asyncio.sleep(chance.random() * pace / qps)
        await asyncio.gather(*tasks, return_exceptions=True)
        return sent.at

    at = run(world())
    for first in range(len(at)):
        for last in range(first, len(at)):
            assert last - first + 1 <= burst + qps * (at[last] - at[first]) + 1e-6


NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120),
        ("0", 0),
        ("1.5", 1.5),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0),
        ("Tue, 01 Jan 2030 02:01:30 +0200", 90),
        ("Tue, 01 Jan 2030 00:01:30 -0000", 90),
        ("2030-01-01T00:01:30", 90),
        ("2030-01-01T01:01:30+01:00", 90),
        ("soon", None),
        ("1000000000", 0),
        ("999999999", 999_999_999),
        ("-3", None),
        ("nan", None),
        ("", None),
    ],
)
def test_retry_after_in_all_its_forms(value, seconds):
    assert retry_after(Headers({"retry-after": value}), NOW) == seconds


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"RateLimit": '"default";r=50;t=30'}, [("default", 50, 30)]),
        ({"RateLimit": '"burst"; r=0; t=5, "daily"; r=999; t=86000'}, [("burst", 0, 5), ("daily", 999, 86000)]),
        (
            {"RateLimit": '"p";r=0', "RateLimit-Policy": '"p";q=100;w=60;pk=:dGVuYW50:, "q";q=1;w=1'},
            [("p", 0, 60)],
        ),
        ({"RateLimit": '"a, \\"b\\"";r=3;t=4;pk=:cGs=:'}, [('a, \\"b\\"', 3, 4)]),
        ({"RateLimit": '"p";r=0'}, []),
        ({"RateLimit": '"p";t=5'}, []),
        ({"RateLimit": "limit=100, remaining=50, reset=5"}, [("", 50, 5)]),
        ({"RateLimit": "limit=100, remaining=50"}, []),
        ({"RateLimit": "limit=100, reset=5"}, []),
        ({"RateLimit": "", "RateLimit-Remaining": "7", "RateLimit-Reset": "5"}, []),
        ({"RateLimit-Remaining": "7"}, []),
        ({"RateLimit-Reset": "7"}, []),
        ({"RateLimit-Remaining": "7", "RateLimit-Reset": "soon"}, []),
        (
            {"RateLimit-Remaining": "1", "X-RateLimit-Remaining": "7, 90", "X-RateLimit-Reset": "5, 60"},
            [("X-RateLimit-", 7, 5)],
        ),
        ({"RateLimit-Limit": "100", "RateLimit-Remaining": "7", "RateLimit-Reset": "5"}, [("RateLimit-", 7, 5)]),
        ({"X-RateLimit-Remaining": "7", "X-RateLimit-Reset": "5"}, [("X-RateLimit-", 7, 5)]),
        ({"X-Rate-Limit-Remaining": "7", "X-Rate-Limit-Reset": "5"}, [("X-Rate-Limit-", 7, 5)]),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW.timestamp()) + 33)},
            [("X-RateLimit-", 0, 33)],
        ),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOW.timestamp()) * 1000 + 33_000)},
            [("X-RateLimit-", 0, 33)],
        ),
        (
            {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "2030-01-01T00:00:09+00:00"},
            [("X-RateLimit-", 0, 9)],
        ),
        ({"X-RateLimit-Remaining": "lots", "X-RateLimit-Reset": "5"}, []),
        ({"RateLimit": "nonsense;;;===,,,"}, []),
        ({}, []),
    ],
)
def test_rate_limits_in_all_their_spellings(fields, found):
    assert windows(Headers(fields), NOW) == [Window(*window) for window in found]


async def test_dates_are_compared_with_the_virtual_clock():
    assert retry_after(Headers({"Retry-After": "Tue, 01 Jan 2030 00:00:30 GMT"}), clock.now()) == 30


def test_an_impossible_rate_budget_is_an_error():
    for qps, burst in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="qps > 0"):
            RateBudget(Sent(), qps=qps, burst=burst)


@pytest.mark.parametrize("number", ["9" * 5000, "²", "-1", "nan", ""])
def test_absurd_numbers_in_headers_are_ignored(number):
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert retry_after(Headers({"Retry-After": number}), now) is None
    assert retry_after(Headers({"Retry-After": f"1 Jan 2030 00:00:{number}"}), now) is None
    for fields in (
        {"X-RateLimit-Remaining": number, "X-RateLimit-Reset": number},
        {"RateLimit": f'"a";r={number};t={number}'},
        {"RateLimit": f"remaining={number}, reset={number}"},
    ):
        assert windows(Headers(fields), now) == []


def by_first_letter(request):
    """Lanes `l`, which goes first, and all others, of which `t` has twice the share."""
    name = request.url.rpartition("/")[2][0]
    return Lane(name, {"l": 100, "t": 2}.get(name, 1))


async def queued(budget, *names):
    """Sends these requests at once, in this order."""
    requests = [Request(method="GET", url=f"http://here/{name}") for name in names]
    return await asyncio.gather(*map(budget.request, requests), return_exceptions=True)


async def test_lanes_are_served_by_their_shares_and_each_in_order():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, lane_of=by_first_letter)
    await queued(budget, "a0", "a1", "a2", "a3", "b1", "b2", "t1", "t2", "t3", "t4", "l1")
    names = [name.rpartition("/")[2] for name in sent.names]
    assert names == ["a0", "l1", "t1", "a1", "b1", "t2", "t3", "a2", "b2", "t4", "a3"]
    assert sent.at == [*range(11)]


async def test_a_crowd_in_one_lane_delays_another_for_one_turn():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, longest_wait=100, lane_of=by_first_letter)
    crowd = asyncio.create_task(queued(budget, *(f"a{number}" for number in range(50))))
    await asyncio.sleep(10.5)
    began = asyncio.get_running_loop().time()
    await queued(budget, "b")
    assert asyncio.get_running_loop().time() - began <= 2
    began = asyncio.get_running_loop().time()
    await queued(budget, "l")
    assert asyncio.get_running_loop().time() - began <= 1
    await crowd
    assert len(sent.at) == 52


async def test_who_is_overtaken_for_too_long_is_told_so_and_was_never_sent():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, longest_wait=5, lane_of=by_first_letter)
    slow = asyncio.create_task(queued(budget, "a"))
    for number in range(10):
        await queued(budget, f"l{number}")
    (result,) = await slow
    assert isinstance(result, NeverSent)
    assert "too many requests are queued" in str(result)
    assert len(sent.at) == 10


async def test_whoever_gives_up_in_a_lane_leaves_the_turn_to_the_next():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, lane_of=by_first_letter)
    tasks = [asyncio.create_task(queued(budget, name)) for name in ("a0", "a1", "b1", "l1")]
    await asyncio.sleep(0.5)
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [name[-2:] for name in sent.names] == ["a0", "a1", "b1"]
    assert sent.at == [0, 1, 2]


async def test_whoever_gave_up_costs_its_lane_no_later_turn():
    sent = Sent()
    budget = RateBudget(sent, qps=1, burst=1, lane_of=by_first_letter)
    crowd = asyncio.create_task(queued(budget, *(f"a{number}" for number in range(9))))
    await asyncio.sleep(0.5)
    crowd.cancel()
    await asyncio.gather(crowd, return_exceptions=True)
    await queued(budget, "b1", "a9", "b2")
    assert [name[-2:] for name in sent.names] == ["a0", "b1", "a9", "b2"]
