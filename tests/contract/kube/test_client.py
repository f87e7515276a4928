"""`forebay.kube` on both servers: the client, leader election and events."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import yaml

from forebay.api import codec
from forebay.api.kinds import KINDS
from forebay.api.meta import ObjectMeta
from forebay.api.names import API_VERSION
from forebay.kube import errors, own_kinds, writes
from forebay.kube.client import Client
from forebay.kube.events import EventRecorder
from forebay.kube.eviction import evict_pod
from forebay.kube.lease import Elector, LeadershipLost, Terms
from forebay.kube.pods import PODS
from forebay.kube.resources import AnyObject, Resource
from forebay.kube.types import LEASES, NAMESPACES, Lease, LeaseSpec, reference
from tests.contract.kube.api_client import STRATEGIC
from tests.contract.kube.objects import budget, config_map, finalized, pod

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))

#: Quick, because on the real server it takes its time.
BRISK = Terms(duration=2, renew_deadline=1.5, retry=0.3)


class ConfigMap(AnyObject):
    data: dict[str, str] = msgspec.field(default_factory=dict)


CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=ConfigMap)
WIDGETS = Resource(
    group="contract.forebay.dev", version="v1", plural="widgets", kind="Widget", namespaced=True, type=AnyObject
)


def client_of(api, **options) -> Client:
    return Client(api.transport, api.base_url, **options)


def named(api, name, **data) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=api.namespace), data=data)


async def test_an_object_is_created_read_replaced_and_deleted(api):
    client = client_of(api)
    written = Lease(metadata=ObjectMeta(name="l", namespace=api.namespace), spec=LeaseSpec(holder_identity="a"))

    created = await client.create(LEASES, written)
    read = await client.get(LEASES, "l", api.namespace)

    assert read == created
    assert created.uid
    read.spec.holder_identity = "b"
    replaced = await client.update(LEASES, read)
    assert replaced.resource_version > created.resource_version
    with pytest.raises(errors.Conflict, match="modified"):
        await client.update(LEASES, created)
    assert await client.delete(LEASES, "l", api.namespace) is None
    with pytest.raises(errors.NotFound) as gone:
        await client.get(LEASES, "l", api.namespace)
    assert (gone.value.details.name, gone.value.details.group) == ("l", "coordination.k8s.io")


async def test_fields_of_other_clients_survive_an_update(api):
    """The types that may be written back whole lose nothing that a server or another client put there."""
    client = client_of(api)
    body = {
        "metadata": {
            "name": "l",
            "labels": {"team": "ml"},
            "annotations": {"why": "because"},
            "finalizers": ["forebay.dev/test"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u"}],
        },
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 3},
    }
    owner = await api("configmaps").create(config_map("owner"))
    body["metadata"]["ownerReferences"][0]["uid"] = owner["metadata"]["uid"]
    leases = api("leases", LEASES.api_version)
    before = await leases.create({"apiVersion": LEASES.api_version, "kind": "Lease", **body})

    read = await client.get(LEASES, "l", api.namespace)
    await client.update(LEASES, read)

    after = await leases.get("l")
    assert _without_times(after) == _without_times(before)
    await leases.patch("l", {"metadata": {"finalizers": None}})


def _without_times(body):
    kept = {name: value for name, value in body["metadata"].items() if name not in {"managedFields", "resourceVersion"}}
    return body | {"metadata": kept}


async def test_the_type_of_an_error_says_what_to_do(api):
    client = client_of(api)
    made = await client.create(CONFIG_MAPS, named(api, "m", a="1"))

    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAPS, named(api, "m"))
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "other", api.namespace)
    with pytest.raises(errors.NotFound):
        await client.patch(CONFIG_MAPS, "other", writes.merge_patch({"data": {}}), api.namespace)
    with pytest.raises(errors.Invalid) as invalid:
        await client.create(LEASES, {"metadata": {"name": "Not_A_Name", "namespace": api.namespace}})
    assert [cause.field for cause in invalid.value.causes] == ["metadata.name"]
    assert invalid.value.causes[0].reason == "FieldValueInvalid"
    with pytest.raises(errors.Invalid, match="cannot unmarshal array"):
        await client.patch(CONFIG_MAPS, "m", writes.merge_patch({"data": ["no", "map"]}), api.namespace)
    with pytest.raises(errors.BadRequest, match="continue"):
        await client.list_page(CONFIG_MAPS, api.namespace, limit=1, continue_token="nonsense")
    with pytest.raises(errors.BadRequest, match="unable to parse requirement"):
        await client.list_page(CONFIG_MAPS, api.namespace, labels="a in (")
    unheard_of = writes.Patch("application/x-unheard-of", b"{}")
    with pytest.raises(errors.Unsupported):
        await client.patch(CONFIG_MAPS, "m", unheard_of, api.namespace)
    nowhere = Resource(
        group="nobody.example", version="v1", plural="things", kind="Thing", namespaced=True, type=AnyObject
    )
    with pytest.raises(errors.NotFound):
        await client.list_all(nowhere)
    assert (await client.get(CONFIG_MAPS, "m", api.namespace)).resource_version == made.resource_version


async def test_everything_is_listed_page_by_page(api):
    client = client_of(api)
    for number in range(7):
        await client.create(
            CONFIG_MAPS, named(api, f"m{number}") if number else config_map("m0"), namespace=api.namespace
        )
    selector = "metadata.name!=kube-root-ca.crt"

    first = await client.list_page(CONFIG_MAPS, api.namespace, fields=selector, limit=3)
    every = await client.list_all(CONFIG_MAPS, api.namespace, fields=selector, limit=3)

    assert [item.metadata.name for item in first.items] == ["m0", "m1", "m2"]
    assert first.continue_token
    assert [item.metadata.name for item in every.items] == [f"m{number}" for number in range(7)]
    assert every.resource_version >= first.resource_version
    assert {item.key for item in every.items} == {(api.namespace, f"m{number}") for number in range(7)}
    everywhere = await client.list_all(CONFIG_MAPS, fields="metadata.name=m6", limit=2)
    assert (api.namespace, "m6") in {item.key for item in everywhere.items}


async def test_a_paged_list_that_expires_is_read_again_without_pages(api):
    client = client_of(api)
    templates = Resource(
        group="", version="v1", plural="podtemplates", kind="PodTemplate", namespaced=True, type=AnyObject
    )
    template = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
    for number in range(3):
        await client.create(templates, {"metadata": {"name": f"t{number}"}, **template}, namespace=api.namespace)
    first = await client.list_page(templates, api.namespace, limit=1)
    await client.delete(templates, "t1", api.namespace)
    await api.compact()

    with pytest.raises(errors.Expired):
        await client.list_page(templates, api.namespace, limit=1, continue_token=first.continue_token)

    class Forgetful(Client):
        """The history goes after the first page."""

        async def list_page(self, *args, **options):
            page = await super().list_page(*args, **options)
            if options.get("limit") and not options.get("continue_token"):
                await super().patch(
                    templates, "t2", writes.merge_patch({"metadata": {"labels": {"a": "b"}}}), api.namespace
                )
                await super().delete(templates, "t0", api.namespace)
                await api.compact()
            return page

    listed = await Forgetful(api.transport, api.base_url).list_all(templates, api.namespace, limit=1)
    assert [item.metadata.name for item in listed.items] == ["t2"]


async def test_patches_change_what_they_name_and_a_failed_test_changes_nothing(api):
    client = client_of(api)
    await client.create(CONFIG_MAPS, named(api, "m", a="1", b="2"))

    merged = await client.patch(CONFIG_MAPS, "m", writes.merge_patch({"data": {"a": None, "c": "3"}}), api.namespace)
    assert merged.data == {"b": "2", "c": "3"}
    swap = [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "replace", "path": "/data/b", "value": "9"}]
    swapped = await client.patch(CONFIG_MAPS, "m", writes.json_patch(swap), api.namespace)
    assert swapped.data == {"b": "9", "c": "3"}
    with pytest.raises(errors.Invalid):
        await client.patch(CONFIG_MAPS, "m", writes.json_patch(swap), api.namespace)
    stale = writes.merge_patch({"metadata": {"resourceVersion": str(merged.resource_version)}, "data": {"z": "1"}})
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIG_MAPS, "m", stale, api.namespace)
    assert (await client.get(CONFIG_MAPS, "m", api.namespace)).data == {"b": "9", "c": "3"}


async def test_a_deletion_with_preconditions_deletes_only_that_object(api):
    client = client_of(api)
    first = await client.create(CONFIG_MAPS, named(api, "m"))

    with pytest.raises(errors.Conflict, match="UID"):
        await client.delete(CONFIG_MAPS, "m", api.namespace, uid="00000000-0000-0000-0000-000000000000")
    assert (await client.get(CONFIG_MAPS, "m", api.namespace)).uid == first.uid
    await client.delete(CONFIG_MAPS, "m", api.namespace, uid=first.uid)
    with pytest.raises(errors.NotFound):
        await client.delete(CONFIG_MAPS, "m", api.namespace)


async def test_a_deletion_shows_an_object_that_stays_for_finalizers_or_grace(api):
    client = client_of(api)
    await client.create(CONFIG_MAPS, finalized(config_map("m"), "forebay.dev/test"), namespace=api.namespace)
    await api("pods").create(pod("p", nodeName="n1"))

    staying = await client.delete(CONFIG_MAPS, "m", api.namespace)
    leaving = await client.delete(PODS, "p", api.namespace)

    assert staying is not None
    assert staying.metadata.deletion_timestamp is not None
    assert leaving is not None
    assert leaving.deleted is not None
    await api("pods").delete("p", {"gracePeriodSeconds": 0})
    with pytest.raises(errors.NotFound):
        await client.get(PODS, "p", api.namespace)
    await client.patch(
        CONFIG_MAPS, "m", writes.json_patch([{"op": "remove", "path": "/metadata/finalizers"}]), api.namespace
    )
    with pytest.raises(errors.NotFound):
        await client.get(CONFIG_MAPS, "m", api.namespace)


async def test_an_eviction_that_the_budget_refuses_fails_at_once(api):
    client = client_of(api)
    for name in ("guarded", "free"):
        await api("pods").create(pod(name, labels={"app": name}, nodeName="n1"))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await api("pods").patch(name, {"status": status}, "status", kind=STRATEGIC)
    budgets = api("poddisruptionbudgets", "policy/v1")
    await budgets.create(budget("b", {"app": "guarded"}, minAvailable=1))
    await budgets.until("b", lambda seen: seen.get("status", {}).get("observedGeneration") == 1)

    before = asyncio.get_running_loop().time()
    with pytest.raises(errors.TooManyRequests) as refused:
        await evict_pod(client, "guarded", api.namespace)
    assert refused.value.by_disruption_budget
    assert asyncio.get_running_loop().time() - before < 5

    free = await client.get(PODS, "free", api.namespace)
    with pytest.raises(errors.Conflict):
        await evict_pod(client, "free", api.namespace, uid="00000000-0000-0000-0000-000000000000")
    await evict_pod(client, "free", api.namespace, uid=free.uid)
    assert (await client.get(PODS, "free", api.namespace)).deleted is not None
    with pytest.raises(errors.NotFound):
        await evict_pod(client, "nobody", api.namespace)


async def test_a_custom_resource_is_patched_and_scaled_like_any_other(api):
    widgets = await api.widgets()
    await widgets.create(
        {"apiVersion": WIDGETS.api_version, "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 5}}
    )
    client = client_of(api)

    with pytest.raises(errors.Unsupported):
        await client.patch(WIDGETS, "w", writes.strategic_merge_patch({"spec": {}}), api.namespace)
    labelled = await client.patch(WIDGETS, "w", writes.merge_patch({"metadata": {"labels": {"a": "b"}}}), api.namespace)
    assert labelled.metadata.labels == {"a": "b"}


async def test_version_and_resources_of_the_server(api):
    client = client_of(api)

    assert (await client.version()).git_version.startswith("v1.")
    served = await client.served("v1")
    assert {"get", "list", "watch"} <= served["pods"]
    assert "create" in served["pods/binding"]
    assert await client.served("nobody.example/v1") == {}
    assert (await client.get(NAMESPACES, "kube-system")).uid


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
async def test_our_kinds_are_written_and_read_back_and_their_status_is_a_subresource(api, example):
    for file in sorted((ROOT / "deploy" / "crds").glob("*.yaml")):
        await api.install(yaml.safe_load(file.read_text()))
    client = client_of(api)
    served = await client.served(API_VERSION)
    body = yaml.safe_load(example.read_text())
    kind = next(kind for kind in KINDS if kind.kind == body["kind"])
    resource = own_kinds.resource_of(kind)
    assert {"get", "list", "watch", "create", "patch", "delete"} <= served[resource.plural]
    body["metadata"]["name"] = api.named("example")
    if resource.namespaced:
        body["metadata"]["namespace"] = api.namespace
    namespace = api.namespace if resource.namespaced else None
    sent = codec.decode(kind, json.dumps(body).encode())

    created = await client.create(resource, sent)
    read = await client.get(resource, body["metadata"]["name"], namespace)

    assert read == created
    assert read.spec == sent.spec
    assert read.metadata.generation == 1
    # A status is not created: it is patched where it lives, and only there.
    status = body.get("status") or {
        "observedGeneration": 1,
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "Testing",
                "message": "not yet",
                "lastTransitionTime": "2026-11-16T04:23:10Z",
            }
        ],
    }
    shown = await client.patch(
        resource, body["metadata"]["name"], writes.merge_patch({"status": status}), namespace, subresource="status"
    )
    assert shown.spec == sent.spec
    assert shown.metadata.generation == 1
    assert msgspec.json.decode(msgspec.json.encode(shown.status))["conditions"] == status["conditions"]
    assert (await client.list_all(resource, namespace, fields=f"metadata.name={read.metadata.name}")).items == [shown]
    wrong = writes.merge_patch({"status": {"conditions": [{"type": "Ready"}]}})
    with pytest.raises(errors.Invalid):
        await client.patch(resource, read.metadata.name, wrong, namespace, subresource="status")
    await client.patch(resource, read.metadata.name, writes.merge_patch({"metadata": {"finalizers": None}}), namespace)
    await client.delete(resource, read.metadata.name, namespace)


async def test_an_event_is_found_by_its_object(api):
    client = client_of(api)
    about = reference(PODS, await client.create(PODS, pod("p"), namespace=api.namespace))
    async with EventRecorder(client, instance="forebay-0") as recorder:
        for _ in range(3):
            recorder.event(about, type="Warning", reason="NoCapacity", note="no offer has 8 H100", action="Wait")
        recorder.event(about, reason="Nominated", note="n1 is for it")
        await _until(lambda: recorder.counts.written == 2)
        # Into the series of an event that is already there: patched when the recorder closes.
        recorder.event(about, type="Warning", reason="NoCapacity", note="no offer has 8 H100", action="Wait")
        recorder.event(about, reason="Nominated", note="n1 is for it")

    assert (recorder.last_error, recorder.counts.failed, recorder.counts.dropped) == (None, 0, 0)
    # As `kubectl describe` asks for them: the older API, by the object's identity.
    selector = f"involvedObject.name=p,involvedObject.namespace={api.namespace},involvedObject.uid={about.uid}"
    described = {item["reason"]: item for item in (await api("events").list(fieldSelector=selector))["items"]}
    assert set(described) == {"NoCapacity", "Nominated"}
    waiting = described["NoCapacity"]
    assert (waiting["type"], waiting["message"]) == ("Warning", "no offer has 8 H100")
    assert (waiting["reportingComponent"], waiting["reportingInstance"]) == ("forebay.dev/operator", "forebay-0")
    assert (waiting["action"], waiting["series"]["count"]) == ("Wait", 4)
    assert waiting["involvedObject"]["kind"] == "Pod"
    assert waiting["eventTime"] <= waiting["series"]["lastObservedTime"]
    assert (described["Nominated"]["type"], described["Nominated"]["series"]["count"]) == ("Normal", 2)


async def test_an_event_about_the_cluster_and_one_that_is_too_long_are_accepted(api):
    client = client_of(api)
    node = await api.cluster("nodes").create({"metadata": {"name": api.named("n")}})
    from forebay.kube.nodes import NODES

    about = reference(NODES, await client.get(NODES, node["metadata"]["name"]))
    async with EventRecorder(client, instance="forebay-0") as recorder:
        recorder.event(about, reason="Joined", note="é" * 2000)

    assert recorder.last_error is None
    selector = f"involvedObject.name={about.name},involvedObject.kind=Node"
    (event,) = (await api("events", namespace="default").list(fieldSelector=selector))["items"]
    assert len(event["message"].encode()) <= 1024
    await api.cluster("nodes").delete(about.name)


async def test_a_released_lease_is_acquired_at_once_and_that_of_a_dead_holder_when_it_expires(api):
    now = asyncio.get_running_loop().time
    acting: dict[str, float] = {}

    def elector(identity):
        return Elector(client_of(api, max_throttle_wait=1), api.namespace, "forebay", identity, terms=BRISK)

    def lead(identity):
        async def act():
            acting[identity] = now()
            await asyncio.sleep(3600)

        return act

    electors = {name: elector(name) for name in ("a", "b")}
    first = asyncio.create_task(electors["a"].run(lead("a")))
    await _until(lambda: "a" in acting)
    second = asyncio.create_task(electors["b"].run(lead("b")))
    await _until(lambda: electors["b"].leader == "a")
    await asyncio.sleep(2 * BRISK.duration)
    assert acting.keys() == {"a"}
    assert electors["a"].still_leader()
    assert not electors["b"].still_leader()

    ended = now()
    first.cancel()
    await _until(lambda: "b" in acting)
    assert acting["b"] - ended < 1
    lease = await client_of(api).get(LEASES, "forebay", api.namespace)
    assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)
    with pytest.raises(asyncio.CancelledError):
        await first

    # Somebody takes it by force: the holder stops, and comes back when that one has not been heard of for its time.
    spec = {"holderIdentity": "usurper", "leaseDurationSeconds": 1}
    await api("leases", LEASES.api_version).patch("forebay", {"spec": spec})
    with pytest.raises(LeadershipLost, match="usurper"):
        await second
    taken = now()
    del acting["b"]
    third = asyncio.create_task(electors["b"].run(lead("b")))
    await _until(lambda: "b" in acting)
    assert acting["b"] - taken < 2.5
    third.cancel()
    with suppress(asyncio.CancelledError):
        await third


async def test_of_several_candidates_one_leads(api):
    leading: list[str] = []

    async def lead(identity):
        leading.append(identity)
        await asyncio.sleep(3600)

    candidates = []
    for identity in "abcde":
        elector = Elector(client_of(api, max_throttle_wait=1), api.namespace, "forebay", identity, terms=BRISK)
        candidates.append(asyncio.create_task(elector.run(lambda identity=identity: lead(identity))))
    await asyncio.sleep(1.5)
    assert len(leading) == 1
    for task in candidates:
        task.cancel()
    await asyncio.wait(candidates)
    assert len(leading) == 1


async def _until(true, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (across everything that both servers do)
            await asyncio.sleep(0.02)
