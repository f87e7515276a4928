"""Headers, Request and Response."""

import pytest
import rich.pretty

from forebay.net.transport import Headers, NeverSent, Request, Response


def test_headers_are_found_in_any_case_and_show_no_value():
    headers = Headers([("X-A", "1"), ("x-a", "2"), ("Authorization", "Bearer s3cret")])
    assert (headers["x-A"], "AUTHORIZATION" in headers, len(headers)) == ("1, 2", True, 2)
    assert "X-B" not in headers
    assert 5 not in headers
    assert headers.with_({"authorization": "other"})["Authorization"] == "other"
    assert "s3cret" not in repr(headers)


def test_a_request_shows_neither_query_nor_user_nor_body_nor_header_values():
    request = Request(
        method="POST",
        url="https://me:s3cret@api.example:8443/a@b/c?api_key=s3cret",
        headers=Headers({"Authorization": "s3cret"}),
        body=b"s3cret",
    )
    assert str(request) == "POST https://api.example:8443/a@b/c"
    for shown in (repr(request), rich.pretty.pretty_repr(request), repr(NeverSent("why", request))):
        assert "s3cret" not in shown


async def test_an_unfinished_body_is_closed_with_its_response():
    story = []

    async def body():
        try:
            yield b"1"
            yield b"2"
        finally:
            story.append("body closed")

    async def on_close():
        story.append("connection released")

    async with Response(200, {}, body(), on_close=on_close) as response:
        assert response.buffered is None
        async for chunk in response.chunks():
            story.append(chunk)
            break
    await response.close()
    assert story == [b"1", "body closed", "connection released"]


async def test_a_buffered_body_is_read_once():
    response = Response(200, {}, b"all of it")
    assert (response.buffered, response.ok) == (b"all of it", True)
    assert await response.read() == b"all of it"
    assert await response.read() == b""


@pytest.mark.parametrize(("status", "ok"), [(199, False), (200, True), (299, True), (300, False)])
def test_a_response_is_ok_between_two_hundred_and_three_hundred(status, ok):
    assert Response(status).ok is ok


async def test_a_body_that_is_no_generator_is_closed_where_it_can_be():
    class Body:
        def __init__(self):
            self.closed = 0

        def __aiter__(self):
            return self

        async def __anext__(self):
            return b"x"

        async def aclose(self):
            self.closed += 1

    body = Body()
    async with Response(200, {}, body):
        pass
    assert body.closed == 1
