"""An operator that runs without budgets: it says so, lets go of what budgets held, and asks for less."""

from forebay.model.reasons import Reason
from tests.engine.budget_world import operator, passing, used, world

USAGE = "forebay.dev/usage"
GATE = "forebay.dev/budget"


class Watched:
    """A transport that keeps method and path of each request."""

    def __init__(self, inner, kept):
        self.inner, self.kept = inner, kept

    async def request(self, request):
        self.kept.append((request.method, request.url.partition("://")[2].partition("/")[2].partition("?")[0]))
        return await self.inner.request(request)

    async def close(self):
        await self.inner.close()


async def test_each_budget_says_that_nothing_is_done_for_it():
    async with world() as it, operator(it, budgets=False):
        it.budget(hours="0.001")
        it.pod("train", 1)
        await passing(600)
        assert it.phase("train") == "Running"
        assert it.condition("Ready") == ("False", Reason.BUDGETS_OFF)
        assert any("--budgets off" in each["message"] for each in it.status()["conditions"])
        assert "consumedGpuHours" not in it.status()
        assert it.labels() == {}
        # Told once, not in every tick.
        version = it.the_budget()["metadata"]["resourceVersion"]
        await passing(600)
        assert it.the_budget()["metadata"]["resourceVersion"] == version


async def test_an_edited_budget_is_told_again():
    async with world() as it, operator(it, budgets=False):
        it.budget()
        await passing(10)
        it.change(it.kind, "team-a", lambda each: each["spec"]["quota"].update(gpuHours="7"), "default")
        await passing(10)
        found = it.the_budget()
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


async def test_what_a_budget_held_before_is_let_go_when_budgets_are_switched_off():
    async with world() as it:
        async with operator(it, "a"):
            it.budget(hours="0.001", accounting="Exact", action="AlertOnly")
            it.pod("train", 1)
            it.pod("held", 1, schedulingGates=[{"name": GATE}])
            await passing(60)
            assert it.the_pod("train")["metadata"]["finalizers"] == [USAGE]
            assert used(it.status()) > 0
        async with operator(it, "b", budgets=False):
            await passing(60)
            assert "finalizers" not in it.the_pod("train")["metadata"]
            assert "schedulingGates" not in it.the_pod("held")["spec"]
            assert it.phase("held") == "Running"
            assert "consumedGpuHours" not in it.status()


async def test_budgets_that_are_switched_on_again_go_on_with_their_ledger():
    async with world() as it:
        it.budget()
        async with operator(it, "a"):
            it.pod("train", 1, runs="10m")
            await passing(700)
            before = used(it.status())
            assert before > 0
        async with operator(it, "b", budgets=False):
            await passing(3600)
        async with operator(it, "c"):
            await passing(60)
            assert used(it.status()) == before
            assert it.condition("Ready")[0] == "True"


async def test_jobs_and_policies_are_not_read_and_budgets_not_patched():
    kept = []
    async with world() as it, operator(it, budgets=False, wrap=lambda inner: Watched(inner, kept)):
        it.budget(hours="0.001", action="Pause")
        it.job("train", 1)
        await passing(600)
    paths = {path for _, path in kept}
    assert not [path for path in paths if path.startswith(("apis/batch", "apis/admissionregistration"))]
    patched = {path for method, path in kept if method == "PATCH" and "gpuworkloadbudgets" in path}
    assert patched == {"apis/forebay.dev/v1alpha1/namespaces/default/gpuworkloadbudgets/team-a/status"}
