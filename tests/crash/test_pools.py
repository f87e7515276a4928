"""Pools that replace their own nodes, and a crash before and after every request: no leak, no double, to the cent."""

from functools import partial

import pytest

from forebay.embedded.api import kinds
from forebay.simulate.market_goods import Sku
from tests.crash.market_worlds import JOINS, MarketScenario, rents
from tests.crash.mortal import Moment
from tests.crash.worlds import Work
from tests.engine.market_world import needs

_PARTS = 4
SKUS = {
    "alpha": (
        Sku(instance_type="small", gpus=1, hourly_price="1.20", boot=20, driver=5),
        Sku(instance_type="large", gpus=4, hourly_price="4.80", boot=20, driver=5),
    ),
}
#: Four pods fill what the DaemonSet leaves of a large machine.
SERVE_CPU = "5"
DISRUPTION = {"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "20s", "budgets": [{"nodes": 2}]}


def pool_kind(cloud):
    return cloud.store.kinds.named("forebay.dev/v1alpha1", "GPUNodePool")


def configure(cloud, **spec):
    cloud.pool("alpha", disruption=DISRUPTION, **JOINS)
    change(cloud, **spec)


def change(cloud, **spec):
    cloud.world.change(pool_kind(cloud), "alpha", lambda each: each["spec"].update(spec), "kube-system")


def serve(cloud, replicas, cpu="0"):
    """A ReplicaSet whose pods run until it is scaled down."""
    found = [each for each in cloud.store.list(kinds.REPLICA_SET_KIND) if each["metadata"]["name"] == "serve"]
    if found:
        cloud.world.change(
            kinds.REPLICA_SET_KIND, "serve", lambda each: each["spec"].update(replicas=replicas), "default"
        )
        return
    labels = {"app": "serve"}
    notes = {"embedded.forebay.dev/run-time": "10000h"}
    template = {"metadata": {"labels": labels, "annotations": notes}, "spec": {"containers": needs(cpu, 1)}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    cloud.store.create(kinds.REPLICA_SET_KIND, {"metadata": {"name": "serve", "namespace": "default"}, "spec": spec})


def relabel(cloud):
    change(cloud, template={"metadata": {"labels": {"tier": "new"}}})


fill = partial(serve, cpu=SERVE_CPU)
WORLDS = {
    #: Two static nodes, of which one is taken away again.
    "static": MarketScenario(
        skus=SKUS,
        pod_cpu="20",
        most=2,
        work=(Work("one", 1, at=60, runs=30),),
        configure=lambda cloud: configure(cloud, minNodes=2),
        later=((120.0, lambda cloud: change(cloud, minNodes=1)), (200.0, lambda cloud: change(cloud, minNodes=0))),
    ),
    #: A node drifts, and its pod moves to its replacement.
    "drift": MarketScenario(
        skus=SKUS,
        pod_cpu=SERVE_CPU,
        most=3,
        configure=configure,
        later=(
            (5.0, lambda cloud: fill(cloud, 1)),
            (60.0, relabel),
            (220.0, lambda cloud: fill(cloud, 0)),
        ),
    ),
    #: Four pods, of which one comes while the machine boots, become one, which moves to a cheaper machine.
    "underutilized": MarketScenario(
        skus=SKUS,
        pod_cpu=SERVE_CPU,
        most=3,
        configure=lambda cloud: (configure(cloud), cloud.markets["alpha"].restock("small", 0)),
        later=(
            (5.0, lambda cloud: fill(cloud, 3)),
            (15.0, lambda cloud: fill(cloud, 4)),
            (60.0, lambda cloud: (cloud.markets["alpha"].restock("small", 4), fill(cloud, 1))),
            (260.0, lambda cloud: fill(cloud, 0)),
        ),
    ),
    #: A node falls idle beside another, is to be used last, takes a pod that fits nowhere else, and goes in the end.
    "idle": MarketScenario(
        skus=SKUS,
        most=2,
        work=(Work("large", 4, runs=200), Work("small", 1, runs=30), Work("next", 1, at=100, runs=30)),
        configure=lambda cloud: configure(cloud, disruption={"consolidateAfter": "60s", "budgets": [{"nodes": 2}]}),
    ),
}


@pytest.mark.parametrize("world", WORLDS)
def test_pools_that_replace_their_nodes_leave_nothing_behind(world):
    outcome = rents(WORLDS[world])
    assert outcome.found == ()
    assert len(outcome.rented) == 2


@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("world", ["drift", "underutilized", "idle"])
def test_no_request_is_a_bad_one_to_die_at_while_a_node_is_replaced_or_idle(world, moment, part):
    whole = rents(WORLDS[world])
    assert whole.found == ()
    # While the replacement is decided, launched, and the pod moves; while the node is idle, used, and idle again.
    places = [number for number, sent in enumerate(whole.ledger.requests, 1) if 57 <= sent.at <= 190]
    for number in places[part::_PARTS][::4]:
        outcome = rents(WORLDS[world], {number: moment})
        killed = [f"{moment} {sent}" for sent, moment in outcome.ledger.died]
        assert (killed, outcome.found) == (killed[:1], ())
        assert len(outcome.rented) <= 3, "at most one replacement for nothing"
