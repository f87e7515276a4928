"""Evictions, which PodDisruptionBudgets may refuse."""

from tests.contract.kube.api_client import STRATEGIC, refused
from tests.contract.kube.objects import budget, eviction, pod

BUDGETS = "policy/v1"


async def running(api, name, **labels):
    """A pod that counts as healthy for a PodDisruptionBudget."""
    await api("pods").create(pod(name, labels=labels, nodeName="n1"))
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await api("pods").patch(name, {"status": status}, "status", kind=STRATEGIC)


async def observed(api, name):
    """The PodDisruptionBudget, once its controller has observed it."""
    return await api("poddisruptionbudgets", BUDGETS).until(
        name, lambda seen: seen.get("status", {}).get("observedGeneration") == seen["metadata"]["generation"]
    )


async def test_a_pod_without_a_budget_is_evicted(api):
    await running(api, "p")

    answer = await api("pods").post("p", "eviction", eviction("p", api.namespace))

    assert answer == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
    leaving = await api("pods").get("p")
    assert leaving["metadata"]["deletionTimestamp"]
    conditions = {entry["type"]: entry for entry in leaving["status"]["conditions"]}
    target = conditions["DisruptionTarget"]
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
    assert target["message"] == "Eviction API: evicting"

    again = await api("pods").post("p", "eviction", eviction("p", api.namespace))
    assert again["status"] == "Success"


async def test_a_budget_that_would_be_violated_refuses(api):
    await running(api, "p", app="web")
    await api("poddisruptionbudgets", BUDGETS).create(budget("pdb", {"app": "web"}, minAvailable=1))
    seen = await observed(api, "pdb")
    assert seen["status"]["disruptionsAllowed"] == 0
    assert (seen["status"]["currentHealthy"], seen["status"]["desiredHealthy"]) == (1, 1)
    assert seen["status"]["expectedPods"] == 1

    refusal = await refused(api("pods").post("p", "eviction", eviction("p", api.namespace)))

    assert refusal.status == 429
    assert refusal.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "reason": "TooManyRequests",
        "details": {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget pdb needs 1 healthy pods and has 1 currently",
                }
            ]
        },
        "code": 429,
    }
    assert "Retry-After" not in refusal.headers
    assert "deletionTimestamp" not in (await api("pods").get("p"))["metadata"]


async def test_a_budget_allows_one_eviction_and_refuses_the_next(api):
    for name in ("a", "b"):
        await running(api, name, app="web")
    await api("poddisruptionbudgets", BUDGETS).create(budget("pdb", {"app": "web"}, maxUnavailable=1))
    # maxUnavailable needs the scale of the pods' controller; pods without one are counted with minAvailable.
    await api("poddisruptionbudgets", BUDGETS).patch("pdb", {"spec": {"maxUnavailable": None, "minAvailable": 1}})
    await api("poddisruptionbudgets", BUDGETS).until(
        "pdb", lambda seen: seen.get("status", {}).get("disruptionsAllowed") == 1
    )

    await api("pods").post("a", "eviction", eviction("a", api.namespace))
    refusal = await refused(api("pods").post("b", "eviction", eviction("b", api.namespace)))

    assert (refusal.status, refusal.reason) == (429, "TooManyRequests")
    after = await api("poddisruptionbudgets", BUDGETS).get("pdb")
    assert after["status"]["disruptionsAllowed"] == 0


async def test_a_budget_that_is_not_yet_observed_asks_to_retry(api):
    await running(api, "p", app="web")
    await api("poddisruptionbudgets", BUDGETS).create(budget("pdb", {"app": "web"}, minAvailable=1))
    await observed(api, "pdb")
    # The test writes the status of a budget whose spec has just changed, before its controller does.
    await api("poddisruptionbudgets", BUDGETS).patch("pdb", {"status": {"observedGeneration": 0}}, "status")

    refusal = await refused(api("pods").post("p", "eviction", eviction("p", api.namespace)))

    assert (refusal.status, refusal.reason) == (429, "TooManyRequests")
    [(_, reason, message)] = refusal.causes
    assert reason == "DisruptionBudget"
    if refusal.headers.get("Retry-After"):
        assert refusal.headers["Retry-After"] == "10"
        assert refusal.details["retryAfterSeconds"] == 10
        assert message == "The disruption budget pdb is still being processed by the server."


async def test_two_budgets_for_one_pod_are_an_error(api):
    await running(api, "p", app="web")
    for name in ("one", "two"):
        await api("poddisruptionbudgets", BUDGETS).create(budget(name, {"app": "web"}, minAvailable=1))

    refusal = await refused(api("pods").post("p", "eviction", eviction("p", api.namespace)))

    assert refusal.status == 500
    assert refusal.reason is None
    assert refusal.message == (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )


async def test_a_pending_pod_is_evicted_whatever_the_budget(api):
    await api("pods").create(pod("p", labels={"app": "web"}))
    await api("poddisruptionbudgets", BUDGETS).create(budget("pdb", {"app": "web"}, minAvailable=1))

    await api("pods").post("p", "eviction", eviction("p", api.namespace))

    assert (await refused(api("pods").get("p"))).status == 404


async def test_an_eviction_may_require_a_uid(api):
    await running(api, "p")

    refusal = await refused(
        api("pods").post("p", "eviction", eviction("p", api.namespace, preconditions={"uid": "someone-else"}))
    )

    assert (refusal.status, refusal.reason) == (409, "Conflict")
    assert "the UID in the precondition (someone-else) does not match" in refusal.message


async def test_a_missing_pod_cannot_be_evicted(api):
    refusal = await refused(api("pods").post("p", "eviction", eviction("p", api.namespace)))

    assert (refusal.status, refusal.message) == (404, 'pods "p" not found')


async def test_an_eviction_names_its_pod(api):
    await running(api, "p")

    refusal = await refused(api("pods").post("p", "eviction", eviction("other", api.namespace)))

    assert (refusal.status, refusal.reason) == (400, "BadRequest")
    assert refusal.message == "name in URL does not match name in Eviction object"


async def test_an_eviction_may_set_the_grace_period(api):
    await running(api, "p")

    await api("pods").post("p", "eviction", eviction("p", api.namespace, gracePeriodSeconds=3))

    assert (await api("pods").get("p"))["metadata"]["deletionGracePeriodSeconds"] == 3


async def test_a_dry_run_eviction_evicts_no_pod(api):
    await running(api, "p")

    await api("pods").post("p", "eviction", eviction("p", api.namespace), dryRun="All")

    assert "deletionTimestamp" not in (await api("pods").get("p"))["metadata"]
