"""Pure rules of the Job controller: the parsed spec, failure policies, backoff, completion indexes, pods to create."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, repeat

import msgspec

from forebay.embedded.api.objects import Json
from forebay.embedded.controllers.cluster_state import PodView
from forebay.embedded.controllers.templates import pod_from

TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"

_FIRST_BACKOFF, _MAX_BACKOFF = 10.0, 600.0


class OnExitCodes(msgspec.Struct, rename="camel", frozen=True):
    operator: str
    values: list[int]
    container_name: str | None = None


class OnPodCondition(msgspec.Struct, rename="camel", frozen=True):
    type: str
    status: str = "True"


class FailureRule(msgspec.Struct, rename="camel", frozen=True):
    action: str
    on_exit_codes: OnExitCodes | None = None
    on_pod_conditions: list[OnPodCondition] = []


class FailurePolicy(msgspec.Struct, frozen=True):
    rules: list[FailureRule] = []


class ParsedJobSpec(msgspec.Struct, rename="camel", frozen=True):
    template: Json
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    suspend: bool = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    pod_replacement_policy: str | None = None
    managed_by: str | None = None
    backoff_limit_per_index: int | None = None
    success_policy: Json | None = None

    @property
    def indexed(self) -> bool:
        return self.completion_mode == "Indexed"

    @property
    def needed_successes(self) -> int | None:
        """Successes that complete the Job. None: one success does, once all pods have ended."""
        return 1 if self.completions is None and self.parallelism is None else self.completions

    @property
    def max_parallel(self) -> int:
        return 1 if self.parallelism is None else self.parallelism

    @property
    def replaces_only_failed(self) -> bool:
        return (self.pod_replacement_policy or ("Failed" if self.pod_failure_policy else "")) == "Failed"

    @property
    def restarts_in_place(self) -> bool:
        return bool((self.template.get("spec") or {}).get("restartPolicy") == "OnFailure")


def job_spec(job: Json) -> ParsedJobSpec:
    """Raises ValueError for a spec that this controller does not implement."""
    spec = msgspec.convert(job["spec"], ParsedJobSpec)
    for field, value in (
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("successPolicy", spec.success_policy),
    ):
        if value is not None:
            raise ValueError(f"spec.{field} is not implemented by the embedded Job controller")
    if spec.completion_mode not in {"Indexed", "NonIndexed"}:
        raise ValueError(f"completion mode {spec.completion_mode} is unknown")
    return spec


def failed(pod: PodView, spec: ParsedJobSpec) -> bool:
    if pod.phase == "Failed":
        return True
    return pod.deleting and pod.phase != "Succeeded" and not spec.replaces_only_failed


def apply_failure_policy(pod: PodView, policy: FailurePolicy | None) -> tuple[bool, str | None]:
    """Whether a failed pod counts against the backoff limit, and the message where it fails the whole Job."""
    for index, rule in enumerate(policy.rules if policy else ()):
        cause = _matches(pod, rule)
        if cause is None or rule.action not in {"Ignore", "Count", "FailJob"}:
            continue
        failure = f"{cause} matching {rule.action} rule at index {index}" if rule.action == "FailJob" else None
        return rule.action != "Ignore", failure
    return True, None


def _matches(pod: PodView, rule: FailureRule) -> str | None:
    name = "/".join(pod.key)
    codes = rule.on_exit_codes
    if codes is not None:
        for container, code in exit_codes(pod):
            named = codes.container_name in {None, container}
            if named and code and (code in codes.values) == (codes.operator == "In"):
                return f"Container {container} for pod {name} failed with exit code {code}"
        return None
    for seen in pod.status.get("conditions") or ():
        if any(seen["type"] == wanted.type and seen["status"] == wanted.status for wanted in rule.on_pod_conditions):
            return f"Pod {name} has condition {seen['type']}"
    return None


def exit_codes(pod: PodView) -> Iterable[tuple[str, int]]:
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in pod.status.get(field) or ():
            ended = (container.get("state") or {}).get("terminated")
            if ended is not None:
                yield container["name"], int(ended.get("exitCode", 0))


def restarts(pods: Iterable[PodView]) -> int:
    return sum(
        container.get("restartCount", 0)
        for pod in pods
        if not pod.ended
        for field in ("containerStatuses", "initContainerStatuses")
        for container in pod.status.get(field) or ()
    )


def finished_at(pod: PodView) -> datetime:
    """When the last container ended; without that, when deletion was requested, or the creation time."""
    ends = [
        ended["finishedAt"]
        for container in pod.status.get("containerStatuses") or ()
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    if ends:
        return datetime.fromisoformat(max(ends))
    meta = pod.object["metadata"]
    if pod.deleting:
        return datetime.fromisoformat(meta["deletionTimestamp"]) - timedelta(
            seconds=meta.get("deletionGracePeriodSeconds") or 0
        )
    return datetime.fromisoformat(meta["creationTimestamp"])


class JobBackoff(msgspec.Struct):
    """Failures since the last success; each doubles the delay before the next pod is created."""

    failures: int = 0
    last: datetime | None = None

    def add(self, succeeded: Sequence[PodView], failed: Sequence[PodView]) -> None:
        ends = sorted(map(finished_at, failed))
        if succeeded:
            last_success = max(map(finished_at, succeeded))
            ends = [end for end in ends if end > last_success]
            self.failures, self.last = 0, None
        if ends:
            self.failures += len(ends)
            self.last = ends[-1]

    def remaining(self, now: datetime) -> float:
        if self.last is None:
            return 0.0
        wait = min(_FIRST_BACKOFF * 2.0 ** min(self.failures - 1, 30), _MAX_BACKOFF)
        return max(0.0, wait - (now - self.last).total_seconds())


def index_of(pod: PodView) -> int | None:
    text = pod.annotations.get(INDEX, "")
    return int(text) if text.isdecimal() else None


def indexes(text: str) -> set[int]:
    """`0-2,5` as a set."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def indexes_text(found: Iterable[int]) -> str:
    runs = (list(run) for _, run in groupby(enumerate(sorted(found)), key=lambda pair: pair[1] - pair[0]))
    spans = ((run[0][1], run[-1][1]) for run in runs)
    # The real controller writes a pair as two indexes and only longer runs as a range.
    return ",".join(f"{a}" if a == b else f"{a},{b}" if b == a + 1 else f"{a}-{b}" for a, b in spans)


