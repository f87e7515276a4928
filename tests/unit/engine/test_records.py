"""Writes of GPUInstance records: many launches at once are written a few at a time."""

import asyncio
from types import SimpleNamespace

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus
from forebay.engine.apply.records import MAX_CONCURRENT, Records
from forebay.kube import writes
from forebay.kube.client import Client
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.net.in_process import InProcess
from forebay.net.transport import Response
from tests.engine.views_world import watched_cluster
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


async def test_the_outcome_of_a_call_is_recorded_on_a_record_that_somebody_changed_meanwhile():
    async with watched_cluster() as watched:
        spec = record(S.LAUNCHING).spec
        made = await watched.client.create(GPU_INSTANCES, {"metadata": {"name": "gpu-1"}, "spec": spec})
        await asyncio.sleep(1)
        annotated = writes.merge_patch({"metadata": {"annotations": {"note": "by hand"}}})
        await watched.client.patch(GPU_INSTANCES, "gpu-1", annotated)
        await asyncio.sleep(1)

        launched = GPUInstanceStatus(state=S.LAUNCHED, instance_id="i-1")
        written = await Records(watched.client, watched.views).write_outcome(made, lambda _: launched)

        assert (written.status.instance_id, written.metadata.annotations) == ("i-1", {"note": "by hand"})


async def recorded(watched, status=None):
    """A record in the cluster and in the view, as this process knows it."""
    spec = record(S.LAUNCHING).spec
    made = await watched.client.create(GPU_INSTANCES, {"metadata": {"name": "gpu-1"}, "spec": spec})
    if status is not None:
        patch = writes.merge_patch({"status": msgspec.to_builtins(status)})
        made = await watched.client.patch(GPU_INSTANCES, "gpu-1", patch, subresource="status")
    await asyncio.sleep(1)
    return made


ATTEMPT = GPUInstanceStatus(state=S.LAUNCHING, attempt=1)
LAUNCHED = GPUInstanceStatus(state=S.LAUNCHED, instance_id="i-1")


async def test_the_outcome_of_an_earlier_attempt_is_not_written_over_a_later_one():
    async with watched_cluster() as watched:
        known = await recorded(watched, ATTEMPT)
        await watched.client.patch(
            GPU_INSTANCES, "gpu-1", writes.merge_patch({"status": {"attempt": 2}}), subresource="status"
        )
        await asyncio.sleep(1)
        assert await Records(watched.client, watched.views).write_outcome(known, lambda _: LAUNCHED) is None
        assert watched.views.instances.get(("", "gpu-1")).status.instance_id is None


async def test_the_outcome_of_an_attempt_is_written_once_the_view_has_what_made_it_a_conflict():
    async with watched_cluster() as watched:
        known = await recorded(watched, ATTEMPT)
        annotated = writes.merge_patch({"metadata": {"annotations": {"note": "by hand"}}})
        await watched.client.patch(GPU_INSTANCES, "gpu-1", annotated)
        written = await Records(watched.client, watched.views).write_outcome(known, lambda _: LAUNCHED)
        assert (written.status.instance_id, written.metadata.annotations) == ("i-1", {"note": "by hand"})


async def test_the_outcome_for_a_record_that_is_gone_is_dropped():
    async with watched_cluster() as watched:
        known = await recorded(watched, ATTEMPT)
        records = Records(watched.client, watched.views)
        await watched.client.delete(GPU_INSTANCES, "gpu-1", uid=known.uid)
        assert await records.write_outcome(known, lambda _: LAUNCHED) is None


async def test_a_field_that_is_no_longer_set_is_removed_and_no_other():
    async with watched_cluster() as watched:
        told = replace(ATTEMPT, message="Again.", not_before=None, instance_id="i-0")
        known = await recorded(watched, told)
        written = await Records(watched.client, watched.views).write(known, replace(known.status, message=None))
        assert (written.status.message, written.status.instance_id, written.status.attempt) == (None, "i-0", 1)
