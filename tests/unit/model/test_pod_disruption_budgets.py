"""Which pods a PodDisruptionBudget is about."""

from forebay.model.pod_disruption_budgets import PodDisruptionBudget
from forebay.model.requirements import LabelSelector
from tests.unit.demand.builders import pod


def budget(selector):
    return PodDisruptionBudget(namespace="default", name="keep", uid="uid", resource_version=1, selector=selector)


def test_it_selects_pods_of_its_namespace_by_their_labels_and_without_a_selector_none():
    web = budget(LabelSelector({"app": "web"}))

    assert web.selects(pod(labels={"app": "web"}))
    assert not web.selects(pod(labels={"app": "db"}))
    assert not web.selects(pod(labels={"app": "web"}, namespace="other"))
    assert budget(LabelSelector({})).selects(pod())
    assert not budget(None).selects(pod())
