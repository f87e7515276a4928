"""Of a dry run, only requests that change nothing at the server are sent."""

import pytest

from forebay.net.in_process import InProcess
from forebay.net.read_only import ReadOnly
from forebay.net.transport import NeverSent, Request, Response


@pytest.mark.parametrize(
    ("request_", "passes"),
    [
        (Request(method="GET", url="http://cloud/machines"), True),
        (Request(method="HEAD", url="http://cloud/machines"), True),
        (Request(method="POST", url="http://cloud/token", safe=True), True),
        (Request(method="POST", url="http://cloud/machines"), False),
        (Request(method="PUT", url="http://cloud/machines/1"), False),
        (Request(method="PATCH", url="http://cloud/machines/1"), False),
        (Request(method="DELETE", url="http://cloud/machines/1"), False),
    ],
    ids=lambda value: value.method if isinstance(value, Request) else "",
)
async def test_a_write_is_sent_only_where_whoever_makes_it_says_that_it_changes_nothing(request_, passes):
    sent = []

    async def answer(request):
        sent.append(request)
        return Response(200)

    transport = ReadOnly(InProcess(answer))
    if passes:
        await transport.request(request_)
    else:
        with pytest.raises(NeverSent, match="this is a dry run") as refused:
            await transport.request(request_)
        assert refused.value.lasting, "another try would be refused as well"
    assert sent == ([request_] if passes else [])
    await transport.close()
