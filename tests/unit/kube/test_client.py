"""The client against a scripted server that records its requests."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from forebay.api.meta import ObjectMeta
from forebay.kube import errors, writes
from forebay.kube.client import Client
from forebay.kube.eviction import evict_pod
from forebay.kube.resources import AnyObject, Resource
from forebay.kube.types import LEASES, NAMESPACES, Lease, LeaseSpec
from forebay.net.in_process import InProcess
from forebay.net.transport import AnswerLost, Headers, Request, Response

PODS = Resource(group="", version="v1", plural="pods", kind="Pod", namespaced=True, type=AnyObject)


class Script:
    """Answers in order, the last one for ever. An answer is a body for 200, or (status, body[, headers])."""

    def __init__(self, *answers) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)
        self.client = Client(InProcess(self._handle), "http://server")

    async def _handle(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body, headers = answer if isinstance(answer, tuple) else (200, answer, {})
        return Response(status, Headers(headers), body if isinstance(body, bytes) else json.dumps(body).encode())

    @property
    def last(self) -> Request:
        return self.requests[-1]

    @property
    def path(self) -> str:
        return urlsplit(self.last.url).path

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.last.url).query).items()}

    @property
    def sent(self):
        return json.loads(self.last.body)


def failure(code, reason, message="no", *, causes=(), headers=None, **details):
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    status |= {"code": code, "details": {"causes": list(causes), **details}}
    return code, status, headers or {}


def pod(name="p", namespace="ns", version="7"):
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace, "uid": "u", "resourceVersion": version}}


async def test_an_object_is_fetched_and_decoded_into_its_type():
    server = Script(
        {"kind": "Lease", "metadata": {"name": "l", "namespace": "ns"}, "spec": {"holderIdentity": "me", "new": 1}}
    )
    lease = await server.client.get(LEASES, "l", "ns")
    assert lease.spec.holder_identity == "me"
    assert server.path == "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"
    assert server.last.headers["accept"] == "application/json"


async def test_a_name_from_a_user_cannot_leave_its_path():
    server = Script(pod())
    await server.client.get(PODS, "../../nodes?x=#%2e", "ns")
    assert server.path == "/api/v1/namespaces/ns/pods/..%2F..%2Fnodes%3Fx%3D%23%252e"
    for name in ("", ".", ".."):
        with pytest.raises(errors.BadRequest, match="is not a valid object name"):
            await server.client.delete(PODS, name, "ns")
    with pytest.raises(errors.BadRequest, match="is namespaced"):
        await server.client.delete(PODS, "p")
    assert len(server.requests) == 1


async def test_pages_follow_the_token_and_list_all_puts_them_together():
    server = Script(
        {"metadata": {"resourceVersion": "9", "continue": "more+", "remainingItemCount": 1}, "items": [pod("a")]},
        {"metadata": {"resourceVersion": "9"}, "items": [pod("b")]},
    )
    everything = await server.client.list_all(PODS, "ns", labels="app in (x,y)", fields="status.phase=Pending", limit=1)
    assert [item.metadata.name for item in everything.items] == ["a", "b"]
    assert everything.resource_version == 9
    assert server.query == {
        "labelSelector": "app in (x,y)",
        "fieldSelector": "status.phase=Pending",
        "limit": "1",
        "continue": "more+",
    }


async def test_a_list_whose_continue_token_expired_is_read_again_without_pages():
    server = Script(
        {"metadata": {"resourceVersion": "9", "continue": "t"}, "items": [pod("a")]},
        failure(410, "Expired"),
        {"metadata": {"resourceVersion": "20"}, "items": [pod("b")]},
    )
    everything = await server.client.list_all(PODS, limit=1)
    assert [item.metadata.name for item in everything.items] == ["b"]
    assert server.query == {}


async def test_a_null_list_is_empty():
    server = Script({"metadata": {"resourceVersion": "9"}, "items": None})
    page = await server.client.list_page(PODS)
    assert page.items == []
    assert server.path == "/api/v1/pods"
    assert server.query == {}


async def test_a_created_object_has_its_kind_and_our_field_manager():
    server = Script((201, {"metadata": {"name": "l", "namespace": "ns", "resourceVersion": "1"}}, {}))
    lease = Lease(metadata=ObjectMeta(name="l", namespace="ns"), spec=LeaseSpec(holder_identity="me"))
    created = await server.client.create(LEASES, lease)
    assert created.resource_version == 1
    assert server.sent == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "ns"},
        "spec": {"holderIdentity": "me"},
    }
    assert server.query == {"fieldManager": "forebay"}
    assert server.path.endswith("/namespaces/ns/leases")


async def test_an_update_that_would_erase_fields_or_lacks_a_version_is_refused():
    server = Script({"metadata": {"name": "l", "resourceVersion": "2"}})
    with pytest.raises(TypeError, match="patch it instead"):
        await server.client.update(PODS, AnyObject(metadata=ObjectMeta(name="p", namespace="n", resource_version="1")))
    fresh = Lease(metadata=ObjectMeta(name="l", namespace="ns"))
    with pytest.raises(ValueError, match="resourceVersion"):
        await server.client.update(LEASES, fresh)
    assert server.requests == []
    fresh.metadata.resource_version = "1"
    assert (await server.client.update(LEASES, fresh)).resource_version == 2
    assert server.last.method == "PUT"


PATCHES = {
    "merge": (writes.merge_patch({"a": None}), "application/merge-patch+json", {"a": None}),
    "JSON": (writes.json_patch([{"op": "remove", "path": "/a"}]), "application/json-patch+json", None),
    "strategic": (writes.strategic_merge_patch({"a": 1}), "application/strategic-merge-patch+json", None),
}


@pytest.mark.parametrize(("patch", "content_type", "body"), PATCHES.values(), ids=PATCHES)
async def test_a_patch_says_which_kind_of_patch_it_is(patch, content_type, body):
    server = Script(pod())
    await server.client.patch(PODS, "p", patch, "ns", subresource="status")
    assert server.last.method == "PATCH"
    assert server.last.headers["content-type"] == content_type
    assert server.path == "/api/v1/namespaces/ns/pods/p/status"
    assert body is None or server.sent == body


async def test_a_deletion_has_its_uid_precondition_and_returns_an_object_that_stays():
    server = Script(pod(), {"kind": "Status", "status": "Success"})
    staying = await server.client.delete(PODS, "p", "ns", uid="u")
    assert staying is not None
    assert server.sent == {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u"}}
    assert await server.client.delete(PODS, "p", "ns") is None


async def test_an_eviction_refused_by_a_disruption_budget_raises_at_once_even_with_retry_after():
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget pdb is still being processed"}
    server = Script(failure(429, "TooManyRequests", causes=[cause], headers={"Retry-After": "10"}))
    with pytest.raises(errors.TooManyRequests) as caught:
        await evict_pod(server.client, "p", "ns", uid="u")
    assert caught.value.by_disruption_budget
    assert caught.value.retry_after == 10
    assert caught.value.causes[0].message == cause["message"]
    assert len(server.requests) == 1
    assert server.sent["deleteOptions"] == {"preconditions": {"uid": "u"}}


async def test_a_throttled_request_is_sent_again_after_retry_after_whatever_the_verb():
    import asyncio

    busy = (429, b"Too many requests, please try again later.", {"Retry-After": "3"})
    server = Script(busy, busy, pod())
    start = asyncio.get_running_loop().time()
    await server.client.create(PODS, pod())
    waited = asyncio.get_running_loop().time() - start
    assert 6 <= waited <= 6 * 1.25
    assert len(server.requests) == 3


async def test_a_request_that_stays_throttled_raises_after_a_minute():
    import asyncio

    server = Script((429, b"Too many requests", {"Retry-After": "10"}))
    with pytest.raises(errors.TooManyRequests):
        await server.client.get(PODS, "p", "ns")
    assert asyncio.get_running_loop().time() <= 60


async def test_an_object_that_does_not_fit_its_type_is_named_with_the_field():
    bad = {"kind": "Lease", "metadata": {"name": "l", "namespace": "ns"}, "spec": {"leaseDurationSeconds": "15"}}
    server = Script(bad)
    with pytest.raises(errors.Unreadable, match=r"Lease ns/l cannot be read: .*spec\.leaseDurationSeconds"):
        await server.client.get(LEASES, "l", "ns")
    good = {"metadata": {"name": "ok", "namespace": "ns", "resourceVersion": "1"}}
    server = Script({"metadata": {"resourceVersion": "9"}, "items": [good, bad]})
    with pytest.raises(
        errors.Unreadable, match=r"GET http://server/apis/.*: Lease ns/l cannot be read: .*leaseDurationSeconds"
    ):
        await server.client.list_all(LEASES)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"kind": "Status"}', b""])
async def test_a_success_that_is_no_list_is_never_an_empty_list(body):
    server = Script((200, body, {}))
    with pytest.raises(errors.Unreadable):
        await server.client.list_all(NAMESPACES)


async def test_transport_errors_pass_through_unchanged():
    lost = AnswerLost("sent, no answer", Request(method="POST", url="http://server"))
    server = Script(lost)
    with pytest.raises(AnswerLost):
        await server.client.create(PODS, pod())
    assert len(server.requests) == 1


async def test_the_version_of_the_server_and_the_resources_it_serves_are_read():
    server = Script({"major": "1", "minor": "36", "gitVersion": "v1.36.4", "platform": "linux"})
    assert (await server.client.version()).git_version == "v1.36.4"
    server = Script({"resources": [{"name": "pods", "verbs": ["get", "watch"]}]})
    assert await server.client.served("v1") == {"pods": {"get", "watch"}}
    assert server.path == "/api/v1"
    server = Script(failure(404, "NotFound"))
    assert await server.client.served("forebay.dev/v1alpha1") == {}
    assert server.path == "/apis/forebay.dev/v1alpha1"


async def test_an_error_that_quotes_the_whole_object_is_shortened():
    message = 'patch: Invalid value: "' + "x" * 10_000 + '": json: cannot unmarshal array into data'
    server = Script(failure(422, "Invalid", message))
    with pytest.raises(errors.Invalid, match=r"patch: Invalid value: .*cannot unmarshal array into data") as refused:
        await server.client.patch(PODS, "p", writes.merge_patch({}), "ns")
    assert len(str(refused.value)) < 1000
    assert refused.value.message == message


async def test_an_error_names_the_request_and_the_server():
    server = Script(failure(401, "Unauthorized", "Unauthorized"))
    with pytest.raises(errors.Unauthorized, match="GET http://server/version: the server does not accept our cred"):
        await server.client.version()


def test_every_forebay_kind_has_a_resource():
    from forebay.api.kinds import KINDS
    from forebay.kube import own_kinds

    resources = [value for value in vars(own_kinds).values() if isinstance(value, Resource)]
    assert {resource.type for resource in resources} == {kind.type for kind in KINDS}
    assert own_kinds.GPU_INSTANCES.path(name="gi-1") == "/apis/forebay.dev/v1alpha1/gpuinstances/gi-1"
    assert own_kinds.GPU_NODE_POOLS.path("ml") == "/apis/forebay.dev/v1alpha1/namespaces/ml/gpunodepools"
