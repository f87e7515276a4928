"""The status subresource writes only the status, and only it does; the scale subresource."""

from tests.contract.kube.api_client import refused
from tests.contract.kube.objects import pod, version
from tests.contract.kube.widgets import widget


async def test_a_status_given_at_creation_is_dropped(api):
    widgets = await api.widgets()

    created = await widgets.create(widget("w") | {"status": {"phase": "Ready"}})

    assert "status" not in created


async def test_an_update_of_the_object_does_not_change_the_status(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))
    await widgets.patch("w", {"status": {"phase": "Ready"}}, "status")

    patched = await widgets.patch("w", {"spec": {"size": 6}, "status": {"phase": "Broken"}})
    assert patched["status"] == {"phase": "Ready"}
    assert patched["spec"]["size"] == 6

    without = {key: value for key, value in patched.items() if key != "status"}
    replaced = await widgets.update(without | {"spec": {"size": 7}})
    assert replaced["status"] == {"phase": "Ready"}


async def test_an_update_of_the_status_changes_nothing_else(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w"))

    patched = await widgets.patch(
        "w",
        {"spec": {"size": 99}, "metadata": {"labels": {"a": "b"}}, "status": {"phase": "Ready"}},
        "status",
    )

    assert patched["status"] == {"phase": "Ready"}
    assert patched["spec"] == created["spec"]
    assert "labels" not in patched["metadata"]


async def test_generation_follows_the_spec_and_not_the_status(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w"))
    assert created["metadata"]["generation"] == 1

    status = await widgets.patch("w", {"status": {"phase": "Ready"}}, "status")
    assert status["metadata"]["generation"] == 1
    assert int(version(status)) > int(version(created))

    spec = await widgets.patch("w", {"spec": {"size": 6}})
    assert spec["metadata"]["generation"] == 2

    same = await widgets.patch("w", {"spec": {"size": 6}, "metadata": {"labels": {"a": "b"}}})
    assert same["metadata"]["generation"] == 2

    nothing = await widgets.patch("w", {"spec": {"size": 6}})
    assert version(nothing) == version(same)


async def test_a_stale_status_conflicts(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w"))
    await widgets.patch("w", {"spec": {"size": 6}})

    refusal = await refused(widgets.update(created | {"status": {"phase": "Ready"}}, "status"))

    assert (refusal.status, refusal.reason) == (409, "Conflict")


async def test_a_status_is_replaced_whole(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w"))
    first = await widgets.update(created | {"status": {"phase": "Ready", "replicas": 2}}, "status")
    assert first["status"] == {"phase": "Ready", "replicas": 2}

    second = await widgets.update(first | {"status": {"replicas": 3}}, "status")

    assert second["status"] == {"replicas": 3}


async def test_a_status_is_validated_and_pruned_too(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))

    refusal = await refused(widgets.patch("w", {"status": {"replicas": "many"}}, "status"))
    assert (refusal.status, refusal.reason) == (422, "Invalid")

    pruned = await widgets.patch("w", {"status": {"phase": "Ready", "unknown": 1}}, "status")
    assert pruned["status"] == {"phase": "Ready"}


async def test_the_status_subresource_can_be_read(api):
    widgets = await api.widgets()
    await widgets.create(widget("w"))
    await widgets.patch("w", {"status": {"phase": "Ready"}}, "status")

    assert await widgets.get("w", "status") == await widgets.get("w")


async def test_a_pods_status_is_isolated_both_ways(api):
    await api("pods").create(pod("p"))

    main = await api("pods").patch("p", {"status": {"message": "hello"}, "metadata": {"labels": {"a": "b"}}})
    assert "message" not in main["status"]
    assert main["metadata"]["labels"] == {"a": "b"}

    side = await api("pods").patch(
        "p", {"status": {"message": "hello"}, "spec": {"activeDeadlineSeconds": 5}}, "status"
    )
    assert side["status"]["message"] == "hello"
    assert "activeDeadlineSeconds" not in side["spec"]


async def test_a_scale_is_a_view_of_replicas(api):
    widgets = await api.widgets()
    created = await widgets.create(widget("w", replicas=2))
    await widgets.patch("w", {"status": {"replicas": 1, "selector": "app=w"}}, "status")

    scale = await widgets.get("w", "scale")

    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["metadata"]["name"] == "w"
    assert scale["metadata"]["uid"] == created["metadata"]["uid"]
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "app=w"}


async def test_scaling_changes_the_spec(api):
    widgets = await api.widgets()
    await widgets.create(widget("w", replicas=2))

    scale = await widgets.get("w", "scale")
    scale["spec"]["replicas"] = 4
    scaled = await widgets.update(scale, "scale")
    assert scaled["spec"] == {"replicas": 4}
    assert int(version(scaled)) > int(version(scale))
    assert (await widgets.get("w"))["spec"]["replicas"] == 4
    assert (await widgets.get("w"))["metadata"]["generation"] == 2

    await widgets.patch("w", {"spec": {"replicas": 3}}, "scale")
    assert (await widgets.get("w"))["spec"]["replicas"] == 3

    stale = await refused(widgets.update(scale, "scale"))
    assert (stale.status, stale.reason) == (409, "Conflict")


async def test_a_replica_set_can_be_scaled(api):
    sets = api("replicasets", "apps/v1")
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "i"}]},
    }
    selector = {"matchLabels": {"app": "web"}}
    await sets.create({"metadata": {"name": "rs"}, "spec": {"replicas": 0, "selector": selector, "template": template}})

    scale = await sets.patch("rs", {"spec": {"replicas": 1}}, "scale")

    assert scale["kind"] == "Scale"
    assert scale["status"]["selector"] == "app=web"
    assert (await sets.get("rs"))["spec"]["replicas"] == 1
