"""Outcome of a crash test with budgets, and the laws that are checked at its end."""

from collections import Counter

from forebay.api.names import BUDGET_GATE, USAGE_FINALIZER
from forebay.embedded.api.kinds import JOB_KIND, POD_KIND
from forebay.model.units import GpuHours
from tests.crash.budget_witness import gpu_seconds
from tests.crash.rest import WorldOutcome

_MINIMUM_RUNTIME = 300
#: Hours: nothing leaves such a window before the end.
_LONG = 24
_ENDED = frozenset({"Succeeded", "Failed"})


class Outcome(WorldOutcome):
    def __init__(self, scenario, world, ledger, witness, auditor):
        super().__init__(scenario, world, ledger, witness)
        self.auditor = auditor
        self._remembered = None

    def at_rest(self):
        """Whether all is done, and told: statuses are written some seconds later, and nobody may lead any more then."""
        return not any(self._unfinished()) and not any(self._wrong_statuses())

    def _unfinished(self):
        for pod in self.world.store.list(POD_KIND):
            name, phase = pod["metadata"]["name"], pod["status"]["phase"]
            if "deletionTimestamp" in pod["metadata"]:
                yield f"{name} is not deleted"
            elif phase in _ENDED:
                if USAGE_FINALIZER in (pod["metadata"].get("finalizers") or ()):
                    yield f"{name} has ended and keeps its finalizer"
            elif pod["spec"].get("nodeName"):
                yield f"{name} runs"
            elif not self._must_wait(pod):
                yield f"{name} waits, gates {pod['spec'].get('schedulingGates')}"
        for job in self.world.store.list(JOB_KIND):
            name, status = job["metadata"]["name"], job.get("status") or {}
            if job["spec"].get("suspend"):
                if not self._must_stay_paused(job):
                    yield f"Job {name} is suspended"
            elif not status.get("succeeded") and not status.get("active"):
                yield f"Job {name} has no pod"
        yield from (f"{machine} is on" for machine in sorted(self.world.power.on))
        yield from (f"record {name} is {state}" for name, state in self.world.states().items() if state != "Gone")

    def _must_wait(self, pod):
        """Whether a budget has no headroom for the pod, or for an older gated pod, for longer than the test lasts."""
        mine = self._need(pod)
        largest = max((machine.gpus for machine in self.scenario.machines), default=self.scenario.gpus)
        if mine > largest * _MINIMUM_RUNTIME:
            return True
        for limit in self.scenario.budgets:
            if not limit.holds or limit.team != self._team(pod) or limit.window < _LONG:
                continue
            needs = [mine]
            if self._is_gated(pod):
                needs += [self._need(each) for each in self.world.store.list(POD_KIND) if self._is_gated(each)]
            left = limit.seconds - self.auditor.used(limit)
            if any(left < min(need, limit.seconds) for need in needs):
                return True
        return False

    def _must_stay_paused(self, job):
        team, need = self._team(job["spec"]["template"]), self._need(job["spec"]["template"])
        return any(
            limit.seconds - self.auditor.used(limit) < min(need, limit.seconds)
            for limit in self.scenario.budgets
            if (limit.action, limit.team) == ("Pause", team) and limit.window >= _LONG
        )

    def _need(self, pod):
        (container,) = pod["spec"]["containers"]
        return int(container["resources"]["limits"]["nvidia.com/gpu"]) * _MINIMUM_RUNTIME

    def _team(self, pod):
        return (pod["metadata"].get("labels") or {}).get("team")

    def _is_gated(self, pod):
        return any(each["name"] == BUDGET_GATE for each in pod["spec"].get("schedulingGates") or ())

    def remember(self):
        self._remembered = self._ledgers()

    def _ledgers(self):
        return {limit.name: self.auditor.stored(limit) for limit in self.scenario.budgets}

    def breaches(self):
        yield from self.witness.breaches
        yield from self.auditor.breaches
        if self.quiet_at is None:
            yield f"not at rest: {[*self._unfinished(), *self._wrong_statuses()]}"
        if self._remembered is not None:
            if self._ledgers() != self._remembered:
                yield f"the ledgers changed by themselves: {self._remembered} became {self._ledgers()}"
            yield from (f"no longer at rest: {each}" for each in self._unfinished())
            yield from self._wrong_ledgers()
            yield from self._wrong_statuses()
        yield from self.too_many_requests(self._allowed_requests())
        yield from self._repeated_evictions()

    def _wrong_ledgers(self):
        for limit in self.scenario.budgets:
            stored = self.auditor.stored(limit)
            for pod in self.auditor.of(limit):
                intervals = stored.get(pod.uid, ())
                counted = sum((end - start) * rate // 1000 for start, end, rate in intervals if end is not None)
                low, high = self._allowed(limit, pod)
                if not low <= counted <= high:
                    yield f"{limit.name} has {counted} GPU-s of {pod.name} ({intervals}); it is {low} to {high}"

    def _allowed(self, limit, pod):
        return self._between(limit, pod, sure=self.auditor.is_sure(pod, self.ledger.requests))

    def _between(self, limit, pod, *, sure):
        """GPU-seconds that the ledger may hold of a pod, at least and at most."""
        used = pod.used(float("inf"))
        if pod.end_unreported:
            # Until the deletion was seen, which is later where the watch was interrupted.
            late = 60 if self.scenario.plan is not None else 1
            return (max(used - pod.gpus, 0) if sure else 0), used + late * pod.gpus if used else 0
        if not sure:
            return 0, used + (0 if self.scenario.plan is None else 60 * pod.gpus)
        if pod.end is None or self.auditor.start_is_sure(pod, limit, self.ledger.requests):
            return used, used
        return pod.gpus * (pod.end - pod.shown), used

    def _wrong_statuses(self):
        """Of budgets whose usage is certain."""
        kind = self.world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        for limit in self.scenario.budgets:
            bounds = (self._allowed(limit, pod) for pod in self.auditor.of(limit))
            if limit.window < _LONG or not all(low == high for low, high in bounds):
                continue
            shown = (self.world.store.get(kind, "default", limit.name).get("status") or {}).get("consumedGpuHours")
            used = GpuHours.from_units(int(self.auditor.used(limit)) * 10**9).quantity()
            if shown is None or gpu_seconds(shown) != gpu_seconds(used):
                yield f"{limit.name} says {shown} in the end, and it is {used}"

    def _repeated_evictions(self):
        asked = Counter(sent.path for sent in self.ledger.requests if sent.path.endswith("/eviction"))
        for path, times in asked.items():
            # A refused or lost request is repeated; one that was answered is not.
            if times > 1 + len(self.auditor.lives) + self.ledger.faults:
                yield f"{path} was requested {times} times"

    def _allowed_requests(self):
        return (
            self.allowed_for_machines(len(self.auditor.lives))
            + 100 * len(self.scenario.budgets)
            + 40 * len(self.auditor.pods)
        )
