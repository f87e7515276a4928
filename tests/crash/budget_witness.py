"""Independent observer: computes usage from the store's changes, and checks the operator's ledgers and actions."""

import base64
from collections import defaultdict
from datetime import datetime

from forebay.api.names import USAGE_FINALIZER
from forebay.budgets.ledger.ledger import Ledger
from forebay.budgets.usage import seconds
from forebay.embedded.api.kinds import CONFIG_MAP_KIND, JOB_KIND, POD_KIND
from forebay.kube.decoders import ADDED, DELETED
from forebay.net import clock

_ENDED = frozenset({"Succeeded", "Failed"})
_ASSUMED_RUNTIME, _MINIMUM_RUNTIME = 3600, 300
#: Seconds between a snapshot and the resulting action: the operator did not know later changes.
_REACTION = 3.0
#: A quota is in billionths of an hour, and a status in thousandths.
_EPSILON = 1e-4
_ROUNDING = 0.5 * 3.6 + _EPSILON
#: Seconds within which a running operator certainly stores the end of a pod.
_STORED_WITHIN = 10.0
#: Longest wait of a client that was refused repeatedly.
_BACK_OFF = 30.0


class Truth:
    """True run of one pod, from the statuses that the API server has stored."""

    def __init__(self, pod):
        self.name = pod["metadata"]["name"]
        self.uid = pod["metadata"]["uid"]
        self.team = labels_of(pod).get("team")
        (container,) = pod["spec"]["containers"]
        self.gpus = int(container["resources"]["limits"]["nvidia.com/gpu"])
        self.start = self.end = None
        #: First start in the last status, which has room for two runs; and until when that was the true first start.
        self.shown = None
        self.shown_until = None
        #: When the end was first visible, and when the pod was removed.
        self.ended_at = self.removed_at = None
        #: Whether the pod ever had the usage finalizer.
        self.had_finalizer = False
        #: Whether the pod was removed while it ran.
        self.end_unreported = False
        self.evicted_at = None

    def change(self, pod, *, removed):
        now = clock.now()
        self.had_finalizer |= USAGE_FINALIZER in (pod["metadata"].get("finalizers") or ())
        (status,) = pod["status"].get("containerStatuses") or ({},)
        states = [status.get("state") or {}, status.get("lastState") or {}]
        runs = [run for state in states if (run := state.get("running") or state.get("terminated"))]
        starts = [_second(run["startedAt"]) for run in runs]
        if starts:
            if self.shown_until is None and self.start is not None and min(starts) > self.start:
                self.shown_until = now.timestamp()
            self.shown = min(starts)
            self.start = self.shown if self.start is None else min(self.start, self.shown)
        if pod["status"].get("phase") in _ENDED and self.ended_at is None:
            self.ended_at = now
            finishes = [_second(run["finishedAt"]) for run in runs if run.get("finishedAt")]
            self.end = max(finishes, default=None)
        if removed:
            self.removed_at = now
            if self.ended_at is None:
                self.end_unreported, self.end = True, None if self.start is None else seconds(now)

    @property
    def runs(self):
        return self.start is not None and self.end is None and self.removed_at is None

    def used(self, at, since=0.0):
        """GPU-seconds from one moment to another."""
        if self.start is None:
            return 0
        end = at if self.end is None else min(self.end, at)
        return self.gpus * max(end - max(self.start, since), 0)


