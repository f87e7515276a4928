"""The Job controller: each sync compares a Job's pods with its spec, creates or deletes pods, and writes the status.

Pods carry the tracking finalizer until the Job's status counts them, so no ended pod is lost or counted twice. Writes
here are synchronous and this is the only writer, so `uncountedTerminatedPods` is always empty.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice

from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.conditions import find_condition, with_status_condition
from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.kinds import JOB_KIND, POD_KIND
from forebay.embedded.api.objects import Json, StoredKey
from forebay.embedded.controllers import job_rules as rules
from forebay.embedded.controllers.cluster_state import ClusterState, PodView
from forebay.embedded.controllers.controller import Controller
from forebay.embedded.controllers.job_rules import TRACKING, JobBackoff, JobTally, ParsedJobSpec
from forebay.embedded.controllers.recorder import Recorder
from forebay.embedded.controllers.replicasets import deletion_order
from forebay.kube.decoders import DELETED

#: Changes of pods wait this long, so that many ended pods cost one sync (the real controller's batch period).
_BATCH_PERIOD = 1.0
_MAX_PER_SYNC = 500


class JobController(Controller):
    COMPONENT = "job-controller"

    def __init__(self, cluster: ClusterState, recorder: Recorder) -> None:
        super().__init__(cluster, recorder)
        self._work = self._queue_for(self._sync, lambda key: self._store.find(JOB_KIND, *key))
        #: Pods that still carry the tracking finalizer of a Job that no longer exists.
        self._orphans = self._queue_for(self._release_orphan, self._pod_object)
        self._backoffs: dict[str, JobBackoff] = {}
        cluster.on_pods(self._pod_changed)

    def start(self) -> None:
        self._follow(JOB_KIND, self._job_changed)

    def _job_changed(self, change: StoredChange) -> None:
        old, job = change.old, change.new
        meta = job["metadata"]
        if change.type == DELETED:
            self._backoffs.pop(meta["uid"], None)
            for key in self._cluster.by_owner.get(meta["uid"], ()):
                self._orphans.add(key)
            return
        if old is not None:
            before = old["metadata"]
            # Status writes of this controller change neither, and a sync after each would double the work.
            if before.get("generation") == meta.get("generation") and ("deletionTimestamp" in meta) == (
                "deletionTimestamp" in before
            ):
                return
        self._work.add(_key(job))

    def _pod_changed(self, old: PodView | None, new: PodView | None) -> None:
        for namespace, owner in {(pod.key[0], pod.owner) for pod in (old, new) if pod is not None}:
            if owner[0] == JOB_KIND.kind:
                self._work.add((namespace, owner[1]), _BATCH_PERIOD)
        if new is not None and new.owner[0] != JOB_KIND.kind and TRACKING in new.finalizers:
            self._orphans.add(new.key)

    def _sync(self, key: StoredKey) -> None:
        job = self._store.find(JOB_KIND, *key)
        if job is None:
            return
        spec = rules.job_spec(job)
        if spec.managed_by not in {None, "kubernetes.io/job-controller"}:
            return
        pods = self._cluster.owned(job)
        if _finished(job) is not None:
            self._release(pods)
            self._expire(key, job, spec)
            return
        tally = JobTally.of(job, spec, pods)
        backoff = self._backoffs.setdefault(job["metadata"]["uid"], JobBackoff())
        backoff.add(tally.succeeded, tally.failed)
        status = dict(job.get("status") or {})
        now = self._store.timestamp()
        if "startTime" not in status and not spec.suspend:
            status["startTime"] = now
        status = self._count(tally, status)
        finish_condition = self._finish_condition(tally, status)
        if finish_condition is not None:
            status = self._finish(tally, status, finish_condition)
        else:
            status = self._sync_pods(key, tally, status, backoff)
        self._write(key, job, status)

    def _finish_condition(self, tally: JobTally, status: Json) -> Json | None:
        """SuccessCriteriaMet or FailureTarget of a Job that is about to finish, perhaps since an earlier sync."""
        for kind in ("SuccessCriteriaMet", "FailureTarget"):
            existing = find_condition(status, kind)
            if existing is not None and existing["status"] == "True":
                return existing
        spec = tally.spec
        for pod in tally.failed:
            _, message = rules.apply_failure_policy(pod, spec.pod_failure_policy)
            if message is not None:
                return self._condition("FailureTarget", "PodFailurePolicy", message)
        in_place = rules.restarts(tally.pods) if spec.restarts_in_place else 0
        if status.get("failed", 0) > spec.backoff_limit or (in_place and in_place >= spec.backoff_limit):
            return self._condition(
                "FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
            )
        if spec.active_deadline_seconds is not None and not spec.suspend:
            deadline = datetime.fromisoformat(status["startTime"]) + timedelta(seconds=spec.active_deadline_seconds)
            remaining = (deadline - self._store.clock()).total_seconds()
            if remaining <= 0:
                return self._condition(
                    "FailureTarget", "DeadlineExceeded", "Job was active longer than specified deadline"
                )
            self._work.add(_key(tally.job), remaining)
        return None

    def _finish(self, tally: JobTally, status: Json, finish_condition: Json) -> Json:
        for pod in tally.active:
            self._delete(tally.job, pod)
        if finish_condition["type"] == "FailureTarget":
            # Pods that are still active when the Job fails are counted as failed.
            still_active = sum(TRACKING in pod.finalizers and not rules.failed(pod, tally.spec) for pod in tally.active)
            if still_active:
                status["failed"] = status.get("failed", 0) + still_active
        self._release(tally.pods)
        if find_condition(status, finish_condition["type"]) is None:
            status = {**status, "conditions": [*(status.get("conditions") or ()), finish_condition]}
        # A pod that was not bound yet is gone at once; the others end when their kubelets stop them.
        terminating = sum(pod.deleting and not pod.ended for pod in self._cluster.owned(tally.job))
        status = _with_counts(status, active=0, ready=0, terminating=terminating)
        if terminating:
            return status
        final = "Complete" if finish_condition["type"] == "SuccessCriteriaMet" else "Failed"
        finish = self._condition(final, finish_condition["reason"], finish_condition["message"])
        status = {**status, "conditions": [*status["conditions"], finish]}
        if final == "Complete":
            status["completionTime"] = self._store.timestamp()
            self._recorder.normal(self.COMPONENT, tally.job, "Completed", "Job completed")
        else:
            self._recorder.warning(self.COMPONENT, tally.job, finish_condition["reason"], finish_condition["message"])
        return status

    def _sync_pods(self, key: StoredKey, tally: JobTally, status: Json, backoff: JobBackoff) -> Json:
        job, spec = tally.job, tally.spec
        succeeded = status.get("succeeded", 0)
        active, terminating, ready = len(tally.active), tally.terminating, tally.ready
        self._release(
            pod
            for pod in tally.pods
            if pod.phase == "Succeeded" or rules.failed(pod, spec) or "deletionTimestamp" in job["metadata"]
        )
        if "deletionTimestamp" not in job["metadata"]:
            surplus = self._surplus(tally, succeeded)
            for pod in surplus:
                self._release((pod,))
                self._delete(job, pod)
            active -= len(surplus)
            terminating += sum(bool(pod.node) for pod in surplus)
            ready -= sum(pod.ready for pod in surplus)
            if not surplus and not spec.suspend:
                missing = tally.target(succeeded, active) - active
                if spec.replaces_only_failed:
                    missing -= terminating
                active += self._create(key, tally, missing, backoff)
        status = _with_counts(status, active=active, ready=ready, terminating=terminating)
        done = succeeded >= spec.needed_successes if spec.needed_successes is not None else succeeded > 0
        if done and not active:
            reached = self._condition(
                "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods"
            )
            return self._finish(tally, status, reached)
        return self._suspended(job, spec, status)

    def _suspended(self, job: Json, spec: ParsedJobSpec, status: Json) -> Json:
        before = find_condition(status, "Suspended")
        now = self._store.timestamp()
        if spec.suspend and (before is None or before["status"] != "True"):
            self._recorder.normal(self.COMPONENT, job, "Suspended", "Job suspended")
            status = with_status_condition(status, self._condition("Suspended", "JobSuspended", "Job suspended"), now)
            status.pop("startTime", None)
        elif not spec.suspend and before is not None and before["status"] == "True":
            self._recorder.normal(self.COMPONENT, job, "Resumed", "Job resumed")
            new = {**self._condition("Suspended", "JobResumed", "Job resumed"), "status": "False"}
            # activeDeadlineSeconds counts from the resumption.
            status = {**with_status_condition(status, new, now), "startTime": now}
            if spec.active_deadline_seconds is not None:
                self._work.add(_key(job), spec.active_deadline_seconds)
        return status

    def _surplus(self, tally: JobTally, succeeded: int) -> list[PodView]:
        active = tally.active
        keep = 0 if tally.spec.suspend else tally.target(succeeded, len(active))
        if len(active) <= keep:
            return []
        return sorted(active, key=deletion_order)[: len(active) - keep][:_MAX_PER_SYNC]

    def _create(self, key: StoredKey, tally: JobTally, missing: int, backoff: JobBackoff) -> int:
        if missing <= 0:
            return 0
        wait = backoff.remaining(self._store.clock())
        if wait > 0:
            self._work.add(key, wait)
            return 0
        if missing > _MAX_PER_SYNC:
            self._work.add(key)
        created = 0
        for index in islice(tally.next_indexes(), min(missing, _MAX_PER_SYNC)):
            try:
                pod = self._store.create(POD_KIND, rules.pod_for(tally.job, tally.spec, index))
            except ApiFailure as failure:
                # Ended pods must still be counted, so this sync goes on to write the status.
                self._recorder.warning(self.COMPONENT, tally.job, "FailedCreate", f"Error creating: {failure}")
                self._work.retry(key)
                break
            self._recorder.normal(
                self.COMPONENT, tally.job, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}"
            )
            created += 1
        return created

    def _count(self, tally: JobTally, status: Json) -> Json:
        counted = {**status}
        failed = status.get("failed", 0) + tally.failures
        if tally.spec.indexed:
            tally.completed |= {index for pod in tally.succeeded if (index := rules.index_of(pod)) is not None}
            if tally.completed:
                counted["completedIndexes"] = rules.indexes_text(tally.completed)
            succeeded = len(tally.completed)
        else:
            succeeded = status.get("succeeded", 0) + len(tally.succeeded)
        return _with_counts(counted, succeeded=succeeded, failed=failed)

    def _release(self, pods: "Sequence[PodView] | Iterator[PodView]") -> None:
        for pod in tuple(pods):
            current = self._cluster.pods.get(pod.key)
            if current is not None and current.uid == pod.uid and TRACKING in current.finalizers:
                self._store.remove_finalizer(POD_KIND, current.object, TRACKING)

    def _release_orphan(self, key: StoredKey) -> None:
        pod = self._cluster.pods.get(key)
        if pod is not None:
            self._release((pod,))

    def _delete(self, job: Json, pod: PodView) -> None:
        if pod.key in self._cluster.pods:
            self._store.delete(POD_KIND, *pod.key, preconditions={"uid": pod.uid})
            self._recorder.normal(self.COMPONENT, job, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}")

    def _expire(self, key: StoredKey, job: Json, spec: ParsedJobSpec) -> None:
        finish = _finished(job)
        if spec.ttl_seconds_after_finished is None or finish is None or "deletionTimestamp" in job["metadata"]:
            return
        deadline = datetime.fromisoformat(finish["lastTransitionTime"]) + timedelta(
            seconds=spec.ttl_seconds_after_finished
        )
        remaining = (deadline - self._store.clock()).total_seconds()
        if remaining > 0:
            self._work.add(key, remaining)
        else:
            self._store.delete(JOB_KIND, *key, propagation="Foreground")

    def _write(self, key: StoredKey, job: Json, status: Json) -> None:
        status.setdefault("uncountedTerminatedPods", {})
        # Deleting pods may have let the garbage collector remove a Job that only waited for them.
        current = self._store.find(JOB_KIND, *key)
        if current is None or current["metadata"]["uid"] != job["metadata"]["uid"] or status == job.get("status"):
            return
        self._store.update(JOB_KIND, {**current, "status": status}, subresource="status")
        if _finished({"status": status}) is not None:
            self._work.add(key)

    def _condition(self, kind: str, reason: str, message: str) -> Json:
        now = self._store.timestamp()
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": now,
            "lastTransitionTime": now,
        }


def _key(job: Json) -> StoredKey:
    return (job["metadata"]["namespace"], job["metadata"]["name"])


def _finished(job: Json) -> Json | None:
    status = job.get("status") or {}
    return find_condition(status, "Complete") or find_condition(status, "Failed")


def _with_counts(status: Json, **counts: int) -> Json:
    """The status with these counts; zeroes are deadline out, except where the real controller writes them."""
    new = {**status, **counts}
    return {
        key: value for key, value in new.items() if value != 0 or key in {"ready", "terminating"} or key not in counts
    }
