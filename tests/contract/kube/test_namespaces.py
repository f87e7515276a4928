"""Namespaces: default objects, and deletion with all content."""

from tests.contract.kube.api_client import refused
from tests.contract.kube.objects import config_map, finalized, pod


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


async def test_a_new_namespace_is_active_and_labelled_with_its_name(api):
    created = await api.cluster("namespaces").create(namespace(api.named("other")))

    assert created["status"] == {"phase": "Active"}
    assert created["spec"] == {"finalizers": ["kubernetes"]}
    assert created["metadata"]["labels"] == {"kubernetes.io/metadata.name": api.named("other")}
    await api.cluster("namespaces").delete(api.named("other"))


async def test_a_deleted_namespace_deletes_its_content_and_waits_for_finalizers(api):
    # The real controller handles a new deletion after five seconds and again five later, so this test takes ten.
    await api("configmaps").create(config_map("settings"))
    await api("configmaps").create(finalized(config_map("held"), "example.com/x"))
    await api("pods").create(pod("p"))

    answer = await api.cluster("namespaces").delete(api.namespace)
    assert answer["status"]["phase"] == "Terminating"
    assert answer["metadata"]["deletionTimestamp"]

    await api("configmaps").gone("settings")
    await api("pods").gone("p")
    await api("configmaps").until("held", lambda seen: "deletionTimestamp" in seen["metadata"])
    assert (await api.cluster("namespaces").get(api.namespace))["status"]["phase"] == "Terminating"

    await api("configmaps").patch("held", {"metadata": {"finalizers": None}})
    await api.cluster("namespaces").gone(api.namespace)


async def test_nothing_is_created_in_a_terminating_namespace(api):
    await api("configmaps").create(finalized(config_map("last"), "example.com/x"))
    await api.cluster("namespaces").delete(api.namespace)

    refusal = await refused(api("configmaps").create(config_map("late")))

    assert (refusal.status, refusal.reason) == (403, "Forbidden")
    assert refusal.message == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {api.namespace} '
        "because it is being terminated"
    )
    assert refusal.causes == [
        ("metadata.namespace", "NamespaceTerminating", f"namespace {api.namespace} is being terminated")
    ]
    await api("configmaps").patch("last", {"metadata": {"finalizers": None}})


async def test_a_namespace_is_a_dns_label(api):
    refusal = await refused(api.cluster("namespaces").create(namespace("Not.A.Label")))

    assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_namespaces_are_not_deleted_as_a_collection(api):
    refusal = await refused(api.cluster("namespaces").delete_all(labelSelector="no=such"))

    assert (refusal.status, refusal.reason) == (405, "MethodNotAllowed")


async def test_the_system_namespaces_exist(api):
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        assert (await api.cluster("namespaces").get(name))["status"]["phase"] == "Active"


async def test_a_namespace_gets_its_service_account_and_root_certificate(api):
    await api.cluster("namespaces").create(namespace(api.named("other")))

    account = await api("serviceaccounts", namespace=api.named("other")).until("default", lambda seen: seen is not None)
    certificate = await api("configmaps", namespace=api.named("other")).until(
        "kube-root-ca.crt", lambda seen: seen is not None
    )

    assert account["metadata"]["name"] == "default"
    assert "ca.crt" in certificate["data"]
    await api.cluster("namespaces").delete(api.named("other"))
