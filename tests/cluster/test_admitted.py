"""The law of input: nothing that a real API server admits breaks a tick or hides from accounting."""

import json
import secrets
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from forebay.api.codec import decode
from forebay.api.gpu_node_pool import GPU_NODE_POOL
from forebay.api.gpu_workload_budget import GPU_WORKLOAD_BUDGET
from forebay.budgets.accounts import Accounts
from forebay.kube.decoders import UndecodableObject, decoder_for
from forebay.kube.nodes import NODES
from forebay.kube.own_kinds import GPU_INSTANCES
from forebay.kube.pods import PodDecoder
from forebay.model.nodes import Node
from forebay.model.workloads import POD_COUNT
from forebay.reconcile.snapshot import BudgetState, Snapshot
from forebay.reconcile.tick import tick
from tests.rig import RigFailed

NOW = datetime(2030, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def team(own_rig):
    name = f"team-{secrets.token_hex(3)}"
    own_rig.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    own_rig.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    return f"/namespaces/{name}"


def admitted(rig, path, body):
    """The object as the server would store it; None where the server refuses it."""
    try:
        return rig.call("POST", f"{path}?dryRun=All", body)
    except RigFailed:
        return None


# Not beyond e400: with more the API server itself computes for minutes.
EXPONENTS = st.builds("{}{}{}".format, st.sampled_from("eE"), st.sampled_from(["", "+", "-"]), st.integers(0, 400))
SUFFIXES = st.sampled_from(["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
LONG = st.sampled_from(["9" * 5000, "0." + "1" * 5000])
NUMBERS = st.from_regex(r"[0-9]{1,24}(\.[0-9]{0,24})?", fullmatch=True) | LONG
QUANTITIES = st.builds(str.__add__, NUMBERS, SUFFIXES | EXPONENTS) | st.sampled_from(["1e104", "18446744073709551624"])
REQUESTS = st.fixed_dictionaries({"cpu": QUANTITIES, GPU: QUANTITIES | st.integers(0, 16).map(str)})
DOLLARS = st.none() | st.sampled_from([1, 2**63 - 1, "999999999.999999"])
TEXTS = st.sampled_from(["", "a", "A.b_c-1", "x" * 63, "9007199254740993", "-1"])
KEYS = st.sampled_from(["team", "kubernetes.io/hostname", "example.com/" + "k" * 63, "node.kubernetes.io/not-ready"])
REQUIREMENTS = st.fixed_dictionaries(
    {
        "key": KEYS,
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        "values": st.lists(TEXTS, max_size=2),
    }
)
SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(KEYS, TEXTS, max_size=2),
        "matchExpressions": st.lists(REQUIREMENTS, max_size=2),
    },
)
TOLERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "key": KEYS,
        "operator": st.sampled_from(["", "Exists", "Equal"]),
        "value": TEXTS,
        "effect": st.sampled_from(["", "NoSchedule", "NoExecute", "PreferNoSchedule"]),
        "tolerationSeconds": st.integers(-(2**63), 2**63 - 1),
    },
)
TERMS = st.fixed_dictionaries({"topologyKey": KEYS}, optional={"labelSelector": SELECTORS})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITIES = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.fixed_dictionaries(
            {
                REQUIRED: st.fixed_dictionaries(
                    {
                        "nodeSelectorTerms": st.lists(
                            st.fixed_dictionaries({"matchExpressions": st.lists(REQUIREMENTS, max_size=2)}),
                            min_size=1,
                            max_size=2,
                        )
                    }
                )
            }
        ),
        "podAffinity": st.fixed_dictionaries({REQUIRED: st.lists(TERMS, max_size=2)}),
        "podAntiAffinity": st.fixed_dictionaries({REQUIRED: st.lists(TERMS, max_size=2)}),
    },
)
SPREADS = st.fixed_dictionaries(
    {
        "topologyKey": KEYS,
        "maxSkew": st.integers(1, 2**31 - 1),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={"labelSelector": SELECTORS, "minDomains": st.integers(1, 2**31 - 1)},
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "affinity": AFFINITIES,
        "tolerations": st.lists(TOLERATIONS, max_size=3),
        "nodeSelector": st.dictionaries(KEYS, TEXTS, max_size=2),
        "topologySpreadConstraints": st.lists(SPREADS, max_size=2),
        "terminationGracePeriodSeconds": st.integers(0, 2**63 - 1),
        "schedulerName": st.sampled_from(["default-scheduler", "x\x1b[2J", "other"]),
        "hostNetwork": st.booleans(),
    },
)


