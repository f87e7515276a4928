"""Writes of GPUInstance records: many launches at once are written a few at a time."""

import asyncio
from types import SimpleNamespace

import msgspec
from msgspec.structs import replace

from forebay.engine.apply.records import MAX_CONCURRENT, Records
from forebay.kube.client import Client
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from tests.unit.lifecycle.builders import S, record


async def test_hundreds_of_launches_do_not_open_hundreds_of_connections():
    in_flight = most = 0

    async def slow_server(request):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await asyncio.sleep(1)
        in_flight -= 1
        name = request.url.rsplit("/", 2)[1]
        written = record(S.LAUNCHING, name=name)
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "8"}
        body = {"metadata": metadata, "spec": written.spec, "status": written.status}
        return Response(200, body=msgspec.json.encode(body))

    seen = []
    views = SimpleNamespace(instances=SimpleNamespace(observe=seen.append))
    records = Records(Client(InProcess(slow_server), "http://server"), views)
    launching = [record(S.LAUNCHING, name=f"r{number}") for number in range(5 * MAX_CONCURRENT)]
    await asyncio.gather(*(records.write(each, replace(each.status, message="Again.")) for each in launching))

    assert most == MAX_CONCURRENT
    assert {each.metadata.name for each in seen} == {each.metadata.name for each in launching}
