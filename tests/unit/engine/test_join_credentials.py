"""Join credentials around a launch, and what becomes of resources that could not be made or deleted."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstanceStatus, InstanceState, SecondaryResource
from forebay.engine.apply.join_credentials import JoinCredentials, Planned
from forebay.engine.apply.provider_calls import ProviderCalls
from forebay.engine.apply.records import Records
from forebay.join.base import JoinError, Made
from forebay.kube import writes
from forebay.kube.own_kinds import GPU_INSTANCES, GPU_NODE_CLASSES
from forebay.lifecycle.steps import DeleteResources
from forebay.model.reasons import Reason
from forebay.model.sources import Capabilities, Delivery
from forebay.net.clock import now
from tests.engine.views_world import watched_cluster
from tests.unit.demand.builders import record

TOKEN = SecondaryResource(kind="Token", name="t-1", attempt=1)
KEY = SecondaryResource(kind="Key", name="k-1", attempt=1)


class Credential:
    """Makes and revokes one kind of credential, or fails to, or never answers."""

    def __init__(self, kind, *, known_as=None, note=None, error=None, hangs=False):
        self.kind, self.known_as, self.note, self.error, self.hangs = kind, known_as, note, error, hangs
        self.revoked = []

    async def make(self, _record, planned):
        await self._answer()
        return Made(replace(planned, id=self.known_as), {f"The{self.kind}": "secret"}, self.note)

    async def revoke(self, resource):
        await self._answer()
        self.revoked.append(resource.name)

    async def _answer(self):
        if self.hangs:
            await asyncio.sleep(10**6)
        if self.error is not None:
            raise JoinError(self.error)


class Methods:
    """Which credentials there are, by kind."""

    def __init__(self, *credentials):
        self.by_kind = {each.kind: each for each in credentials}

    def of_kind(self, kind, _node_class):
        return self.by_kind.get(kind)

    def device(self, _node_class):
        return None


class World:
    def __init__(self, watched, credentials):
        self.watched, self.views, self.woken = watched, watched.views, 0
        self.calls = ProviderCalls(self._wake)
        self.credentials = JoinCredentials(
            Methods(*credentials),
            None,
            records=Records(watched.client, watched.views),
            views=watched.views,
            provider_calls=self.calls,
            clock=now,
            others={"Other": self._other},
        )
        self.others = []

    def _wake(self):
        self.woken += 1

    async def _other(self, of, resource):
        self.others.append((of.metadata.name, resource.name))

    async def record(self, *resources, state=InstanceState.LAUNCHING):
        spec = record(delivers=Delivery.NODE).spec
        made = await self.watched.client.create(GPU_INSTANCES, {"metadata": {"name": "gpu-1"}, "spec": spec})
        status = GPUInstanceStatus(state=state, attempt=1, secondary_resources=resources)
        patch = writes.merge_patch({"metadata": {"uid": made.uid}, "status": status})
        await self.watched.client.patch(GPU_INSTANCES, "gpu-1", patch, subresource="status")
        await asyncio.sleep(1)
        return self.seen

    @property
    def seen(self):
        return self.views.instances.get(("", "gpu-1"))

    async def delete(self, of, *resources):
        step = DeleteResources(record=of, reason=Reason.NOT_NEEDED, sentence="Deleting.", resources=resources)
        self.credentials.delete(step)
        assert self.calls.busy == {"gpu-1"}
        await asyncio.sleep(100)
        assert self.calls.busy == frozenset()
        assert self.woken, "the next tick sees the outcome"


@asynccontextmanager
async def world(*credentials):
    async with watched_cluster() as watched:
        yield World(watched, credentials)


def condition(of):
    return [(each.type, each.status, each.message) for each in of.status.conditions]


async def test_ids_of_what_was_made_are_recorded_and_their_secrets_are_returned_only():
    token, key = Credential("Token"), Credential("Key", known_as="id-7")
    async with world(token, key) as it:
        of = await it.record(TOKEN, KEY)
        written, values = await it.credentials.make(of, (Planned(token, TOKEN), Planned(key, KEY)))
        assert values == {"TheToken": "secret", "TheKey": "secret"}
        assert (
            written.status.secondary_resources == it.seen.status.secondary_resources == (TOKEN, replace(KEY, id="id-7"))
        )
        assert (it.seen.state, it.seen.status.attempt) == (of.state, 1), "the attempt stands where it stood"
        assert condition(written) == []


async def test_where_there_is_nothing_to_record_nothing_is_written():
    token = Credential("Token")
    async with world(token) as it:
        of = await it.record(TOKEN)
        written, _ = await it.credentials.make(of, (Planned(token, TOKEN),))
        assert written is of


async def test_a_machine_that_joins_with_a_token_of_others_says_so():
    token = Credential("Token", note="All machines share this token.")
    async with world(token) as it:
        of = await it.record(TOKEN)
        written, _ = await it.credentials.make(of, (Planned(token, TOKEN),))
        assert condition(written) == [("OwnJoinToken", "False", "All machines share this token.")]


async def test_what_keeps_a_credential_from_being_made_is_told():
    slow = Credential("Token", hangs=True)
    async with world(slow) as it:
        of = await it.record(TOKEN)
        with pytest.raises(JoinError, match="Token t-1 was not created within 30 s"):
            await it.credentials.make(of, (Planned(slow, TOKEN),))
        key = Credential("Key", known_as="id-7")
        it.watched.refuse(lambda request: request.method == "PATCH", 503)
        with pytest.raises(JoinError, match="could not be recorded"):
            await it.credentials.make(of, (Planned(key, KEY),))
        it.watched.faults.clear()
        await it.watched.client.delete(GPU_INSTANCES, "gpu-1", uid=of.uid)
        await asyncio.sleep(1)
        with pytest.raises(JoinError, match="changed by somebody else"):
            await it.credentials.make(of, (Planned(key, KEY),))


async def test_what_is_deleted_is_forgotten_and_what_is_not_is_told_and_tried_again(capsys):
    token, key = Credential("Token"), Credential("Key", error="The tailnet is away.")
    other = SecondaryResource(kind="Other", name="o-1")
    async with world(token, key) as it:
        of = await it.record(TOKEN, KEY, other)
        await it.delete(of, TOKEN, KEY, other)
        assert (token.revoked, it.others) == (["t-1"], [("gpu-1", "o-1")])
        (left,) = it.seen.status.secondary_resources
        assert (left.kind, left.name) == ("Key", "k-1")
        sentence = "Key k-1 of gpu-1 could not be deleted: The tailnet is away. Trying again."
        assert condition(it.seen) == [("SecondaryResourcesDeleted", "False", sentence)]
        said = capsys.readouterr().out
        assert said.count("secondary resource deleted") == 2
        assert said.count("secondary resource not deleted") == 1

        key.error = None
        await it.delete(it.seen, left)
        assert it.seen.status.secondary_resources == ()
        assert condition(it.seen) == [("SecondaryResourcesDeleted", "True", "Key k-1 of gpu-1 deleted.")]


async def test_a_kind_that_nobody_can_delete_and_one_that_never_answers_are_told():
    async with world(Credential("Key", hangs=True)) as it:
        of = await it.record(TOKEN, KEY)
        await it.delete(of, TOKEN, KEY)
        assert len(it.seen.status.secondary_resources) == 2
        ((_, _, told),) = condition(it.seen)
        assert "Neither the class nor this release of Forebay says how a Token is deleted" in told
        await it.delete(it.seen, KEY)
        assert "no answer within 30 s" in condition(it.seen)[0][2]


async def test_a_deletion_that_could_not_be_recorded_is_logged_and_repeated(capsys):
    token = Credential("Token")
    async with world(token) as it:
        of = await it.record(TOKEN)
        it.watched.refuse(lambda request: request.method == "PATCH", 503)
        await it.delete(of, TOKEN)
        assert "deletion not recorded" in capsys.readouterr().out
        it.watched.faults.clear()
        await it.delete(of, TOKEN)
        assert token.revoked == ["t-1", "t-1"]
        assert it.seen.status.secondary_resources == ()


async def test_a_machine_that_is_a_node_already_is_told_nothing_at_its_boot():
    async with world() as it:
        spec = {"providers": [{"name": "simulated"}]}
        await it.watched.client.create(GPU_NODE_CLASSES, {"metadata": {"name": "cloud"}, "spec": spec})
        await asyncio.sleep(1)
        owned = record(delivers=Delivery.POWER)
        owned = replace(owned, spec=replace(owned.spec, node_class_name="cloud"))
        scripts = Capabilities(deliveries=(Delivery.POWER,), takes_script=True)

        assert await it.credentials.boot_payload(owned, {}, scripts) is None
