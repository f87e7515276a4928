"""The decoder of Pods and the indexes over them."""

import gc
import json
import weakref
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from forebay.api.names import BUDGET_GATE, PAUSE_REQUESTED_BY_ANNOTATION, USAGE_FINALIZER
from forebay.kube.decoders import LineSplitter, ObjectDecoder, UndecodableObject, decoder_for
from forebay.kube.index import Indexes
from forebay.kube.pod_indexes import BY_NODE, BY_OWNER, MARKED, PENDING_CLAIMS, PENDING_GPU, TOLD_BUT_BOUND, pod_indexes
from forebay.kube.pods import PODS, PodDecoder, _PodOnWire, changes_more_than_capacity
from forebay.kube.salvage import LATEST
from forebay.model.requirements import LabelOperator, Requirement, Toleration
from forebay.model.workloads import Owner, Phase

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def body(name="p", **changes) -> dict:
    """A running GPU pod as the API server sends it; `changes` are merged into its three parts."""
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-of-{name}",
        "resourceVersion": "17",
        "creationTimestamp": "2030-01-01T12:00:00Z",
        "labels": {"app": "train"},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    }
    spec = {
        "volumes": [{"name": f"kube-api-access-{name}"}],
        "containers": [
            {
                "name": "main",
                "ports": [{"containerPort": 80}, {"containerPort": 443, "hostPort": 443, "protocol": "TCP"}],
                "resources": {
                    "limits": {"nvidia.com/gpu": "2"},
                    "requests": {"cpu": "1500m", "memory": "4Gi", "nvidia.com/gpu": "2"},
                },
                "volumeMounts": [{"name": f"kube-api-access-{name}", "mountPath": "/var/run"}],
            }
        ],
        "nodeName": "n1",
        "schedulerName": "default-scheduler",
        "priority": 5,
    }
    status = {"phase": "Running"}
    parts = {"metadata": metadata, "spec": spec, "status": status}
    return {part: content | changes.get(part, {}) for part, content in parts.items()}


def read(pod: dict, decoder: ObjectDecoder | None = None):
    return (decoder or decoder_for(PODS)).object(json.dumps(pod).encode())


def test_every_field_of_a_pod_is_decoded():
    owner = {"kind": "Job", "name": "j", "uid": "uid-of-job", "controller": True}
    kubelet = {"kubernetes.io/config.mirror": "x", "forebay.dev/a": "b"}
    meta = {"deletionTimestamp": "2030-01-01T13:00:00Z", "ownerReferences": [owner], "annotations": kubelet}
    states = [
        {"state": {"terminated": {"startedAt": "2030-01-01T12:01:00Z", "finishedAt": "2030-01-01T12:59:00Z"}}},
        {"lastState": {}, "restartCount": 1},
    ]
    ended = read(
        body(metadata=meta | {"finalizers": ["f"]}, status={"phase": "Failed", "containerStatuses": states}),
    )
    assert msgspec.structs.asdict(ended) == {
        "namespace": "team",
        "name": "p",
        "uid": "uid-of-p",
        "resource_version": 17,
        "created": NOON,
        "shape": ended.shape,
        "phase": Phase.FAILED,
        "labels": {"app": "train"},
        "annotations": {"forebay.dev/a": "b"},
        "owner": Owner("Job", "j", "uid-of-job"),
        "node": "n1",
        "nominated_node": None,
        "deleted": NOON + timedelta(hours=1),
        "unschedulable_since": None,
        "unschedulable_message": None,
        "finalizers": ("f",),
        "started": NOON + timedelta(minutes=1),
        "finished": NOON + timedelta(minutes=59),
        "restarted": True,
        "mirror": True,
        "refusal": None,
        "scheduler_error_since": None,
        "capacity": None,
    }
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    waiting = read(
        body(
            spec={"nodeName": ""},
            status={"nominatedNodeName": "n2", "conditions": [why | {"lastTransitionTime": "2030-01-01T12:00:00Z"}]},
        )
    )
    assert (waiting.node, waiting.nominated_node, waiting.deleted, waiting.mirror) == (None, "n2", None, False)
    assert (waiting.unschedulable_since, waiting.unschedulable_message) == (NOON, "no room")
    assert (waiting.started, waiting.finished, waiting.restarted) == (None, None, False)


