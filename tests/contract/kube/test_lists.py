"""Lists: selectors, pages, and resource versions."""

import asyncio

from tests.contract.kube.api_client import PARTIAL_LIST, refused
from tests.contract.kube.objects import config_map, names, node, pod, version


async def test_a_list_has_a_version_and_items_without_kind(api):
    created = await api("configmaps").create(config_map("settings", labels={"mine": "yes"}))

    listing = await api("configmaps").list(labelSelector="mine")

    assert (listing["kind"], listing["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(version(listing)) >= int(version(created))
    [item] = listing["items"]
    assert "kind" not in item
    assert "apiVersion" not in item
    assert item["metadata"] == created["metadata"]


async def test_a_list_is_in_order_of_names_and_namespaces(api):
    for name in ("b", "c", "a"):
        await api("configmaps").create(config_map(name, labels={"mine": api.namespace}))

    assert names(await api("configmaps").list(labelSelector="mine")) == ["a", "b", "c"]
    everywhere = await api.cluster("configmaps").list(labelSelector=f"mine={api.namespace}")
    assert names(everywhere) == ["a", "b", "c"]


async def test_label_selectors_have_equality_sets_and_existence(api):
    for name, labels in (("a", {"team": "red", "tier": "1"}), ("b", {"team": "blue"}), ("c", {"tier": "2"})):
        await api("configmaps").create(config_map(name, labels={**labels, "mine": "yes"}))

    async def selected(selector):
        return names(await api("configmaps").list(labelSelector=f"mine,{selector}"))

    assert await selected("team=red") == ["a"]
    assert await selected("team==red") == ["a"]
    assert await selected("team!=red") == ["b", "c"]
    assert await selected("team in (red, blue)") == ["a", "b"]
    assert await selected("team notin (red)") == ["b", "c"]
    assert await selected("team") == ["a", "b"]
    assert await selected("!team") == ["c"]
    assert await selected("tier>1") == ["c"]
    assert await selected("team,tier") == ["a"]


async def test_a_broken_label_selector_is_a_bad_request(api):
    refusal = await refused(api("configmaps").list(labelSelector="team in red"))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert "unable to parse requirement" in refusal.message


async def test_field_selectors_know_names(api):
    for name in ("a", "b"):
        await api("configmaps").create(config_map(name, labels={"mine": "yes"}))

    assert names(await api("configmaps").list(fieldSelector="metadata.name=a")) == ["a"]
    others = await api("configmaps").list(labelSelector="mine", fieldSelector="metadata.name!=a")
    assert names(others) == ["b"]
    assert names(
        await api.cluster("configmaps").list(fieldSelector=f"metadata.namespace={api.namespace},metadata.name=b")
    ) == ["b"]


async def test_pods_are_selected_by_node_and_phase(api):
    await api("pods").create(pod("bound", nodeName=api.named("n")))
    await api("pods").create(pod("free"))

    async def selected(selector):
        return names(await api("pods").list(fieldSelector=selector))

    assert await selected(f"spec.nodeName={api.named('n')}") == ["bound"]
    assert await selected("spec.nodeName=") == ["free"]
    assert await selected("spec.nodeName!=") == ["bound"]
    assert await selected("status.phase=Pending") == ["bound", "free"]
    assert await selected("status.phase!=Pending") == []
    assert await selected("spec.schedulerName=nobody") == ["bound", "free"]


async def test_nodes_are_selected_by_being_unschedulable(api):
    for name, cordoned in (("a", True), ("b", False)):
        await api.cluster("nodes").create(node(api.named(name), labels={"mine": api.namespace}, unschedulable=cordoned))

    mine = {"labelSelector": f"mine={api.namespace}"}
    assert names(await api.cluster("nodes").list(fieldSelector="spec.unschedulable=true", **mine)) == [api.named("a")]
    assert names(await api.cluster("nodes").list(fieldSelector="spec.unschedulable=false", **mine)) == [api.named("b")]
    await api.cluster("nodes").delete_all(**mine)


async def test_an_unknown_field_cannot_be_selected(api):
    refusal = await refused(api("pods").list(fieldSelector="spec.priority=5"))
    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "field label not supported: spec.priority"

    refusal = await refused(api("configmaps").list(fieldSelector="data.colour=blue"))
    assert refusal.status == 400
    assert refusal.message == (
        '"data.colour" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


async def test_a_paged_list_shows_one_moment_whatever_is_written_meanwhile(api):
    for number in range(5):
        await api("configmaps").create(config_map(f"m{number}", labels={"mine": "yes"}, written="before"))

    first = await api("configmaps").list(limit=2, labelSelector="mine")
    assert names(first) == ["m0", "m1"]
    assert first["metadata"]["continue"]
    await api("configmaps").create(config_map("m2a", labels={"mine": "yes"}))
    await api("configmaps").delete("m3")
    await api("configmaps").patch("m4", {"data": {"written": "after"}})

    second = await api("configmaps").list(limit=2, labelSelector="mine", **{"continue": first["metadata"]["continue"]})
    third = await api("configmaps").list(limit=2, labelSelector="mine", **{"continue": second["metadata"]["continue"]})

    assert names(second) + names(third) == ["m2", "m3", "m4"]
    assert third["items"][0]["data"] == {"written": "before"}
    assert {version(page) for page in (first, second, third)} == {version(first)}
    assert "continue" not in third["metadata"]


async def test_pages_say_how_many_are_left_when_nothing_is_filtered(api):
    for number in range(4):
        await api("secrets").create({"metadata": {"name": f"s{number}"}})

    page = await api("secrets").list(limit=1)

    assert page["metadata"]["remainingItemCount"] == 3
    filtered = await api("secrets").list(limit=1, fieldSelector="metadata.name!=s9")
    assert "remainingItemCount" not in filtered["metadata"]
    assert filtered["metadata"]["continue"]


async def test_a_last_page_that_is_just_full_has_no_continuation(api):
    for number in range(2):
        await api("secrets").create({"metadata": {"name": f"s{number}"}})

    page = await api("secrets").list(limit=2)

    assert len(page["items"]) == 2
    assert "continue" not in page["metadata"]


async def test_an_invalid_continue_token_is_a_bad_request(api):
    refusal = await refused(api("configmaps").list(limit=1, **{"continue": "nonsense"}))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert "continue key is not valid" in refusal.message


async def test_a_continuation_older_than_history_has_expired(api):
    template = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
    for number in range(3):
        await api("podtemplates").create({"metadata": {"name": f"t{number}"}, **template})
    first = await api("podtemplates").list(limit=1)
    await api("podtemplates").delete("t1")
    await api.compact()

    refusal = await refused(api("podtemplates").list(limit=1, **{"continue": first["metadata"]["continue"]}))

    assert (refusal.status, refusal.reason) == (410, "Expired")
    assert refusal.message.startswith("The provided continue parameter is too old to display a consistent list result.")
    # The token in the answer continues with the current state, at the cost of consistency.
    rest = await api("podtemplates").list(limit=1, **{"continue": refusal.body["metadata"]["continue"]})
    assert names(rest) == ["t2"]


async def test_an_exact_version_older_than_history_has_expired(api):
    template = {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
    created = await api("podtemplates").create({"metadata": {"name": "a"}, **template})
    await api("podtemplates").create({"metadata": {"name": "b"}, **template})
    await api.compact()

    refusal = await refused(api("podtemplates").list(resourceVersion=version(created), resourceVersionMatch="Exact"))

    assert (refusal.status, refusal.reason) == (410, "Expired")
    assert refusal.message.startswith("The resourceVersion for the provided list is too old.")


async def test_a_list_from_the_future_is_too_large_a_version(api):
    listing = await api("configmaps").list()
    future = int(version(listing)) + 1_000_000

    refusal = await refused(api("configmaps").list(resourceVersion=future))

    assert (refusal.status, refusal.reason) == (504, "Timeout")
    assert refusal.message.startswith("Timeout: Too large resource version: ")
    assert ("", "ResourceVersionTooLarge", "Too large resource version") in refusal.causes
    assert refusal.headers["Retry-After"] == "1"


async def test_a_list_at_least_as_new_as_a_version_is_served(api):
    created = await api("configmaps").create(config_map("settings"))

    listing = await api("configmaps").list(resourceVersion=version(created), resourceVersionMatch="NotOlderThan")

    assert "settings" in names(listing)


async def test_a_list_of_an_exact_version_shows_that_moment(api):
    created = await api("configmaps").create(config_map("a", labels={"mine": "yes"}))
    await api("configmaps").create(config_map("b", labels={"mine": "yes"}))

    listing = await api("configmaps").list(
        resourceVersion=version(created), resourceVersionMatch="Exact", labelSelector="mine"
    )

    assert names(listing) == ["a"]
    assert version(listing) == version(created)


async def test_a_version_match_needs_a_version(api):
    refusal = await refused(api("configmaps").list(resourceVersionMatch="Exact"))

    assert (refusal.status, refusal.reason) == (422, "Invalid")


async def test_a_list_can_be_of_metadata_only(api):
    await api("configmaps").create(config_map("settings", labels={"mine": "yes"}, colour="blue"))

    listing = await api("configmaps").list(labelSelector="mine", accept=PARTIAL_LIST)

    assert listing["kind"] == "PartialObjectMetadataList"
    assert listing["apiVersion"] == "meta.k8s.io/v1"
    [item] = listing["items"]
    assert item["metadata"]["name"] == "settings"
    assert "data" not in item


async def test_everyone_reads_their_own_writes(api):
    async def write_and_list(number):
        await api("configmaps").create(config_map(f"m{number}"))
        return f"m{number}" in names(await api("configmaps").list())

    assert all(await asyncio.gather(*(write_and_list(number) for number in range(10))))
