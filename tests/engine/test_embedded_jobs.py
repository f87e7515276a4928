"""Jobs of the embedded cluster, from their first pod to their final condition."""

import pytest

from forebay.embedded.api import kinds
from tests.engine.embedded_world import World, passing

TRACKING = "batch.kubernetes.io/job-tracking"


def conditions(job):
    return [(c["type"], c["status"], c["reason"]) for c in job["status"].get("conditions", ())]


async def test_a_job_of_three_runs_to_completion():
    async with World() as world:
        world.node("only")
        world.job("train", completions=3, parallelism=2, does={"run-time": "20s"})
        await passing(5)
        status = world.the_job("train")["status"]
        assert (status["active"], status["ready"], status["terminating"]) == (2, 2, 0)
        assert all(pod["metadata"]["finalizers"] == [TRACKING] for pod in world.pods("train"))

        await passing(45)
        job = world.the_job("train")
        assert job["status"]["succeeded"] == 3
        assert "active" not in job["status"]
        assert job["status"]["uncountedTerminatedPods"] == {}
        assert conditions(job) == [
            ("SuccessCriteriaMet", "True", "CompletionsReached"),
            ("Complete", "True", "CompletionsReached"),
        ]
        assert job["status"]["completionTime"] > job["status"]["startTime"]
        assert not any("finalizers" in pod["metadata"] for pod in world.pods("train"))
        assert len(world.events("train", "SuccessfulCreate")) == 3
        assert world.events("train", "Completed") == ["Job completed"]


async def test_pods_of_a_job_carry_its_labels_owner_and_finalizer():
    async with World() as world:
        job = world.job("train")
        await passing(1)
        [pod] = world.pods("train")
        uid = job["metadata"]["uid"]
        assert pod["metadata"]["labels"] == {
            "batch.kubernetes.io/controller-uid": uid,
            "batch.kubernetes.io/job-name": "train",
            "controller-uid": uid,
            "job-name": "train",
        }
        assert pod["metadata"]["name"].startswith("train-")
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Job", uid, True)