def test_why_a_pod_waits_is_read_from_its_condition_also_when_it_has_a_node_and_only_while_it_is_false():
    waits = {"type": "forebay.dev/Capacity", "status": "False", "reason": "NoOfferFits", "message": "None fits."}
    for spec in ({}, {"nodeName": ""}):
        told = read(body(spec=spec, status={"conditions": [waits]}))
        assert told.capacity == "NoOfferFits: None fits."
        assert read(body(spec=spec, status={"conditions": [waits | {"status": "True"}]})).capacity is None
        assert read(body(spec=spec, status={"conditions": [waits | {"type": "Ready"}]})).capacity is None


def test_a_new_condition_of_ours_is_no_change_that_matters_and_any_other_change_is():
    waits = {"type": "forebay.dev/Capacity", "status": "False", "reason": "NoOfferFits", "message": "None fits."}
    before = read(body(spec={"nodeName": ""}))
    told = read(body(spec={"nodeName": ""}, metadata={"resourceVersion": "18"}, status={"conditions": [waits]}))
    bound = read(body(metadata={"resourceVersion": "19"}, status={"conditions": [waits]}))

    assert not changes_more_than_capacity(before, told)
    assert changes_more_than_capacity(told, bound)
    assert changes_more_than_capacity(before, bound)
    assert changes_more_than_capacity(before, before), "a change of what is not decoded may matter to somebody"


@pytest.mark.parametrize(("status", "refusal"), [("True", "no claim"), ("False", None)])
def test_a_refusal_and_an_error_of_the_scheduler_are_decoded(status, refusal):
    conditions = [
        {"type": "forebay.dev/Refused", "status": status, "reason": "SchedulerRefuses", "message": "no claim"},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulerError",
            "message": "a bug",
            "lastTransitionTime": "2030-01-01T12:00:00Z",
        },
    ]
    waiting = read(body(spec={"nodeName": ""}, status={"conditions": conditions}))
    assert (waiting.refusal, waiting.scheduler_error_since, waiting.unschedulable_since) == (refusal, NOON, None)
    assert waiting.unschedulable_message == "a bug"


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError", "SchedulingGated"])
@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_only_what_the_scheduler_denies_now_counts(reason, status):
    at = "2030-01-01T12:00:00Z"
    said = {"type": "PodScheduled", "status": status, "reason": reason, "message": "why", "lastTransitionTime": at}
    seen = read(body(spec={"nodeName": ""}, status={"conditions": [said]}))
    denied = status == "False"
    assert seen.unschedulable_since == (NOON if denied and reason == "Unschedulable" else None)
    assert seen.scheduler_error_since == (NOON if denied and reason == "SchedulerError" else None)
    assert seen.unschedulable_message == ("why" if denied and reason != "SchedulingGated" else None)


