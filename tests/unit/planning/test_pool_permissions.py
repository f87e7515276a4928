"""A tenant's pool may serve the tenant's own pods, and what the class permits: nothing else."""

import msgspec
import pytest

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.model.reasons import Reason
from forebay.planning.pool_permissions import is_clusters_label, pool_refusal, served_namespaces

NAMESPACES = {"forebay-system": {}, "team": {"kind": "lab"}, "rival": {"kind": "lab"}, "other": {}}
HOME = "forebay-system"
LABS = {"matchLabels": {"kind": "lab"}}


def named(*names):
    return {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(names)}]}


def node_class(**spec):
    spec = {"providers": [{"name": "simulated"}], **spec}
    return msgspec.convert({"metadata": {"name": "gpu"}, "spec": spec}, GPUNodeClass)


def pool(namespace="team", **spec):
    meta = {"name": "pool", "namespace": namespace}
    return msgspec.convert({"metadata": meta, "spec": {"nodeClassRef": {"name": "gpu"}, **spec}}, GPUNodePool)


def refused(pool, node_class):
    found = pool_refusal(pool, node_class, NAMESPACES, HOME)
    return None if found is None else found.reason


@pytest.mark.parametrize(
    ("namespace", "allowed", "refusal"),
    [
        (HOME, None, None),
        (HOME, named("team"), None),
        ("team", None, Reason.NAMESPACE_NOT_ALLOWED),
        ("team", named("other"), Reason.NAMESPACE_NOT_ALLOWED),
        ("team", named("team"), None),
        ("team", LABS, None),
        ("team", {}, None),
        # A namespace that Forebay has not seen yet has its name, and no other label.
        ("new", LABS, Reason.NAMESPACE_NOT_ALLOWED),
        ("new", named("new"), None),
    ],
)
def test_a_class_says_which_namespaces_may_have_pools_of_it(namespace, allowed, refusal):
    assert refused(pool(namespace), node_class(allowedNamespaces=allowed)) is refusal


@pytest.mark.parametrize(
    ("namespace", "selector", "permitted", "served"),
    [
        # The administrator's pool serves everybody, or whom it selects.
        (HOME, {}, None, None),
        (HOME, LABS, None, {"team", "rival"}),
        (HOME, {}, LABS, {HOME, "team", "rival"}),
        # A tenant's pool serves the tenant, whatever it selects.
        ("team", {}, None, {"team"}),
        ("team", LABS, None, {"team"}),
        ("team", named("rival"), None, set()),
        # Unless the class permits more.
        ("team", {}, {}, None),
        ("team", {}, named("other"), {"team", "other"}),
        ("team", LABS, named("rival", "other"), {"team", "rival"}),
    ],
)
def test_a_pool_serves_whom_it_selects_within_what_its_class_permits(namespace, selector, permitted, served):
    found = served_namespaces(
        pool(namespace, namespaceSelector=selector), node_class(allowedPodNamespaces=permitted), NAMESPACES, HOME
    )

    assert found == served


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
        {"metadata": {"labels": {"node-restriction.kubernetes.io/trusted": "yes"}}},
        {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
    ],
)
def test_what_was_stored_before_the_api_server_refused_it_is_refused_all_the_same(template):
    assert refused(pool(HOME, template=template), node_class()) is Reason.TEMPLATE_NOT_ALLOWED


def test_labels_that_a_template_may_not_have_are_named_in_one_order():
    """The sentence is compared with the one that the pool has, and written only where it is another."""
    keys = ("node.k8s.io/b", "team", "node-role.kubernetes.io/c", "a.k8s.io/a")
    template = {"metadata": {"labels": dict.fromkeys(keys, "x")}}
    told = pool_refusal(pool(HOME, template=template), node_class(), NAMESPACES, HOME).sentence
    assert told.endswith("remove a.k8s.io/a, node-role.kubernetes.io/c, node.k8s.io/b")


def test_a_startup_taint_may_evict():
    """Cilium wants such a one; the machine registers with it, before there are pods."""
    cilium = {"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}
    assert refused(pool(HOME, template={"spec": {"startupTaints": [cilium]}}), node_class()) is None


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("kubernetes.io/arch", True),
        ("topology.kubernetes.io/zone", True),
        ("a.b.k8s.io/x", True),
        ("notkubernetes.io/x", False),
        ("kubernetes.io.example.com/x", False),
        ("kubernetes.io", False),
        ("team", False),
    ],
)
def test_the_clusters_own_labels_are_told_by_their_domain(key, reserved):
    assert is_clusters_label(key) is reserved