@pytest.mark.law
@given(REQUESTS, SPECS, st.dictionaries(KEYS, TEXTS))
def test_no_pod_that_is_admitted_breaks_a_tick_or_hides(own_rig, team, requests, spec, labels):
    gpus = requests[GPU]
    resources = {"requests": requests, "limits": {GPU: gpus}}
    container = {"name": "main", "image": "work:1", "resources": resources}
    body = {"metadata": {"name": "train", "labels": labels}, "spec": {**spec, "containers": [container]}}
    stored = admitted(own_rig, f"/api/v1{team}/pods", body)
    event(f"admitted: {stored is not None}")
    if stored is None:
        return
    for node in (None, "n1"):
        seen = json.loads(json.dumps(stored))
        seen["metadata"]["resourceVersion"] = "7"
        if node is None:
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            seen["status"]["conditions"] = [condition | {"lastTransitionTime": "2029-12-31T00:00:00Z"}]
        else:
            seen["spec"]["nodeName"] = node
            seen["status"] = {"phase": "Running", "startTime": "2029-12-31T00:00:00Z"}
        page = {"metadata": {"resourceVersion": "9"}, "items": [seen]}
        _, (pod,) = PodDecoder().page(json.dumps(page).encode())
        pod = pod.salvaged if isinstance(pod, UndecodableObject) else pod
        if node is None:
            result = tick(Snapshot(now=NOW, pending=() if pod is None else (pod,)))
            assert result.errors == {}
        else:
            assert pod.occupies_node
            if gpus.isdecimal() and Decimal(gpus) < 2**63:
                assert int(pod.shape.gpus()) == int(gpus)
            assert pod.shape.requests.amount(POD_COUNT) == 1


@pytest.mark.law
@given(QUANTITIES | st.integers(1, 2**63 - 1), DOLLARS)
def test_no_budget_that_is_admitted_breaks_a_tick(own_rig, team, hours, usd):
    quota = {"gpuHours": hours, "windowHours": 24} | ({} if usd is None else {"usd": usd})
    body = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": "team-a"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "quota": quota, "enforcement": {"action": "Evict"}},
    }
    stored = admitted(own_rig, f"/apis/forebay.dev/v1alpha1{team}/gpuworkloadbudgets", body)
    if stored is None:
        return
    budget = decode(GPU_WORKLOAD_BUDGET, json.dumps(stored).encode())
    accounts = Accounts()
    accounts.open(budget, NOW)
    state = BudgetState(accounts=accounts.frozen())

    result = tick(Snapshot(now=NOW, budgets=(budget,), budget_state=state))

    assert result.errors == {}
    (report,) = result.decisions
    status = {"observedGeneration": 1, "conditions": []} | json.loads(json.dumps(report.figures, default=str))
    assert all(len(str(value)) <= 64 for value in status.values())


PARTS = st.builds("{}{}".format, st.integers(0, 9_999_999), st.sampled_from(["ms", "s", "m", "h"]))
SPANS = st.lists(PARTS, min_size=1, max_size=3).map("".join)
SCHEDULES = st.sampled_from(["0 0 31 2 *", "@daily", "* * * * *", "0 9 * * 1-5", "61 x * * *", "0 0 29 2 *"])
DISRUPTIONS = st.fixed_dictionaries(
    {
        "consolidateAfter": SPANS,
        "expireAfter": SPANS,
        "budgets": st.lists(st.fixed_dictionaries({"nodes": st.just(1), "schedule": SCHEDULES, "duration": SPANS})),
    }
)


@pytest.mark.law
@given(DISRUPTIONS)
def test_no_pool_that_is_admitted_breaks_a_tick(own_rig, team, disruption):
    body = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": "pool"},
        "spec": {"nodeClassRef": {"name": "none"}, "disruption": disruption},
    }
    stored = admitted(own_rig, f"/apis/forebay.dev/v1alpha1{team}/gpunodepools", body)
    if stored is not None:
        pool = decode(GPU_NODE_POOL, json.dumps(stored).encode())
        assert tick(Snapshot(now=NOW, pools=(pool,))).errors == {}


def paged(decoder, stored):
    """The object as an informer would decode it."""
    stored = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "7"}}
    _, (found,) = decoder.page(json.dumps({"metadata": {"resourceVersion": "9"}, "items": [stored]}).encode())
    return found


NODE_TAINTS = st.fixed_dictionaries(
    {"key": KEYS, "effect": st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])},
    optional={"value": TEXTS, "timeAdded": st.sampled_from(["2029-12-31T00:00:00Z", "0001-01-01T00:00:00Z", None])},
)
CONDITIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["Ready", "MemoryPressure", "Odd"]), "status": st.sampled_from(["True", "False", "x"])},
    optional={"lastTransitionTime": st.sampled_from(["2029-12-31T00:00:00Z", None]), "reason": TEXTS},
)
NODE_STATUSES = st.fixed_dictionaries(
    {"capacity": REQUESTS, "allocatable": REQUESTS},
    optional={"conditions": st.lists(CONDITIONS, max_size=2), "addresses": st.just([{"type": "Odd", "address": ""}])},
)


@pytest.mark.law
@given(st.dictionaries(KEYS, TEXTS), st.lists(NODE_TAINTS, max_size=3), NODE_STATUSES, st.booleans())
def test_no_node_that_is_admitted_breaks_a_tick(own_rig, labels, taints, status, cordoned):
    spec = {"taints": taints, "unschedulable": cordoned, "providerID": "odd://x"}
    body = {"metadata": {"name": "odd.node", "labels": labels}, "spec": spec, "status": status}
    stored = admitted(own_rig, "/api/v1/nodes", body)
    event(f"admitted: {stored is not None}")
    if stored is None:
        return
    node = paged(decoder_for(NODES), stored)
    node = node.salvaged if isinstance(node, UndecodableObject) else node
    assert isinstance(node, Node), "a node that cannot be read would count as gone, and its machine with it"
    assert tick(Snapshot(now=NOW, nodes={node.name: node})).errors == {}