def test_a_shape_has_everything_that_scheduling_depends_on():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    spec = {
        "initContainers": [
            {"resources": {"requests": {"cpu": "4"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        ],
        "nodeSelector": {"gpu": "h100"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": terms[0]}],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
                ]
            },
        },
        "tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "x", "value": "1", "tolerationSeconds": 300}],
        "schedulingGates": [{"name": "forebay.dev/budget"}],
        "overhead": {"cpu": "250m"},
    }
    shape = read(body(spec=spec)).shape
    assert dict(shape.requests) == {"cpu": 4250, "memory": 5 * 2**30, "nvidia.com/gpu": 2, "pods": 1}
    assert shape.node_selector == {"gpu": "h100"}
    wanted = Requirement("zone", LabelOperator.IN, ("a", "b"))
    assert shape.node_affinity[0].match_expressions == (wanted,)
    assert (shape.preferred_node_affinity[0].weight, shape.preferred_node_affinity[0].term.match_expressions) == (
        3,
        (wanted,),
    )
    assert shape.pod_anti_affinity[0].topology_key == "kubernetes.io/hostname"
    assert shape.pod_anti_affinity[0].selector.matches({"app": "train"})
    assert shape.tolerations == (Toleration("gpu", "Exists"), Toleration("x", "Equal", "1", "", 300))
    assert shape.priority == 5
    assert shape.scheduling_gates == ("forebay.dev/budget",)
    assert shape.host_ports == ((443, "TCP"),)


def test_a_pod_that_asks_for_nothing_has_the_plain_shape():
    pod = read(body(spec={"containers": [{"name": "c", "resources": {}}], "priority": None, "tolerations": None}))
    assert dict(pod.shape.requests) == {"pods": 1}
    assert pod.shape.node_affinity is None
    assert pod.shape.scheduler_name == "default-scheduler"
    assert pod.shape.priority == 0


def test_pods_of_one_template_share_their_common_parts():
    metadata = {
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}],
        "annotations": {"forebay.dev/queue": "a"},
        "finalizers": ["batch.kubernetes.io/job-tracking"],
    }
    decoder = decoder_for(PODS)
    one, two = (read(body(name, metadata={"name": name, **metadata}), decoder) for name in ("one", "two"))
    assert one.shape is two.shape
    assert one.labels is two.labels
    assert one.annotations is two.annotations
    assert one.owner is two.owner
    assert one.finalizers is two.finalizers
    assert one.node is two.node
    assert one.namespace is two.namespace
    assert one.owner == Owner("Job", "j", "u")
    assert one.finalizers == ("batch.kubernetes.io/job-tracking",)


def test_specs_with_the_same_meaning_share_one_shape():
    other = body("other")
    other["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 2, "memory": "4096Mi", "cpu": "1.5"}}
    decoder = decoder_for(PODS)
    assert read(other, decoder).shape is read(body(), decoder).shape


def test_pods_with_different_labels_share_one_shape():
    decoder = decoder_for(PODS)
    plain, indexed = read(body(), decoder), read(body(metadata={"labels": {"app": "train", "index": "7"}}), decoder)
    assert indexed.shape is plain.shape
    assert indexed.labels == {"app": "train", "index": "7"}


def test_only_annotations_that_forebay_reads_are_kept():
    annotations = {
        "forebay.dev/a": "1",
        "runpod.io/b": "2",
        "tgp.io/c": "3",
        "budget.zxuhan.dev/d": "4",
        "nodeprovisioner.compute.baseten.co/e": "5",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
    }
    others = {"kubectl.kubernetes.io/last-applied-configuration": "{}" * 1000, "not-forebay.dev/x": "y"}
    pod = read(body(metadata={"annotations": annotations | others}))
    assert pod.annotations == annotations
    assert not pod.mirror
    static = read(body(metadata={"annotations": {"kubernetes.io/config.mirror": "abc"}}))
    assert static.mirror
    assert static.annotations == {}


def test_an_owner_that_is_not_the_controller_is_none():
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]
    assert read(body(metadata={"ownerReferences": owners})).owner is None


def test_an_unschedulable_pod_has_the_time_and_message_of_its_condition():
    conditions = [
        {"type": "Initialized", "status": "True"},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
            "lastTransitionTime": "2030-01-01T12:00:00Z",
        },
    ]
    pod = read(body(spec={"nodeName": ""}, status={"phase": "Pending", "conditions": conditions}))
    assert (pod.node, pod.phase) == (None, Phase.PENDING)
    assert (pod.unschedulable_since, pod.unschedulable_message) == (NOON, "0/3 nodes are available")
    gated = [conditions[1] | {"reason": "SchedulingGated"}]
    waiting = read(body(spec={"nodeName": ""}, status={"phase": "Pending", "conditions": gated}))
    assert waiting.unschedulable_since is None


