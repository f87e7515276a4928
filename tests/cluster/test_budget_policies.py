"""The admission policies of budgets as a real API server runs them."""

import secrets
import time
from contextlib import suppress

import pytest

from forebay.install.admission_policies import admission_policies
from tests.cluster.worlds import FOREBAY, install_budget_policies
from tests.rig import Rig, RigFailed
from tests.rig.binaries import policies_version

ADMISSION = f"/apis/admissionregistration.k8s.io/{policies_version()}"
USAGE = "forebay.dev/usage"
GATE = "forebay.dev/budget"


@pytest.fixture(scope="module")
def policed(own_rig):
    """A control plane with the policies, which it takes about a second to notice."""
    install_budget_policies(own_rig)
    yield own_rig
    for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        for each in admission_policies(policies_version()):
            with suppress(RigFailed):
                own_rig.call("DELETE", f"{ADMISSION}/{plural}/{each['metadata']['name']}")


@pytest.fixture
def namespace(policed):
    name = f"team-{secrets.token_hex(3)}"
    policed.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = {"metadata": {"name": "default"}}
    with suppress(RigFailed):  # where a controller manager was faster
        policed.call("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


def budget(rig: Rig, namespace, name="team-a", *, labels=None, selector=None, **spec):
    body = {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "selector": selector or {"matchLabels": {"team": "a"}},
            "quota": {"gpuHours": "1", "windowHours": 1},
            "enforcement": {"action": "Evict"},
            **spec,
        },
    }
    rig.call("POST", f"{FOREBAY}/namespaces/{namespace}/gpuworkloadbudgets", body)


def pod(rig: Rig, namespace, *, labels=None, resource="nvidia.com/gpu", **spec):
    """As the server would make it."""
    container = {"name": "main", "image": "work:1", "resources": {"limits": {resource: "1"}}}
    body = {
        "metadata": {"generateName": "p-", "labels": {"team": "a"} if labels is None else labels},
        "spec": {"containers": [container], **spec},
    }
    return rig.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", body)


def marks(found):
    gates = [each["name"] for each in found["spec"].get("schedulingGates", ())]
    return found["metadata"].get("finalizers", []), gates


def settled(rig, namespace, expected, **fields):
    """Policies and budgets are seen within moments, not at once."""
    deadline = time.monotonic() + 10
    found = marks(pod(rig, namespace, **fields))
    while found != expected and time.monotonic() < deadline:
        found = marks(pod(rig, namespace, **fields))
    return found


EXACT = {"labels": {"forebay.dev/accounting": "Exact"}, "accounting": "Exact"}
SPENT = {"labels": {"forebay.dev/exceeded": "true"}}


def test_pods_of_exact_budgets_are_marked_and_others_are_not(policed, namespace):
    budget(policed, namespace, **EXACT)
    assert settled(policed, namespace, ([USAGE], [])) == ([USAGE], [])
    assert marks(pod(policed, namespace, labels={"team": "b"})) == ([], [])
    assert marks(pod(policed, namespace, labels={})) == ([], [])
    assert marks(pod(policed, namespace, resource="amd.com/gpu")) == ([], [])


def test_pods_of_spent_budgets_wait_at_the_gate(policed, namespace):
    budget(policed, namespace, **SPENT)
    assert settled(policed, namespace, ([], [GATE])) == ([], [GATE])
    assert marks(pod(policed, namespace, schedulingGates=[{"name": "example.com/mine"}]))[1] == [
        "example.com/mine",
        GATE,
    ]
    assert marks(pod(policed, namespace, nodeName="n1")) == ([], [])


def test_two_budgets_mark_a_pod_once(policed, namespace):
    budget(policed, namespace, "one", **EXACT)
    labels = {**EXACT["labels"], **SPENT["labels"]}
    budget(policed, namespace, "two", labels=labels, accounting="Exact")
    assert settled(policed, namespace, ([USAGE], [GATE])) == ([USAGE], [GATE])


def test_a_budget_of_cores_looks_at_cores(policed, namespace):
    budget(policed, namespace, gpuResourceName="cpu", **SPENT)
    assert settled(policed, namespace, ([], [GATE]), resource="cpu") == ([], [GATE])
    assert marks(pod(policed, namespace)) == ([], [])


@pytest.mark.parametrize(
    ("expression", "labels", "held"),
    [
        ({"key": "team", "operator": "In", "values": ["a", "b"]}, {"team": "b"}, True),
        ({"key": "team", "operator": "In", "values": ["a", "b"]}, {"team": "c"}, False),
        ({"key": "team", "operator": "NotIn", "values": ["a"]}, {}, True),
        ({"key": "team", "operator": "NotIn", "values": ["a"]}, {"team": "a"}, False),
        ({"key": "team", "operator": "Exists"}, {"team": "x"}, True),
        ({"key": "team", "operator": "Exists"}, {}, False),
        ({"key": "team", "operator": "DoesNotExist"}, {}, True),
        ({"key": "team", "operator": "DoesNotExist"}, {"team": "x"}, False),
    ],
)
def test_selectors_mean_what_they_mean_elsewhere(policed, namespace, expression, labels, held):
    budget(policed, namespace, selector={"matchExpressions": [expression]}, **SPENT)
    everybody = {"matchLabels": {"probe": "yes"}}
    budget(policed, namespace, "probe", selector=everybody, **SPENT)
    assert settled(policed, namespace, ([], [GATE]), labels={"probe": "yes"}) == ([], [GATE])
    expected = ([], [GATE] if held else [])
    assert settled(policed, namespace, expected, labels=labels) == expected


def test_budgets_that_only_alert_hold_nobody(policed, namespace):
    budget(policed, namespace, "alert", enforcement={"action": "AlertOnly"}, **SPENT)
    budget(policed, namespace, "probe", selector={"matchLabels": {"probe": "yes"}}, **SPENT)
    assert settled(policed, namespace, ([], [GATE]), labels={"probe": "yes"}) == ([], [GATE])
    assert marks(pod(policed, namespace)) == ([], [])


def test_resources_of_the_whole_pod_count_too(policed, namespace):
    budget(policed, namespace, labels={"forebay.dev/exceeded": "true"}, gpuResourceName="cpu")
    whole = {"containers": [{"name": "main", "image": "work:1"}], "resources": {"limits": {"cpu": "1"}}}
    assert settled(policed, namespace, ([], [GATE]), **whole) == ([], [GATE])
    assert marks(pod(policed, namespace, containers=whole["containers"])) == ([], [])
