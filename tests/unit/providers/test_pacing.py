"""No window of a provider's rate limit, wherever it begins, has more requests than the limit allows."""

import asyncio
from datetime import timedelta

from forebay.model.sources import Capabilities, Delivery, RateLimit
from forebay.net.rate_budget import Lane
from forebay.net.transport import Request, Response
from forebay.providers.pacing import paced


class Counting:
    def __init__(self):
        self.sent = []

    async def request(self, _request):
        self.sent.append(asyncio.get_running_loop().time())
        return Response(status=200)

    async def close(self):
        pass


def limited(*limits):
    wire = Counting()
    return wire, paced(wire, Capabilities(deliveries=(Delivery.NODE,), rate_limits=limits))


async def test_a_minute_has_at_most_its_sixty_requests():
    wire, transport = limited(
        RateLimit(requests=60, per=timedelta(minutes=1)), RateLimit(requests=3000, per=timedelta(hours=1))
    )
    for _ in range(200):
        await transport.request(Request(method="GET", url="http://api/pods"))

    windows = [sum(start <= at < start + 60 for at in wire.sent) for start in wire.sent]
    assert 55 <= max(windows) <= 60
    assert wire.sent[29] == wire.sent[0], "half of it may be sent at once"
    assert wire.sent[-1] - wire.sent[0] <= 6 * 60


async def test_with_lanes_a_quarter_may_be_sent_at_once_and_more_is_sent_in_the_long_run():
    wire, limit = Counting(), RateLimit(requests=60, per=timedelta(minutes=1))
    capabilities = Capabilities(deliveries=(Delivery.NODE,), rate_limits=(limit,))
    transport = paced(wire, capabilities, lambda request: Lane(request.method))
    for _ in range(200):
        await transport.request(Request(method="GET", url="http://api/pods"))

    windows = [sum(start <= at < start + 60 for at in wire.sent) for start in wire.sent]
    assert 55 <= max(windows) <= 60
    assert wire.sent[14] == wire.sent[0] < wire.sent[15]
    assert wire.sent[-1] - wire.sent[0] <= 4.2 * 60


async def test_a_launch_comes_before_listings_that_wait_and_listings_still_get_their_turn():
    wire, transport = limited(RateLimit(requests=1, per=timedelta(seconds=1)))
    order = []

    async def send(method, count):
        for _ in range(count):
            await transport.request(Request(method=method, url="http://api"))
            order.append(method)

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(send("GET", 1))
        group.create_task(send("POST", 12))
    assert order.index("POST") == 1, "only what was sent before it is before it"
    assert order[1:11].count("GET") == 1
    assert wire.sent[-1] - wire.sent[0] == 16


async def test_without_limits_nothing_waits():
    wire, transport = limited()
    assert transport is wire


async def test_one_request_in_an_interval():
    wire, transport = limited(RateLimit(requests=1, per=timedelta(seconds=12)))
    for _ in range(3):
        await transport.request(Request(method="POST", url="http://api/launch"))
    assert [at - wire.sent[0] for at in wire.sent] == [0, 12, 24]