TIMES = st.sampled_from(["2029-12-31T00:00:00Z", "0001-01-01T00:00:00Z", "2999-01-01T00:00:00Z"])
CONTAINER_STATES = st.one_of(
    st.fixed_dictionaries({"running": st.fixed_dictionaries({}, optional={"startedAt": TIMES})}),
    st.fixed_dictionaries(
        {
            "terminated": st.fixed_dictionaries(
                {"exitCode": st.integers(-(2**31), 2**31 - 1)}, optional={"startedAt": TIMES, "finishedAt": TIMES}
            )
        }
    ),
    st.just({"waiting": {"reason": "x" * 300}}),
    st.just({}),
)
CONTAINER_STATUSES = st.fixed_dictionaries(
    {"name": st.just("main"), "image": TEXTS, "imageID": TEXTS, "ready": st.booleans(), "restartCount": st.just(-1)},
    optional={"state": CONTAINER_STATES, "lastState": CONTAINER_STATES},
)
POD_CONDITIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["PodScheduled", "forebay.dev/Refused", "forebay.dev/Capacity", "DisruptionTarget"]),
        "status": st.sampled_from(["True", "False", "Unknown"]),
    },
    optional={"reason": st.sampled_from(["Unschedulable", "SchedulerError", ""]), "lastTransitionTime": TIMES},
)
POD_STATUSES = st.fixed_dictionaries(
    {"phase": st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Unknown"])},
    optional={
        "startTime": TIMES,
        "containerStatuses": st.lists(CONTAINER_STATUSES, max_size=1),
        "conditions": st.lists(POD_CONDITIONS, max_size=3, unique_by=lambda each: each["type"]),
        "nominatedNodeName": st.sampled_from(["", "n1", "none.such"]),
    },
)


@pytest.mark.law
@given(POD_STATUSES)
def test_no_pod_status_that_is_admitted_breaks_a_tick_or_hides_the_pod(own_rig, team, status):
    path = f"/api/v1{team}/pods"
    container = {"name": "main", "image": "work:1", "resources": {"limits": {GPU: "3"}}}
    stored = admitted(own_rig, path, {"metadata": {"name": "odd"}, "spec": {"containers": [container]}})
    for node in (None, "n1"):
        # The API server stores a status as it is given: what it checks are transitions from the one before.
        seen = {**stored, "status": status, "spec": {**stored["spec"], **({} if node is None else {"nodeName": node})}}
        pod = paged(PodDecoder(), seen)
        pod = pod.salvaged if isinstance(pod, UndecodableObject) else pod
        assert int(pod.shape.gpus()) == 3
        assert tick(Snapshot(now=NOW, pending=() if node else (pod,))).errors == {}
        if status["phase"] not in {"Succeeded", "Failed"}:
            assert pod.occupies_node


PRICES = st.none() | st.sampled_from([1, "0", "999999999.999999", "0.000001"])
DURATIONS = st.none() | SPANS
INSTANCES = st.fixed_dictionaries(
    {
        "provider": st.sampled_from(["webhook", "simulated", "none-such"]),
        "purpose": st.sampled_from(["Pods", "Static", "Group", "Adopted"]),
        "hourlyPrice": PRICES,
        "billing": st.fixed_dictionaries({}, optional={"minimum": SPANS, "increment": SPANS}),
        "maxRunTime": DURATIONS,
        "offer": st.fixed_dictionaries({"instanceType": TEXTS, "gpuCount": st.integers(0, 2**31 - 1)}),
        "node": st.none()
        | st.fixed_dictionaries(
            {"name": st.sampled_from(["n1", "a.b"]), "allocatable": REQUESTS, "taints": st.just([])}
        ),
        "poolRef": st.none() | st.just({"namespace": "none", "name": "such"}),
        "templateHash": st.none() | TEXTS,
    }
)


@pytest.mark.law
@given(INSTANCES, st.sampled_from([None, "Requested", "Launched", "Ready", "Draining", "Gone"]), TIMES)
def test_no_gpu_instance_that_is_admitted_breaks_a_tick(own_rig, spec, state, time):
    body = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUInstance",
        "metadata": {"name": "odd"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    stored = admitted(own_rig, "/apis/forebay.dev/v1alpha1/gpuinstances", body)
    event(f"admitted: {stored is not None}")
    if stored is None:
        return
    if state is not None:
        stored["status"] = {"state": state, "since": time, "billedFrom": time, "deadline": time, "nodeName": "n1"}
    record = paged(decoder_for(GPU_INSTANCES), stored)
    assert not isinstance(record, UndecodableObject)
    assert tick(Snapshot(now=NOW, records=(record,))).errors == {}