class Auditor:
    def __init__(self, scenario, world):
        self.scenario = scenario
        self.world = world
        self.breaches = []
        self.pods = {}
        self.lives = []
        self._born = 0.0
        #: When each process of the operator died.
        self._deaths = {}
        self._changed = 0.0
        self._paused = set()
        self._kind = world.store.kinds.named("forebay.dev/v1alpha1", "GPUWorkloadBudget")
        self._limits = {each.name: each for each in scenario.budgets}
        self._uids = {each["metadata"]["uid"]: each["metadata"]["name"] for each in world.store.list(self._kind)}
        instances = world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        for kind, changed in (
            (POD_KIND, self._pod_changed),
            (JOB_KIND, self._job_changed),
            (CONFIG_MAP_KIND, self._ledger_changed),
            (self._kind, self._budget_changed),
            (instances, self._record_changed),
        ):
            world.store.subscribe(kind, changed)

    def breach(self, words):
        self.breaches.append(f"at {_now() - _T0:.3f} s: {words}")

    def of(self, limit):
        return [pod for pod in self.pods.values() if pod.team == limit.team]

    def used(self, limit, at=None):
        """GPU-seconds in the window that ends at `at`."""
        at = _now() if at is None else at
        return sum(pod.used(at, at - limit.window * 3600) for pod in self.of(limit))

    def stored(self, limit):
        """Stored intervals by pod, as the next process of the operator would read them."""
        chunks = defaultdict(dict)
        for each in self.world.store.list(CONFIG_MAP_KIND):
            labels = labels_of(each)
            if labels.get("forebay.dev/ledger") == "gpu-hours":
                serial = int(each["metadata"]["name"].rpartition("-")[2])
                chunks[labels["forebay.dev/budget-uid"]][serial] = base64.b64decode(each["binaryData"]["chunk"])
        (uid,) = (uid for uid, name in self._uids.items() if name == limit.name)
        ledger, damages = Ledger.load(uid, chunks[uid])
        if damages:
            self.breach(f"the ledger of {limit.name} is damaged: {damages}")
        return {pod.uid: ledger.intervals(pod.uid) for pod in self.pods.values() if ledger.intervals(pod.uid)}

    def born(self, life):
        self.lives.append(life)
        self._born = _now()

    def died(self, life):
        self._deaths[life.name] = _now()

    @property
    def someone_works(self):
        """Whether an operator has worked long enough to store everything.

        A new process waits until the lease of the dead one ends, and until the injected faults end.
        """
        lease = self.scenario.terms.duration if self._deaths else 0.0
        clears = 0.0 if self.scenario.plan is None else self.scenario.plan.until + _BACK_OFF + _T0
        return bool(self.alive) and _now() > max(self._born + lease, clears) + _STORED_WITHIN

    @property
    def alive(self):
        return [life for life in self.lives if life.name not in self._deaths]

    def is_sure(self, pod, requests):
        """Whether the usage of the pod must be stored: the finalizer kept it, or an operator had the time to store it.

        With injected faults only the first is certain.
        """
        if pod.had_finalizer:
            return True
        seen = pod.ended_at or pod.removed_at
        if self.scenario.plan is not None or pod.start is None or seen is None:
            return False
        seen_at = seen.timestamp()
        gone = float("inf") if pod.removed_at is None else pod.removed_at.timestamp()
        # The deletion event of a watched pod carries its last state.
        return any(
            begins < gone and max(begins, seen_at) + _STORED_WITHIN <= ends
            for begins, ends in self._active_times(requests)
        )

    def start_is_sure(self, pod, limit, requests):
        """Whether an operator had the time to store the start of an exact budget's pod before its status lost it."""
        if pod.shown_until is None:
            return True
        if self.scenario.plan is not None or not pod.had_finalizer or limit.accounting != "Exact":
            return False
        return any(
            max(begins, pod.start) + _STORED_WITHIN <= min(ends, pod.shown_until)
            for begins, ends in self._active_times(requests)
        )

    def _active_times(self, requests):
        """Time in which each process of the operator was active: from reading the ledgers to its death."""
        for life in self.lives:
            read = [sent.at for sent in requests if sent.life == life.name and sent.path.endswith("/configmaps")]
            if read:
                yield read[0] + 1 + _T0, self._deaths.get(life.name, _now())

    def _pod_changed(self, change):
        uid = change.new["metadata"]["uid"]
        if change.type == ADDED:
            self.pods[uid] = Truth(change.new)
        pod = self.pods[uid]
        before = pod.start, pod.end
        pod.change(change.new, removed=change.type == DELETED)
        if change.type in {ADDED, DELETED} or before != (pod.start, pod.end) or _node(change.old) != _node(change.new):
            self._changed = _now()
        if pod.evicted_at is None and _is_evicted(change.new):
            pod.evicted_at = _now()
            self._stopped(pod, "Evict")

    def _job_changed(self, change):
        name, spec = change.new["metadata"]["name"], change.new["spec"]
        if spec.get("suspend") and name not in self._paused:
            self._paused.add(name)
            team = (spec["template"]["metadata"].get("labels") or {}).get("team")
            self._check_stop(name, team, "Pause")
        elif not spec.get("suspend"):
            self._paused.discard(name)

    def _stopped(self, pod, action):
        if pod.ended_at is not None:
            self.breach(f"{pod.name} is evicted although it has ended")
        self._check_stop(pod.name, pod.team, action)
        leaving = [
            each.name
            for each in self.pods.values()
            if each.team == pod.team
            and each.evicted_at is not None
            and each.ended_at is None
            and each.removed_at is None
        ]
        budgets = [each for each in self.scenario.budgets if (each.action, each.team) == (action, pod.team)]
        if len(leaving) > len(budgets):
            self.breach(f"{leaving} are evicted at once by {len(budgets)} budgets")

    def _check_stop(self, name, team, action):
        """Report a breach unless a budget with this action has been used up for its grace period."""
        for limit in self.scenario.budgets:
            if (limit.action, limit.team) != (action, team):
                continue
            # The condition is written in whole seconds.
            due = _now() - max(limit.grace - 1, 0)
            if self.used(limit) >= limit.seconds - _EPSILON and (
                limit.window < 24 or self.used(limit, due) >= limit.seconds - _EPSILON
            ):
                return
        found = {limit.name: (self.used(limit), limit.seconds) for limit in self.scenario.budgets}
        self.breach(f"{name} is stopped ({action}) for no budget that is used up: {found}")

    def _ledger_changed(self, change):
        labels = labels_of(change.new)
        if labels.get("forebay.dev/ledger") != "gpu-hours":
            return
        limit = self._limits[self._uids[labels["forebay.dev/budget-uid"]]]
        for uid, intervals in self.stored(limit).items():
            self._check(limit, self.pods[uid], intervals)

    def _check(self, limit, pod, intervals):
        last = 0
        for start, end, rate in intervals:
            if rate != pod.gpus * 1000 or start < max(last, pod.start):
                self.breach(f"{limit.name} has {intervals} of {pod.name}, which has {pod.gpus} GPUs since {pod.start}")
            last = start if end is None else end
            if end is not None and not start < end <= self._latest(pod):
                self.breach(f"{limit.name} has {intervals} of {pod.name}, which ended at {pod.end}")

    def _latest(self, pod):
        """Latest end that the ledger may hold: uncertain if the watch was interrupted or the pod removed by force."""
        uncertain = pod.end_unreported or (self.scenario.plan is not None and not pod.had_finalizer)
        return seconds(clock.now()) if uncertain or pod.end is None else pod.end

    def _budget_changed(self, change):
        status = change.new.get("status") or {}
        limit = self._limits[change.new["metadata"]["name"]]
        before = {} if change.old is None else change.old.get("status") or {}
        # What is said is judged when it is said: a pod may have ended before another field is written.
        if status.get("consumedGpuHours") in {None, before.get("consumedGpuHours")}:
            return
        shown, used = gpu_seconds(status["consumedGpuHours"]), self.used(limit)
        uncertain = any(pod.end_unreported for pod in self.of(limit)) or self.scenario.plan is not None
        # A short window may have moved on before the status is written.
        if shown < 0 or (limit.window >= 24 and not uncertain and shown > used + _ROUNDING):
            self.breach(f"{limit.name} says {shown:.1f} GPU-s, and it is {used:.1f}")

    def _record_changed(self, change):
        """Check a new machine: its budget has headroom for five minutes of a pod, after an hour of all others."""
        wanted = {pod["uid"] for pod in change.new["spec"].get("pods") or ()}
        if change.type != ADDED or not wanted or _now() - self._changed < _REACTION:
            return
        for limit in self.scenario.budgets:
            mine = [pod for pod in self.of(limit) if pod.uid in wanted]
            if not limit.holds or not mine or limit.window < 24:
                continue
            others = self._running_or_served(limit, change.new["metadata"]["name"])
            headroom = limit.seconds - self.used(limit) - _ASSUMED_RUNTIME * sum(pod.gpus for pod in others)
            need = min(min(pod.gpus for pod in mine) * _MINIMUM_RUNTIME, limit.seconds)
            if headroom < need - _EPSILON:
                self.breach(
                    f"a machine is launched although {limit.name} has {headroom} GPU-s left and {need} are needed"
                )

    def _running_or_served(self, limit, name):
        """Pods that run or have capacity, apart from those that this machine is for."""
        instances = self.world.store.kinds.named("forebay.dev/v1alpha1", "GPUInstance")
        served = {
            pod["uid"]
            for each in self.world.store.list(instances)
            if each["metadata"]["name"] != name
            and (each.get("status") or {}).get("state")
            in {None, "Requested", "Launching", "Launched", "Joined", "Ready"}
            for pod in each["spec"].get("pods") or ()
        }
        found = []
        for pod in self.of(limit):
            there = self.world.store.find(POD_KIND, "default", pod.name)
            if there is None or there["metadata"]["uid"] != pod.uid or pod.ended_at is not None:
                continue
            if pod.runs or there["spec"].get("nodeName") or pod.uid in served:
                found.append(pod)
        return found


_T0 = datetime.fromisoformat("2030-01-01T00:00:00Z").timestamp()


def _now():
    return clock.now().timestamp()


def _second(text):
    return seconds(datetime.fromisoformat(text))


def _node(pod):
    return None if pod is None else pod["spec"].get("nodeName")


def _is_evicted(pod):
    conditions = pod["status"].get("conditions") or ()
    return any(each["type"] == "DisruptionTarget" and each["reason"] == "EvictionByEvictionAPI" for each in conditions)


def labels_of(found):
    return found["metadata"].get("labels") or {}


def gpu_seconds(quantity):
    text = str(quantity)
    return int(text[:-1]) * 3.6 if text.endswith("m") else float(text) * 3600