def pod_for(job: Json, spec: ParsedJobSpec, index: int | None) -> Json:
    """The next pod of the Job, to be created."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    names = {"controller-uid": uid, "job-name": name}
    labels = {**names, **{f"batch.kubernetes.io/{key}": value for key, value in names.items()}}
    if index is None:
        return pod_from(job, spec.template, f"{name}-", labels=labels, finalizers=(TRACKING,))
    completion_index = {INDEX: str(index)}
    template = {**spec.template, "spec": _indexed(spec.template["spec"], f"{name}-{index}")}
    labels |= completion_index
    return pod_from(
        job, template, f"{name}-{index}-", labels=labels, annotations=completion_index, finalizers=(TRACKING,)
    )


def _indexed(pod_spec: Json, hostname: str) -> Json:
    variable = {
        "name": "JOB_COMPLETION_INDEX",
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX}']"}},
    }
    containers_by_field = {field: pod_spec[field] for field in ("initContainers", "containers") if field in pod_spec}
    with_index: Json = {
        field: [
            c
            if any(e["name"] == variable["name"] for e in c.get("env") or ())
            else {**c, "env": [*(c.get("env") or ()), variable]}
            for c in containers
        ]
        for field, containers in containers_by_field.items()
    }
    return {**pod_spec, **with_index, "hostname": hostname}


class JobTally(msgspec.Struct):
    """The pods of one Job, counted for one sync."""

    job: Json
    spec: ParsedJobSpec
    pods: Sequence[PodView]
    active: list[PodView]
    terminating: int
    #: Ended pods that the Job's status does not count yet.
    succeeded: list[PodView]
    failed: list[PodView]
    completed: set[int]

    @classmethod
    def of(cls, job: Json, spec: ParsedJobSpec, pods: Sequence[PodView]) -> "JobTally":
        tracked = [pod for pod in pods if TRACKING in pod.finalizers]
        return cls(
            job=job,
            spec=spec,
            pods=pods,
            active=[pod for pod in pods if pod.active],
            terminating=sum(pod.deleting and not pod.ended for pod in pods),
            succeeded=[pod for pod in tracked if pod.phase == "Succeeded"],
            failed=[pod for pod in tracked if failed(pod, spec)],
            completed=indexes((job.get("status") or {}).get("completedIndexes", "")),
        )

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.active)

    @property
    def failures(self) -> int:
        """Failed pods that count against the backoff limit."""
        return sum(apply_failure_policy(pod, self.spec.pod_failure_policy)[0] for pod in self.failed)

    def target(self, succeeded: int, active: int) -> int:
        """How many pods should be active."""
        if self.spec.needed_successes is None:
            return active if succeeded else self.spec.max_parallel
        return max(0, min(self.spec.needed_successes - succeeded, self.spec.max_parallel))

    def next_indexes(self) -> Iterator[int | None]:
        """Completion indexes of the pods to create next; None where the Job is not indexed."""
        if not self.spec.indexed:
            return repeat(None)
        taken = {index_of(pod) for pod in self.active} | self.completed
        if self.spec.replaces_only_failed:
            taken |= {index_of(pod) for pod in self.pods if pod.deleting and not pod.ended}
        return (index for index in range(self.spec.needed_successes or 0) if index not in taken)
