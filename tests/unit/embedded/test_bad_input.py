"""No request makes the server fail, and none changes objects that are already stored."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.embedded.api import cel
from forebay.simulate.virtual_time import run
from tests.unit.embedded.worlds import Api, a_crd, a_store

# Importing CEL raises the recursion limit, of which Hypothesis warns when it happens inside a law.
cel._environment()

CONTAINER = {
    "name": "c",
    "image": "i",
    "env": [{"name": "a", "value": "b"}],
    "ports": [{"containerPort": 1}],
    "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
}
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u", "controller": True}
BODIES = {
    "/api/v1/namespaces/default/pods": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "x", "labels": {"a": "b"}, "finalizers": ["a/b"], "ownerReferences": [OWNER]},
        "spec": {
            "containers": [CONTAINER],
            "tolerations": [{"key": "a"}],
            "schedulingGates": [{"name": "a/b"}],
            "terminationGracePeriodSeconds": 5,
        },
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "state": {"running": {}}}]},
    },
    "/api/v1/nodes": {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "x"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {"capacity": {"cpu": "1"}, "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "/apis/batch/v1/namespaces/default/jobs": {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "x"},
        "spec": {"parallelism": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}},
    },
    "/apis/apps/v1/namespaces/default/replicasets": {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "x"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}},
        },
    },
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "x"},
        "spec": {"leaseDurationSeconds": 5, "renewTime": "2030-01-01T00:00:00.000000Z"},
    },
    "/apis/example.dev/v1/namespaces/default/things": {
        "apiVersion": "example.dev/v1",
        "kind": "Thing",
        "metadata": {"name": "x"},
        "spec": {"n": 5, "list": [{"name": "a"}], "text": "b"},
    },
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        **a_crd({"m": {"type": "object", "additionalProperties": {"type": "string"}}}),
    },
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"spec": {"user": "a", "groups": ["b"]}},
}
THING = {
    "n": {"type": "integer", "maximum": 9, "x-kubernetes-validations": [{"rule": "self > 1 || self == oldSelf"}]},
    "list": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    },
    "text": {"type": "string", "x-kubernetes-validations": [{"rule": "self.size() < 9"}]},
}
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
ODD = (
    None,
    0,
    -1,
    1.5,
    "",
    "x",
    True,
    [],
    {},
    [1],
    {"a": 1},
    [{}],
    [None],
    {"x": None},
    10**30,
    "2030-01-01T00:00:00Z",
)


def paths(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from paths(one, (*path, key))


def replaced_at(value, path, value_sent):
    if not path:
        return value_sent
    changed = copy.copy(value)
    changed[path[0]] = replaced_at(value[path[0]], path[1:], value_sent)
    return changed


@st.composite
def requests(draw):
    path = draw(st.sampled_from(sorted(BODIES)))
    body = BODIES[path]
    location = draw(st.sampled_from(sorted(paths(body), key=str)))
    value_sent = draw(st.sampled_from(ODD))
    method = draw(st.sampled_from(["POST", "PUT", "PATCH", "PATCH", "DELETE"]))
    name = body.get("metadata", {}).get("name", "x")
    below = draw(st.sampled_from(["", "/status", "/scale"]))
    if method == "POST":
        return method, path, replaced_at(body, location, value_sent), "application/json"
    if method == "DELETE":
        field = draw(st.sampled_from(["gracePeriodSeconds", "preconditions", "propagationPolicy"]))
        return method, f"{path}/{name}", {field: value_sent}, "application/json"
    if method == "PUT":
        return method, f"{path}/{name}{below}", replaced_at(body, location, value_sent), "application/json"
    media = draw(st.sampled_from(PATCHES))
    if media == "application/json-patch+json":
        operation = draw(st.sampled_from(["add", "replace", "remove", "copy", "move", "test"]))
        pointers = [
            "/" + "/".join(map(str, one)) for one in (location, draw(st.sampled_from(sorted(paths(body), key=str))))
        ]
        return (
            method,
            f"{path}/{name}{below}",
            [{"op": operation, "path": pointers[0], "from": pointers[1], "value": value_sent}],
            media,
        )
    query = "?fieldManager=m&force=true"
    return method, f"{path}/{name}{below}{query}", replaced_at(body, location, value_sent), media


@pytest.mark.law
@given(st.lists(requests(), min_size=1, max_size=6))
def test_no_request_makes_the_server_fail(history):
    async def send_all():
        store = a_store()
        api = Api(store)
        await api.answer(
            "POST",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **a_crd(THING)},
        )
        for path, body in BODIES.items():
            await api.answer("POST", path, body)
        written = {}

        def record(change):
            written[change.version] = (change.new, json.dumps(change.new))

        store.subscribe(None, record)
        for method, path, body, media in history:
            status, answer = await api.answer(method, path, body, Content_Type=media)
            assert status < 500 or "merge key" in answer["message"], answer
            assert status < 400 or answer["message"]
            await api.answer("GET", path.partition("?")[0], Accept="application/json;as=Table;g=meta.k8s.io;v=v1")
        for stored, text in written.values():
            assert json.dumps(stored) == text

    run(send_all())


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "continue=%00",
        "continue=e30",
        "resourceVersion=x",
        "labelSelector=((",
        "fieldSelector=x",
        "watch=1&timeoutSeconds=y",
    ],
)
async def test_an_invalid_query_is_a_bad_request(query):
    status, answer = await Api(a_store()).answer("GET", f"/api/v1/pods?{query}")

    assert (status, answer["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Accept": "application/vnd.kubernetes.protobuf"}, 406),
        ({"Accept": "text/html"}, 406),
        ({"Accept": "application/vnd.kubernetes.protobuf,application/json"}, 201),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/yaml"}, 201),
    ],
)
async def test_only_json_and_yaml_are_accepted(headers, status):
    body = json.dumps({"metadata": {"name": "c"}}).encode()

    code, _ = await Api(a_store()).answer("POST", "/api/v1/namespaces/default/configmaps", body, **headers)

    assert code == status


async def test_a_crd_with_an_invalid_printer_column_is_refused():
    definition = a_crd({}, additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".a[?(@)]"}])
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}

    status, answer = await Api(a_store()).answer(
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {**head, **definition}
    )

    assert status == 422
    assert answer["details"]["causes"][0]["field"] == "spec.versions[0].additionalPrinterColumns[0].jsonPath"
