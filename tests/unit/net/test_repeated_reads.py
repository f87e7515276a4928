"""A read that fails at once is sent a second time; calls that act, pauses and outages are left as they are."""

import asyncio

import pytest

from forebay.net.repeated_reads import RepeatedReads
from forebay.net.transport import AnswerLost, NeverSent, Request, Response, Timeouts

READ = Request(method="GET", url="http://cloud/machines")


class Server:
    """Answers by its script, one item a request; then with 200."""

    def __init__(self, *script, seconds=0.0):
        self.script = list(script)
        self.seconds = seconds
        self.sent = 0

    async def request(self, request):
        self.sent += 1
        await asyncio.sleep(self.seconds)
        answer = self.script.pop(0) if self.script else 200
        if isinstance(answer, type):
            raise answer("no answer", request)
        return answer if isinstance(answer, Response) else Response(answer)

    async def close(self):
        pass


async def status(server, request=READ, transport=None):
    return (await (transport or RepeatedReads(server)).request(request)).status


@pytest.mark.parametrize("fault", [503, 500, AnswerLost, NeverSent])
async def test_a_read_that_fails_once_succeeds(fault):
    server = Server(fault)
    assert await status(server) == 200
    assert server.sent == 2


@pytest.mark.parametrize("answer", [200, 404, 429])
async def test_what_the_server_has_answered_is_not_asked_again(answer):
    server = Server(answer)
    assert await status(server) == answer
    assert server.sent == 1


async def test_a_call_that_acts_is_sent_once():
    server = Server(503)
    assert await status(server, Request(method="POST", url="http://cloud/machines")) == 503
    with pytest.raises(AnswerLost):
        await status(Server(AnswerLost), Request(method="DELETE", url="http://cloud/machines/1"))
    assert server.sent == 1


async def test_a_stream_is_opened_by_whoever_reads_it():
    server = Server(503)
    assert await status(server, Request(method="GET", url="http://cloud/log", timeouts=Timeouts(total=None))) == 503
    assert server.sent == 1


async def test_a_server_that_asks_for_a_pause_gets_it():
    server = Server(Response(503, {"Retry-After": "20"}))
    assert await status(server) == 503
    assert server.sent == 1


async def test_what_must_be_corrected_first_is_not_repeated():
    class Wrong(NeverSent):
        def __init__(self, message, request):
            super().__init__(message, request, lasting=True)

    server = Server(Wrong)
    with pytest.raises(NeverSent):
        await status(server)
    assert server.sent == 1


async def test_a_failure_that_took_long_is_not_waited_for_twice():
    server = Server(503, seconds=5.0)
    assert await status(server) == 503
    assert server.sent == 1


async def test_in_an_outage_nothing_is_repeated_until_something_works_again():
    server = Server(503, 503, 503, AnswerLost, 200, 503, 200)
    transport = RepeatedReads(server)
    assert await status(server, transport=transport) == 503
    assert await status(server, transport=transport) == 503
    with pytest.raises(AnswerLost):
        await status(server, transport=transport)
    assert server.sent == 4, "the first of them twice"
    assert await status(server, transport=transport) == 200
    assert await status(server, transport=transport) == 200
    assert server.sent == 7, "the last of them twice"


async def test_an_outage_is_known_from_a_second_failure_without_an_answer():
    server = Server(AnswerLost, AnswerLost, 503)
    transport = RepeatedReads(server)
    with pytest.raises(AnswerLost):
        await status(server, transport=transport)
    assert await status(server, transport=transport) == 503
    assert server.sent == 3