RAN = [
    {
        "state": {"running": {"startedAt": "2030-01-01T12:05:00Z"}},
        "lastState": {
            "terminated": {"startedAt": "2030-01-01T12:00:00Z", "finishedAt": "2030-01-01T12:04:00Z", "exitCode": 1}
        },
    },
    {"state": {"waiting": {"reason": "PodInitializing"}}, "lastState": {}},
]
ENDED = [
    {"state": {"terminated": {"startedAt": "2030-01-01T12:01:00Z", "finishedAt": "2030-01-01T12:30:00Z"}}},
    {"state": {"terminated": {"startedAt": "2030-01-01T12:00:00Z", "finishedAt": "2030-01-01T12:10:00Z"}}},
]


@pytest.mark.parametrize(
    ("phase", "statuses", "started", "finished"),
    [
        pytest.param("Running", RAN, NOON, None, id="the first start counts, across restarts, and it has not ended"),
        pytest.param("Succeeded", ENDED, NOON, NOON.replace(minute=30), id="ended with the last container"),
        pytest.param("Failed", None, None, None, id="evicted before any container ran"),
        pytest.param("Pending", [], None, None, id="not started"),
    ],
)
def test_when_a_gpu_pod_ran(phase, statuses, started, finished):
    pod = read(body(status={"phase": phase, "containerStatuses": statuses}))
    assert (pod.started, pod.finished) == (started, finished)


PLAIN = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}


def test_container_statuses_of_a_pod_without_gpu_are_not_even_decoded_for_an_informer():
    pod = read(body(spec=PLAIN, status={"containerStatuses": "unread"}), PodDecoder(timed=()))
    assert pod.started is None


def test_a_client_reads_when_any_pod_ran():
    assert read(body(spec=PLAIN, status={"containerStatuses": RAN})).started == NOON


def test_two_decoders_share_no_state():
    ours, theirs = PodDecoder(timed=()), PodDecoder(timed=())
    pod = body(spec=PLAIN, status={"containerStatuses": RAN})
    first = read(pod, ours)
    ours.read_times_of({"cpu"})
    assert (read(pod, ours).started, read(pod, theirs).started) == (NOON, None)
    assert read(pod, theirs) == first
    assert read(pod, theirs).shape is not first.shape


def test_a_new_phase_is_unknown_and_no_error():
    assert read(body(status={"phase": "Hibernating"})).phase is Phase.UNKNOWN


@pytest.mark.parametrize(
    "broken",
    [
        body(spec={"containers": [{"resources": {"requests": {"cpu": "a lot"}}}]}),
        body(spec={"nodeSelector": ["x"]}),
        body(metadata={"labels": {"app": 7}}),
        body(metadata={"creationTimestamp": "yesterday"}),
        body(metadata={"resourceVersion": "seventeen"}),
        body(spec={"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "zone a"}}}),
    ],
)
def test_an_undecodable_pod_is_an_error_each_time(broken):
    decoder = decoder_for(PODS)
    for _ in range(2):
        with pytest.raises(ValueError, match=r".+"):
            read(broken, decoder)


def test_a_page_with_undecodable_pods_gives_the_others_and_their_names():
    items = [body("a"), body("b", spec={"priority": "high"}), body("c", spec={"containers": 5})]
    page = {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "more"}, "items": items}
    meta, found = decoder_for(PODS).page(json.dumps(page).encode())
    good, *bad = found
    assert (meta.resource_version, meta.continue_token) == ("9", "more")
    assert good.name == "a"
    assert [(type(one), one.key, one.uid, one.resource_version) for one in bad] == [
        (UndecodableObject, ("team", name), f"uid-of-{name}", 17) for name in "bc"
    ]


def test_a_large_page_is_decoded_object_by_object():
    page = {"metadata": {"resourceVersion": "9"}, "items": [body("a"), body("b")]}
    _, found = ObjectDecoder(_PodOnWire, PodDecoder().build, large_page=10).page(json.dumps(page).encode())
    assert [pod.name for pod in found] == ["a", "b"]


class Page(bytearray):
    """Bytes that can be weakly referenced."""


def test_decoded_pods_do_not_keep_their_page_in_memory():
    decoder = PodDecoder()
    line = json.dumps({"type": "ADDED", "object": body(metadata={"annotations": {"forebay.dev/x": "y"}})}).encode()
    chunk = Page(line + b"\n")
    gone = weakref.ref(chunk)
    kept = list(decoder.events([(chunk, 0, len(chunk))]))
    del chunk
    gc.collect()
    assert kept[0][0].name == "p"
    assert gone() is None


def test_lines_are_complete_however_the_stream_is_split():
    text = b"".join(json.dumps({"line": number, "pad": "x" * number}).encode() + b"\n" for number in range(200))
    for size in (1, 7, 1000, len(text)):
        lines = LineSplitter()
        batches = [batch for at in range(0, len(text), size) for batch in lines.feed(text[at : at + size])]
        whole = [part[start:end] for batch in batches for part, start, end in batch]
        assert b"".join(whole) == text
        assert all(part.endswith(b"\n") for part in whole)


def test_the_indexes_follow_a_pod_through_its_life():
    indexes = Indexes(pod_indexes())
    owner = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "job", "controller": True}]}
    pending = read(body(metadata=owner, spec={"nodeName": ""}, status={"phase": "Pending"}))
    bound = msgspec.structs.replace(pending, node="n1", phase=Phase.RUNNING)
    indexes.change(pending.key, None, pending)
    assert indexes[PENDING_GPU].get(True) == (pending,)
    assert indexes[BY_NODE].get("n1") == ()
    assert indexes[BY_OWNER].get("job") == (pending,)
    indexes.change(pending.key, pending, bound)
    assert indexes[PENDING_GPU].get(True) == ()
    assert indexes[BY_NODE].get("n1") == (bound,)
    indexes.change(bound.key, bound, None)
    assert indexes[BY_NODE].get("n1") == indexes[BY_OWNER].get("job") == ()
    plain = msgspec.structs.replace(pending, shape=read(body(spec={"containers": []})).shape)
    indexes.change(plain.key, None, plain)
    assert indexes[PENDING_GPU].get(True) == ()


