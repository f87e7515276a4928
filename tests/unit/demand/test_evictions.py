"""PodDisruptionBudgets, read and asked before pods move."""

import json

import pytest

from forebay.demand.evictions import eviction_refused
from forebay.kube.decoders import decoder_for
from forebay.kube.pod_disruption_budgets import POD_DISRUPTION_BUDGETS
from tests.unit.demand.builders import running

META = {"name": "keep", "namespace": "default", "uid": "u", "resourceVersion": "3", "generation": 2}
WEB = {"matchLabels": {"app": "web"}}


def budget(allowed, selector=WEB, *, observed=2, **meta):
    return decoder_for(POD_DISRUPTION_BUDGETS).object(
        json.dumps(
            {
                "metadata": {**META, "creationTimestamp": "2030-01-01T00:00:00Z", **meta},
                "spec": {"minAvailable": 1} | ({} if selector is None else {"selector": selector}),
                "status": {"disruptionsAllowed": allowed, "observedGeneration": observed},
            }
        ).encode()
    )


def pods(*apps):
    return [running(f"{app}-{index}", labels={"app": app}) for index, app in enumerate(apps)]


@pytest.mark.parametrize(
    ("of", "budgets", "refused"),
    [
        (["web"], [], False),
        (["web"], [budget(1)], False),
        (["web", "web"], [budget(1)], True),
        (["web", "other"], [budget(1)], False),
        (["other"], [budget(0)], False),
        (["other"], [budget(0, {})], True),
        (["web"], [budget(0, None)], False),
        (["web"], [budget(0, namespace="elsewhere")], False),
        (["web"], [budget(5, observed=1)], True),
        (["web"], [budget(0, {"matchExpressions": [{"key": "app", "operator": "Exists"}]})], True),
        ([], [budget(0)], False),
    ],
)
def test_all_pods_must_be_allowed_to_go_by_all_their_budgets(of, budgets, refused):
    assert (eviction_refused(pods(*of), budgets) is not None) is refused


def test_what_refuses_is_named():
    assert eviction_refused(pods("web", "web"), [budget(1)]) == (
        "PodDisruptionBudget default/keep lets 1 of its pods be evicted now, and default/web-0 and default/web-1 would "
        "have to move"
    )


def test_a_pod_with_two_budgets_cannot_be_evicted_at_all():
    assert eviction_refused(pods("web"), [budget(3), budget(3, {}, name="all")]) == (
        "default/web-0 has two PodDisruptionBudgets, keep and all, so that it cannot be evicted"
    )
