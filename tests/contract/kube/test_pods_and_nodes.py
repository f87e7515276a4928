"""Defaults and validation of pods and nodes."""

import pytest

from tests.contract.kube.api_client import STRATEGIC, refused
from tests.contract.kube.objects import node, pod


async def test_a_pod_gets_its_defaults(api):
    created = await api("pods").create(pod("p"))

    spec = created["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["serviceAccountName"] == "default"
    assert spec["securityContext"] == {}
    assert spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert spec["enableServiceLinks"] is True
    [container] = spec["containers"]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {}
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["metadata"]["generation"] == 1


async def test_an_image_without_a_version_is_always_pulled(api):
    created = await api("pods").create(pod("p", containers=[{"name": "main", "image": "registry.example/main"}]))

    assert created["spec"]["containers"][0]["imagePullPolicy"] == "Always"


async def test_every_pod_tolerates_a_lost_node_for_five_minutes(api):
    created = await api("pods").create(pod("p"))

    assert created["spec"]["tolerations"] == [
        {
            "key": f"node.kubernetes.io/{condition}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for condition in ("not-ready", "unreachable")
    ]


async def test_a_toleration_of_the_pod_replaces_the_default(api):
    forever = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}

    created = await api("pods").create(pod("p", tolerations=[forever]))

    assert created["spec"]["tolerations"][0] == forever
    assert [entry["key"] for entry in created["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


async def test_limits_become_requests(api):
    limits = {"nvidia.com/gpu": "2", "cpu": "1", "memory": "1Gi"}
    created = await api("pods").create(
        pod(
            "p",
            containers=[{"name": "main", "image": "i", "resources": {"limits": limits, "requests": {"cpu": "500m"}}}],
            initContainers=[{"name": "init", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        )
    )

    assert created["spec"]["containers"][0]["resources"]["requests"] == {
        "nvidia.com/gpu": "2",
        "cpu": "500m",
        "memory": "1Gi",
    }
    assert created["spec"]["initContainers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert created["status"]["qosClass"] == "Burstable"


async def test_a_pod_whose_requests_are_its_limits_is_guaranteed(api):
    limits = {"cpu": "1", "memory": "1Gi"}

    created = await api("pods").create(
        pod("p", containers=[{"name": "m", "image": "i", "resources": {"limits": limits}}])
    )

    assert created["status"]["qosClass"] == "Guaranteed"


async def test_quantities_are_written_in_their_shortest_form(api):
    requests = {"cpu": "1000m", "memory": "1024Mi"}

    created = await api("pods").create(
        pod("p", containers=[{"name": "m", "image": "i", "resources": {"requests": requests}}])
    )

    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"containers": []}, "spec.containers", "FieldValueRequired"),
        ({"containers": [{"name": "m"}]}, "spec.containers[0].image", "FieldValueRequired"),
        ({"containers": [{"image": "i"}]}, "spec.containers[0].name", "FieldValueRequired"),
        (
            {"containers": [{"name": "m", "image": "i"}, {"name": "m", "image": "i"}]},
            "spec.containers[1].name",
            "FieldValueDuplicate",
        ),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy", "FieldValueNotSupported"),
    ],
    ids=["no container", "no image", "no name", "same name", "odd restart policy"],
)
async def test_an_invalid_pod_is_refused(api, spec, field, reason):
    refusal = await refused(api("pods").create(pod("p", **spec)))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert (field, reason) in [cause[:2] for cause in refusal.causes]


async def test_extended_resources_are_whole_and_not_overcommitted(api):
    half = {"limits": {"nvidia.com/gpu": "500m"}}
    refusal = await refused(api("pods").create(pod("p", containers=[{"name": "m", "image": "i", "resources": half}])))
    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert "must be an integer" in refusal.message

    over = {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}
    refusal = await refused(api("pods").create(pod("p", containers=[{"name": "m", "image": "i", "resources": over}])))
    assert refusal.status == 422
    assert "must be equal to nvidia.com/gpu limit" in refusal.message


async def test_a_priority_comes_from_its_class(api):
    name = api.named("important")
    classes = api.cluster("priorityclasses", "scheduling.k8s.io/v1")
    await classes.create({"metadata": {"name": name}, "value": 1000})

    created = await api("pods").create(pod("p", priorityClassName=name))
    assert created["spec"]["priority"] == 1000

    refusal = await refused(api("pods").create(pod("q", priorityClassName="no-such-class")))
    assert (refusal.status, refusal.reason) == (403, "Forbidden")
    assert refusal.message == ('pods "q" is forbidden: no PriorityClass with name no-such-class was found')
    await classes.delete(name)


async def test_a_new_node_is_tainted_until_it_is_ready(api):
    created = await api.cluster("nodes").create(node(api.named("n"), taints=[{"key": "a", "effect": "NoSchedule"}]))

    assert created["spec"]["taints"] == [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]
    await api.cluster("nodes").delete(api.named("n"))


async def test_a_nodes_status_has_a_port_with_a_capital(api):
    name = api.named("n")
    created = await api.cluster("nodes").create(node(name))
    assert created["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}

    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "capacity": {"cpu": "8", "nvidia.com/gpu": "4"},
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 23999}},
    }
    patched = await api.cluster("nodes").patch(name, {"status": status}, "status", kind=STRATEGIC)
    assert patched["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 23999}}
    assert patched["status"]["addresses"] == status["addresses"]
    assert patched["status"]["allocatable"] == status["capacity"]

    response = await api.send(
        "PATCH",
        f"/api/v1/nodes/{name}/status",
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"port": 1}}}},
        content_type=STRATEGIC,
    )
    assert response.status == 200
    assert response.headers["Warning"] == '299 - "unknown field \\"status.daemonEndpoints.kubeletEndpoint.port\\""'
    await response.close()
    kept = await api.cluster("nodes").get(name)
    assert kept["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 23999}}
    await api.cluster("nodes").delete(name)


async def test_a_node_has_no_generation_and_keeps_its_provider_id(api):
    name = api.named("n")
    created = await api.cluster("nodes").create(node(name, providerID="cloud://1"))
    assert "generation" not in created["metadata"]

    refusal = await refused(api.cluster("nodes").patch(name, {"spec": {"providerID": "cloud://2"}}))

    assert (refusal.status, refusal.reason) == (422, "Invalid")
    assert refusal.message.endswith(
        'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid'
    )
    await api.cluster("nodes").delete(name)


async def test_a_cordon_is_a_patch(api):
    name = api.named("n")
    await api.cluster("nodes").create(node(name))

    cordoned = await api.cluster("nodes").patch(name, {"spec": {"unschedulable": True}}, kind=STRATEGIC)
    assert cordoned["spec"]["unschedulable"] is True

    free = await api.cluster("nodes").patch(name, {"spec": {"unschedulable": None}}, kind=STRATEGIC)
    assert "unschedulable" not in free["spec"]
    await api.cluster("nodes").delete(name)


async def test_a_taint_needs_a_known_effect(api):
    refusal = await refused(api.cluster("nodes").create(node(api.named("n"), taints=[{"key": "a", "effect": "NoFun"}])))

    assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_strict_validation_is_for_built_in_kinds_too(api):
    body = pod("p")
    body["spec"]["containers"][0]["imagee"] = "x"

    refusal = await refused(api("pods").create(body, fieldValidation="Strict"))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imagee"'
    )
    created = await api("pods").create(body)
    assert "imagee" not in created["spec"]["containers"][0]