def test_pending_pods_that_ask_for_devices_by_claims_alone_are_indexed_apart():
    def indexed(**spec):
        pending = read(body(spec={"nodeName": "", **spec}, status={"phase": "Pending"}))
        indexes = Indexes(pod_indexes())
        indexes.change(pending.key, None, pending)
        return [name for name in (PENDING_GPU, PENDING_CLAIMS) if indexes[name].get(True)]

    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}
    assert indexed(**claims) == [PENDING_GPU], "it requests GPUs as well"
    assert indexed(containers=[], **claims) == [PENDING_CLAIMS]
    assert indexed(containers=[]) == []


def test_bound_pods_that_still_say_why_they_waited_are_found_until_they_end():
    told = msgspec.structs.replace(read(body()), node="n1", phase=Phase.RUNNING, capacity="NoOfferFits")
    cases = [
        (told, 1),
        (msgspec.structs.replace(told, node=None), 0),
        (msgspec.structs.replace(told, capacity=None), 0),
        (msgspec.structs.replace(told, phase=Phase.SUCCEEDED), 0),
    ]
    for pod, found in cases:
        indexes = Indexes(pod_indexes())
        indexes.change(pod.key, None, pod)
        assert len(indexes[TOLD_BUT_BOUND].get(True)) == found


def test_the_gpu_resources_are_configurable():
    containers = [{"resources": {"requests": {"nvidia.com/mig-1g.5gb": "1"}}}]
    sliced = read(body(spec={"nodeName": "", "containers": containers}, status={"phase": "Pending"}))
    named = frozenset({"nvidia.com/mig-1g.5gb"})
    for resources, found in ((frozenset({"amd.com/gpu"}), ()), (None, (sliced,)), (named, (sliced,))):
        indexes = Indexes(pod_indexes(resources))
        indexes.change(sliced.key, None, sliced)
        assert indexes[PENDING_GPU].get(True) == found


DIGITS = "9" * 5000
BOUND = {"nodeName": "n1"}


