"""The contract of instance groups (`HasGroups`), for every provider that has them."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from forebay.api.node_provisioner import GroupProvider, NodeProvisionerSpec
from forebay.api.parts import SecretKeyRef
from forebay.model.sources import FailureKind, InstancePhase
from forebay.net.in_process import InProcess
from forebay.net.redaction import Redactor
from forebay.providers.base import OutcomeUnknown, ProviderError, Rejected
from forebay.providers.plugin import ProviderContext
from forebay.providers.registry import providers
from forebay.simulate import market_faults as faults
from forebay.simulate.market import Market
from forebay.simulate.market_goods import Sku
from forebay.simulate.market_responses import MarketCall
from tests.contract.providers.cloud_harness import CLUSTER, KEY
from tests.contract.providers.faults import FakeSecrets
from tests.contract.providers.gcp.server import ComputeEngine, goods, hourly_price
from tests.contract.providers.gcp.tokens import key_file

BASE = "http://cloud"
ZONE = "us-central1-a"
TIMES = {"boot": 10, "driver": 0, "shutdown": 5}


class GroupHarness:
    """A provider with one group that has two members."""

    name = ""
    kind = "g2-standard-8"
    run_duration = None
    #: Of groups that do not exist.
    template = None

    def __init__(self, **options):
        self.world = self.server(**options)
        self.group = "group"
        #: Requests of the provider.
        self.sent = []

    async def _answer(self, request):
        self.sent.append(request)
        return await self.world.answer(request)

    def add(self):
        self.world.add_group("group", self.kind, ["first", "second"])

    @asynccontextmanager
    async def open(self):
        self.add()
        held = {("forebay", "cloud"): {"key": self.credentials()}}
        context = ProviderContext(
            make_transport=lambda _tls: InProcess(self._answer),
            secrets=FakeSecrets(held),
            namespace="forebay",
            cluster=CLUSTER,
            redactor=Redactor(),
        )
        provider = GroupProvider(
            name=self.name,
            endpoint=BASE,
            location=self.location,
            credentials_ref=SecretKeyRef(name="cloud", key="key"),
            run_duration=self.run_duration,
        )
        spec = NodeProvisionerSpec(
            existing_instance_group_names=(self.group,), provider=provider, instance_template=self.template
        )
        self.provider = providers()[self.name].build_groups(spec, context)
        await asyncio.sleep(30)
        yield self
        await self.provider.close()
        self.world.stop()
        assert getattr(self.world, "violations", []) == []

    async def listed(self):
        found = await self.provider.members(self.group)
        return {each.name: each for each in found.members}


class SimulatedGroups(GroupHarness):
    name, location = "simulated", None

    def server(self, **options):
        sku = Sku(instance_type=self.kind, gpus=1, hourly_price=hourly_price(self.kind), **TIMES)
        return Market("cloud", [sku], key=KEY, **options)

    def credentials(self):
        return KEY.encode()


class ZonalGroups(GroupHarness):
    name, location = "gcp", ZONE

    def server(self, **options):
        return ComputeEngine(goods(**TIMES), key=KEY, page_size=2, **options)

    def credentials(self):
        return key_file(KEY, BASE)


class RegionalGroups(ZonalGroups):
    location = "us-central1"

    def add(self):
        zones = ("us-central1-a", "us-central1-b")
        self.world.add_group("group", self.kind, ["first", "second"], at="us-central1", zones=zones)


class GroupsElsewhere(ZonalGroups):
    """Named with its location, which is not that of the provider."""

    def __init__(self, **options):
        super().__init__(**options)
        self.group = "us-central1-b/group"

    def add(self):
        self.world.add_group("group", self.kind, ["first", "second"], at="us-central1-b")


HARNESSES = {
    "simulated": SimulatedGroups,
    "gcp zonal": ZonalGroups,
    "gcp regional": RegionalGroups,
    "gcp elsewhere": GroupsElsewhere,
}


@pytest.fixture(params=HARNESSES)
def make(request):
    return HARNESSES[request.param]


async def test_members_are_listed_whole_with_what_they_are_and_cost(make):
    async with make().open() as harness:
        harness.world.groups["group"].grow([f"more-{index}" for index in range(5)])
        await asyncio.sleep(30)
        found = await harness.provider.members(harness.group)
        assert sorted(each.name for each in found.members) == ["first", *(f"more-{i}" for i in range(5)), "second"]
        assert found.target == 7
        assert {each.instance.phase for each in found.members} == {InstancePhase.RUNNING}
        assert found.offer.instance_type == harness.kind
        assert found.offer.gpu_count == 1
        assert str(found.offer.price.amount) == hourly_price(harness.kind)
        billed = {each.order.name: each.line.created for each in harness.world.instances.values()}
        shown = {each.name: each.instance.created for each in found.members}
        assert all(abs((billed[name] - at).total_seconds()) < 0.01 for name, at in shown.items())
        assert len({each.instance.provider_id for each in found.members}) == 7


async def test_growth_creates_exactly_the_names_and_a_repetition_nothing(make):
    async with make().open() as harness:
        assert await harness.provider.grow(harness.group, ["third", "fourth"]) == {}
        assert await harness.provider.grow(harness.group, ["fourth", "third", "first"]) == {}
        await asyncio.sleep(30)
        assert sorted(await harness.listed()) == ["first", "fourth", "second", "third"]
        assert len(harness.world.running) == 4
        assert (await harness.provider.members(harness.group)).target == 4


async def test_a_member_is_in_the_list_before_it_has_a_machine(make):
    async with make().open() as harness:
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow(harness.group, ["third"])
        await asyncio.sleep(1)
        third = (await harness.listed())["third"]
        assert third.instance is None
        assert third.failure.kind is FailureKind.NO_CAPACITY
        harness.world.restock(harness.kind, None)
        await asyncio.sleep(60)
        third = (await harness.listed())["third"]
        assert (third.instance.phase, third.failure) == (InstancePhase.RUNNING, None)


async def test_shrinking_deletes_exactly_the_names_and_lowers_the_target(make):
    async with make().open() as harness:
        await harness.provider.grow(harness.group, ["third"])
        await asyncio.sleep(30)
        await harness.provider.shrink(harness.group, ["first", "third", "nobody"])
        assert (await harness.listed())["first"].instance.phase is InstancePhase.ENDING
        await harness.provider.shrink(harness.group, ["first", "third"])
        await asyncio.sleep(10)
        found = await harness.provider.members(harness.group)
        assert ([each.name for each in found.members], found.target) == (["second"], 1)
        ended = {each.order.name: each.line.ended for each in harness.world.instances.values() if each.line.ended}
        assert found.ended.keys() == {"first", "third"}
        assert all(abs((found.ended[name] - at).total_seconds()) < 0.01 for name, at in ended.items())


async def test_a_member_that_was_asked_for_and_has_no_machine_yet_can_be_deleted(make):
    async with make().open() as harness:
        harness.world.restock(harness.kind, 0)
        await harness.provider.grow(harness.group, ["third"])
        await asyncio.sleep(1)
        await harness.provider.shrink(harness.group, ["third"])
        harness.world.restock(harness.kind, None)
        await asyncio.sleep(60)
        assert sorted(await harness.listed()) == ["first", "second"]
        assert len(harness.world.running) == 2


async def test_a_member_that_its_group_recreates_is_another_machine_of_the_same_name(make):
    async with make().open() as harness:
        before = (await harness.listed())["first"].instance
        harness.world.recreate("group", "first")
        await asyncio.sleep(60)
        after = (await harness.listed())["first"].instance
        assert after.phase is InstancePhase.RUNNING
        assert after.created > before.created


async def test_a_group_that_is_not_there_is_rejected_by_name(make):
    async with make().open() as harness:
        for call in (
            harness.provider.members("nowhere"),
            harness.provider.grow("nowhere", ["x"]),
            harness.provider.shrink("nowhere", ["x"]),
        ):
            with pytest.raises(Rejected, match="existingInstanceGroupNames"):
                await call


async def test_a_list_that_fails_is_never_a_shorter_one(make):
    async with make().open() as harness:
        call = "regional_list_members" if make is RegionalGroups else MarketCall.GROUP
        harness.world.script(call, faults.server_error(503))
        with pytest.raises(ProviderError):
            await harness.provider.members(harness.group)


@pytest.mark.parametrize("fault", [faults.answer_lost(), faults.server_error(502, acts=True)], ids=["lost", "502"])
async def test_an_unknown_outcome_of_growth_is_said_so_and_the_repetition_is_safe(make, fault):
    async with make().open() as harness:
        call = "regional_create_members" if make is RegionalGroups else MarketCall.GROW
        harness.world.script(call, fault)
        with pytest.raises(OutcomeUnknown):
            await harness.provider.grow(harness.group, ["third"])
        await harness.provider.grow(harness.group, ["third"])
        await asyncio.sleep(30)
        assert len(harness.world.running) == 3


async def test_a_check_names_the_account_and_changes_nothing(make):
    async with make().open() as harness:
        assert (await harness.provider.check()).ok
        harness.world.key = "another"
        if harness.name == "gcp":
            harness.world.desk.expire()
            harness.provider.calls.identity.reject(await harness.provider.calls.identity.token())
        found = await harness.provider.check()
        assert not found.ok
        assert len(harness.world.running) == 2