async def test_an_indexed_job_gives_every_index_one_success():
    async with World() as world:
        world.node("only")
        world.job("shards", completions=5, parallelism=3, completionMode="Indexed", does={"run-time": "10s"})
        await passing(1)
        first = world.pods("shards")[0]
        assert first["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] == "0"
        assert first["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "0"
        assert first["metadata"]["name"].startswith("shards-0-")
        assert first["spec"]["hostname"] == "shards-0"
        [variable] = first["spec"]["containers"][0]["env"]
        assert variable["name"] == "JOB_COMPLETION_INDEX"
        await passing(13)
        assert world.the_job("shards")["status"]["completedIndexes"] == "0-2"
        await passing(20)
        status = world.the_job("shards")["status"]
        assert (status["completedIndexes"], status["succeeded"]) == ("0-4", 5)
        assert conditions(world.the_job("shards"))[-1][0] == "Complete"


async def test_failures_are_retried_with_growing_backoff_up_to_the_limit():
    async with World() as world:
        world.node("only")
        world.job("broken", backoffLimit=2, does={"run-time": "1s", "exit-code": "1"})
        starts = []
        world.store.subscribe(
            kinds.POD_KIND, lambda change: starts.append(seconds(change.new)) if change.type == "ADDED" else None
        )
        await passing(120)
        job = world.the_job("broken")
        assert job["status"]["failed"] == 3
        assert conditions(job) == [
            ("FailureTarget", "True", "BackoffLimitExceeded"),
            ("Failed", "True", "BackoffLimitExceeded"),
        ]
        assert world.events("broken", "BackoffLimitExceeded") == ["Job has reached the specified backoff limit"]
        first, second, third = starts
        # Each pod runs for two seconds; the real controller waits 10 s, then 20 s, after its end.
        assert (second - first, third - second) == (12, 22)


def seconds(pod):
    minutes, rest = pod["metadata"]["creationTimestamp"].removesuffix("Z").split(":")[-2:]
    return int(minutes) * 60 + int(rest)


async def test_containers_restarted_in_place_count_against_the_limit():
    async with World() as world:
        world.node("only")
        world.job("broken", backoffLimit=2, restart="OnFailure", does={"run-time": "1s", "exit-code": "1"})
        await passing(120)
        assert conditions(world.the_job("broken"))[-1] == ("Failed", "True", "BackoffLimitExceeded")
        assert world.pods("broken") == []


async def test_a_suspended_job_deletes_its_pods_and_its_start_time_is_reset():
    async with World() as world:
        world.node("only")
        world.job("train", parallelism=2, completions=2, does={"run-time": "1h"})
        await passing(10)
        world.update(kinds.JOB_KIND, "train", lambda job: job["spec"].update(suspend=True))
        await passing(5)
        status = world.the_job("train")["status"]
        assert world.pods("train") == []
        assert conditions(world.the_job("train")) == [("Suspended", "True", "JobSuspended")]
        assert "startTime" not in status
        assert "failed" not in status
        await passing(60)
        world.update(kinds.JOB_KIND, "train", lambda job: job["spec"].update(suspend=False))
        await passing(5)
        status = world.the_job("train")["status"]
        assert conditions(world.the_job("train")) == [("Suspended", "False", "JobResumed")]
        assert (status["active"], status["startTime"]) == (2, "2030-01-01T00:01:15Z")
        assert world.events("train", "Suspended") == ["Job suspended"]
        assert world.events("train", "Resumed") == ["Job resumed"]


async def test_a_job_created_suspended_creates_no_pods():
    async with World() as world:
        world.job("later", suspend=True)
        await passing(5)
        assert world.pods("later") == []
        assert conditions(world.the_job("later")) == [("Suspended", "True", "JobSuspended")]


async def test_a_job_past_its_deadline_fails_and_its_pods_are_deleted():
    async with World() as world:
        world.node("only")
        world.job("slow", activeDeadlineSeconds=30, does={"run-time": "1h", "stop-delay": "5s"})
        await passing(32)
        job = world.the_job("slow")
        assert conditions(job) == [("FailureTarget", "True", "DeadlineExceeded")]
        assert job["status"]["terminating"] == 1
        await passing(10)
        assert conditions(world.the_job("slow"))[-1] == ("Failed", "True", "DeadlineExceeded")
        assert world.the_job("slow")["status"]["failed"] == 1
        assert world.pods("slow") == []


async def test_a_finished_job_is_deleted_after_its_ttl():
    async with World() as world:
        world.node("only")
        world.job("short", ttlSecondsAfterFinished=60, does={"run-time": "1s"})
        await passing(30)
        assert conditions(world.the_job("short"))[-1][0] == "Complete"
        await passing(60)
        assert world.store.list(kinds.JOB_KIND) == []
        assert world.pods() == []


POLICIES = {
    "a code that fails the Job": (
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        ("Failed", "True", "PodFailurePolicy"),
        1,
    ),
    "a code that is not among those to ignore": (
        {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [42]}},
        ("Failed", "True", "BackoffLimitExceeded"),
        1,
    ),
    "a code that merely counts": (
        {"action": "Count", "onExitCodes": {"operator": "In", "values": [42]}},
        ("Failed", "True", "BackoffLimitExceeded"),
        1,
    ),
}


@pytest.mark.parametrize("story", POLICIES, ids=str)
async def test_a_failure_policy_by_exit_codes(story):
    rule, outcome, failed = POLICIES[story]
    async with World() as world:
        world.node("only")
        policy = {"rules": [rule]}
        world.job("judged", backoffLimit=0, podFailurePolicy=policy, does={"run-time": "1s", "exit-code": "42"})
        await passing(60)
        job = world.the_job("judged")
        assert conditions(job)[-1] == outcome
        assert job["status"]["failed"] == failed
        if rule["action"] == "FailJob":
            [pod] = world.pods("judged")
            assert job["status"]["conditions"][-1]["message"] == (
                f"Container main for pod default/{pod['metadata']['name']} failed with exit code 42 "
                "matching FailJob rule at index 0"
            )


async def test_an_evicted_pod_may_be_ignored_by_policy():
    async with World() as world:
        world.node("only")
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        world.job("train", backoffLimit=0, podFailurePolicy={"rules": [rule]}, does={"run-time": "40s"})
        await passing(5)
        world.update(
            kinds.NODE_KIND, "only", lambda n: n["spec"].update(taints=[{"key": "reclaimed", "effect": "NoExecute"}])
        )
        await passing(3)
        world.update(kinds.NODE_KIND, "only", lambda n: n["spec"].update(taints=[]))
        await passing(60)
        job = world.the_job("train")
        assert conditions(job)[-1][0] == "Complete"
        assert "failed" not in job["status"]


@pytest.mark.parametrize(("policy", "at_once"), [("TerminatingOrFailed", 2), ("Failed", 1)])
async def test_a_deleted_pod_is_replaced_at_once_or_when_it_has_ended(policy, at_once):
    async with World() as world:
        world.node("only")
        world.job("train", podReplacementPolicy=policy, does={"run-time": "1h", "stop-delay": "25s"})
        await passing(5)
        [pod] = world.pods("train")
        world.delete(kinds.POD_KIND, pod["metadata"]["name"])
        await passing(15)
        assert len(world.pods("train")) == at_once
        await passing(30)
        assert len(world.pods("train")) == 1
        assert world.the_job("train")["status"]["failed"] == 1


async def test_less_parallelism_deletes_the_surplus_without_counting_it():
    async with World() as world:
        world.node("only")
        world.job("wide", completions=10, parallelism=5, does={"run-time": "1h"})
        await passing(5)
        world.update(kinds.JOB_KIND, "wide", lambda job: job["spec"].update(parallelism=2))
        await passing(5)
        status = world.the_job("wide")["status"]
        assert (status["active"], len(world.pods("wide"))) == (2, 2)
        assert "failed" not in status


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_deleting_a_job_removes_the_tracking_finalizer_of_its_pods(propagation):
    async with World() as world:
        world.node("only")
        world.job("train", does={"run-time": "1h"})
        await passing(5)
        world.delete(kinds.JOB_KIND, "train", propagation=propagation)
        await passing(5)
        left = world.pods()
        assert len(left) == (1 if propagation == "Orphan" else 0)
        assert not any("finalizers" in pod["metadata"] for pod in left)


async def test_pods_whose_creation_is_refused_are_tried_again():
    async with World() as world:
        world.node("only")
        spec = {"restartPolicy": "Never", "priorityClassName": "absent", "containers": [{"name": "a", "image": "b"}]}
        world.store.create(kinds.JOB_KIND, {"metadata": {"name": "early"}, "spec": {"template": {"spec": spec}}})
        await passing(5)
        messages = world.events("early", "FailedCreate")
        assert messages
        assert all(message.startswith("Error creating: ") and "absent" in message for message in messages)
        world.store.create(kinds.PRIORITY_CLASS_KIND, {"metadata": {"name": "absent"}, "value": 1})
        await passing(60)
        assert conditions(world.the_job("early"))[-1][0] == "Complete"


async def test_an_unsupported_job_gets_a_warning_event():
    async with World() as world:
        world.job("modern", completionMode="Indexed", completions=2, backoffLimitPerIndex=1)
        await passing(5)
        assert world.pods("modern") == []
        assert world.events("modern", "FailedSync") == [
            "spec.backoffLimitPerIndex is not implemented by the embedded Job controller"
        ]


async def test_a_job_managed_by_another_controller_is_not_touched():
    async with World() as world:
        world.job("theirs", managedBy="example.com/operator")
        await passing(5)
        assert world.pods("theirs") == []
        assert world.the_job("theirs")["status"] == {}