@pytest.mark.parametrize(
    ("broken", "gpus"),
    [
        (body(spec=BOUND | {"affinity": {"nodeAffinity": 5}}), 2),
        (body(spec=BOUND | {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 8, "cpu": DIGITS}}}]}), 8),
        (body(spec=BOUND | {"containers": [{"resources": {"limits": {"nvidia.com/gpu": DIGITS}}}]}), 1),
        (body(spec=BOUND, metadata={"deletionTimestamp": "11531-01-01T00:00:00Z"}), 2),
        (body(spec=BOUND, metadata={"labels": {"app": "train", "odd": 7}}), 2),
        (body(spec=BOUND, status={"containerStatuses": "none"}), 2),
    ],
    ids=["affinity", "digits", "digits of GPUs", "deletion", "label", "statuses"],
)
def test_a_bound_pod_that_does_not_decode_still_holds_its_node_and_uses_its_gpus(broken, gpus):
    page = {"metadata": {"resourceVersion": "9"}, "items": [body("a"), broken]}
    event = json.dumps({"type": "ADDED", "object": broken}).encode() + b"\n"
    _, (_, listed) = decoder_for(PODS).page(json.dumps(page).encode())
    ((watched,),) = decoder_for(PODS).events([(event, 0, len(event))])

    assert listed.error
    assert watched.salvaged == listed.salvaged
    pod = listed.salvaged
    assert (pod.key, pod.uid, pod.node, int(pod.shape.gpus())) == (("team", "p"), "uid-of-p", "n1", gpus)
    assert pod.labels == {"app": "train"}
    assert pod.started is not None
    assert pod.created == read(body("a")).created
    assert pod.occupies_node


@pytest.mark.parametrize(
    ("deleted", "told"),
    [(None, None), ("2030-01-01T13:00:00Z", datetime(2030, 1, 1, 13, tzinfo=UTC)), ("11531-01-01T00:00:00Z", LATEST)],
)
def test_of_a_bound_pod_that_does_not_decode_it_is_known_when_it_is_to_go(deleted, told):
    broken = body(spec=BOUND | {"affinity": {"nodeAffinity": 5}}, metadata={"deletionTimestamp": deleted})
    _, (found,) = decoder_for(PODS).page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": [broken]}).encode())

    assert found.salvaged.deleted == told


def test_of_a_pending_pod_that_does_not_decode_nothing_is_counted():
    broken = body(spec={"priority": "high", "nodeName": ""}, status={"phase": "Pending"})
    _, (found,) = decoder_for(PODS).page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": [broken]}).encode())

    assert found.salvaged is None


def test_a_deletion_at_the_end_of_all_years_leaves_room_for_later_dates():
    deleted = read(body(metadata={"deletionTimestamp": "9999-12-31T23:59:59Z"})).deleted

    assert deleted + timedelta(days=365_000 // 2) > deleted


@pytest.mark.parametrize(
    ("changes", "marks"),
    [
        ({"finalizers": (USAGE_FINALIZER, "x/other")}, {USAGE_FINALIZER}),
        ({"annotations": {PAUSE_REQUESTED_BY_ANNOTATION: "quota"}}, {PAUSE_REQUESTED_BY_ANNOTATION}),
        ({"finalizers": ("x/other",), "annotations": {"a": "b"}}, set()),
        ({}, set()),
    ],
    ids=["finalizer", "asked to pause", "of others", "none"],
)
def test_pods_are_found_by_the_one_mark_that_they_have(changes, marks):
    plain = msgspec.structs.replace(read(body()), finalizers=(), annotations={})
    marked = msgspec.structs.replace(plain, **changes)
    indexes = Indexes(pod_indexes())
    indexes.change(marked.key, None, marked)

    known = (USAGE_FINALIZER, BUDGET_GATE, PAUSE_REQUESTED_BY_ANNOTATION)
    assert {mark for mark in known if indexes[MARKED].get(mark)} == marks


def test_a_pod_behind_the_gate_of_budgets_is_found_by_it():
    gated = read(body(spec={"schedulingGates": [{"name": BUDGET_GATE}]}))
    indexes = Indexes(pod_indexes())
    indexes.change(gated.key, None, gated)

    assert indexes[MARKED].get(BUDGET_GATE) == (gated,)
