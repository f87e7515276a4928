"""Discovery, and the answers to unknown paths, methods and media types."""

import pytest

from tests.contract.kube.api_client import refused
from tests.contract.kube.objects import pod

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ALL_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}


async def resources(api, path):
    listing = await api.ask("GET", path)
    assert listing["kind"] == "APIResourceList"
    return {entry["name"]: entry for entry in listing["resources"]}


async def test_the_core_group_lists_its_resources(api):
    core = await resources(api, "/api/v1")

    pods = core["pods"]
    assert (pods["kind"], pods["namespaced"], pods["singularName"]) == ("Pod", True, "pod")
    assert pods["shortNames"] == ["po"]
    assert pods["categories"] == ["all"]
    assert set(pods["verbs"]) == ALL_VERBS
    assert core["nodes"]["namespaced"] is False
    assert set(core["pods/status"]["verbs"]) == {"get", "patch", "update"}
    assert core["pods/binding"]["verbs"] == ["create"]
    assert core["pods/binding"]["kind"] == "Binding"
    eviction = core["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert eviction["verbs"] == ["create"]
    # Namespaces have no deletecollection.
    assert set(core["namespaces"]["verbs"]) == ALL_VERBS - {"deletecollection"}


async def test_the_groups_are_listed(api):
    await api.widgets()
    groups = await api.ask("GET", "/apis")

    assert groups["kind"] == "APIGroupList"
    found = {group["name"]: group for group in groups["groups"]}
    for name in ("apps", "batch", "policy", "coordination.k8s.io", "events.k8s.io", "apiextensions.k8s.io"):
        assert found[name]["preferredVersion"]["groupVersion"] == f"{name}/v1"
    assert found["contract.forebay.dev"]["versions"] == [{"groupVersion": "contract.forebay.dev/v1", "version": "v1"}]
    assert (await api.ask("GET", "/api"))["versions"] == ["v1"]
    batch = await api.ask("GET", "/apis/batch")
    assert (batch["kind"], batch["name"]) == ("APIGroup", "batch")


async def test_a_custom_group_lists_its_resources(api):
    await api.widgets()

    custom = await resources(api, "/apis/contract.forebay.dev/v1")

    widgets = custom["widgets"]
    assert (widgets["kind"], widgets["singularName"], widgets["namespaced"]) == ("Widget", "widget", True)
    assert widgets["shortNames"] == ["wd"]
    assert widgets["categories"] == ["gadgets"]
    assert set(widgets["verbs"]) == ALL_VERBS
    assert custom["widgets/status"]["kind"] == "Widget"
    scale = custom["widgets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


async def test_aggregated_discovery(api):
    await api.widgets()

    response = await api.send("GET", "/apis", accept=AGGREGATED)
    assert response.headers["Content-Type"] == AGGREGATED
    await response.close()
    groups = await api.ask("GET", "/apis", accept=AGGREGATED)

    assert (groups["kind"], groups["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    found = {group["metadata"]["name"]: group for group in groups["items"]}
    [version] = found["contract.forebay.dev"]["versions"]
    assert version["version"] == "v1"
    [widgets] = version["resources"]
    assert widgets["resource"] == "widgets"
    assert widgets["responseKind"] == {"group": "contract.forebay.dev", "version": "v1", "kind": "Widget"}
    assert (widgets["scope"], widgets["singularResource"]) == ("Namespaced", "widget")
    assert [entry["subresource"] for entry in widgets["subresources"]] == ["status", "scale"]

    core = await api.ask("GET", "/api", accept=AGGREGATED)
    [version] = core["items"][0]["versions"]
    nodes = next(entry for entry in version["resources"] if entry["resource"] == "nodes")
    assert nodes["scope"] == "Cluster"


async def test_the_server_says_its_version_and_health(api):
    assert (await api.ask("GET", "/version"))["major"] == "1"
    for path in ("/healthz", "/readyz", "/livez"):
        response = await api.send("GET", path)
        assert response.status == 200
        assert await response.read() == b"ok"


@pytest.mark.parametrize("path", ["/api/v1/nothings", "/api/v1/namespaces/{}/nothings", "/api/v1/namespaces/{}/nodes"])
async def test_an_unknown_resource_is_not_found(api, path):
    refusal = await refused(api.ask("GET", path.format(api.namespace)))

    assert (refusal.status, refusal.reason) == (404, "NotFound")
    assert refusal.message == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/apis/nothing.example/v1", "/apis/nothing.example/v1/things", "/nothing"])
async def test_an_unknown_path_is_not_found(api, path):
    refusal = await refused(api.ask("GET", path))

    assert (refusal.status, refusal.message) == (404, "404 page not found\n")


async def test_an_unknown_subresource_is_not_found(api):
    await api("pods").create(pod("p"))

    refusal = await refused(api("pods").get("p", "nothing"))

    assert (refusal.status, refusal.reason) == (404, "NotFound")
    assert refusal.message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/namespaces/{}/pods"),
        ("PATCH", "/api/v1/namespaces/{}/pods"),
        ("POST", "/api/v1/namespaces/{}/pods/p"),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
        ("DELETE", "/apis/coordination.k8s.io/v1/leases"),
        ("GET", "/api/v1/namespaces/{}/pods/p/binding"),
        ("DELETE", "/api/v1/namespaces/{}/pods/p/status"),
    ],
)
async def test_an_unsupported_method_is_not_allowed(api, method, path):
    body = pod("p") if method in {"PUT", "POST", "PATCH"} else None

    refusal = await refused(api.ask(method, path.format(api.namespace), body))

    assert (refusal.status, refusal.reason) == (405, "MethodNotAllowed")
    assert refusal.message == "the server does not allow this method on the requested resource"


async def test_an_unsupported_accept_header_is_not_acceptable(api):
    refusal = await refused(api.ask("GET", "/api/v1/nodes", accept="text/html"))

    assert (refusal.status, refusal.reason) == (406, "NotAcceptable")


async def test_an_unsupported_content_type_is_refused(api):
    refusal = await refused(api.ask("POST", api("pods").path, b"hello", content_type="text/plain"))

    assert (refusal.status, refusal.reason) == (415, "UnsupportedMediaType")
