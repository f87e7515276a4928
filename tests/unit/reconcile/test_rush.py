"""A rush: hundreds of machines come up at once, and pods wait for nothing but their tolerations."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.meta import ObjectMeta
from forebay.api.parts import PodRef
from forebay.demand.startup_taint import AddToleration
from forebay.lifecycle.steps import WriteStatus
from forebay.model.reasons import Reason
from forebay.model.requirements import Toleration
from forebay.model.sources import Source, SourceKey
from forebay.model.workloads import Phase
from forebay.reconcile.node_changes import NEWS_WAIT, RUSH, TOLERATIONS_AT_ONCE
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.tick import tick
from tests.unit.lifecycle.builders import NOW, RENTED, S, node, pod, record, rented_spec

CLOUD = SourceKey("cheap", "simulated")
NEWS = {Reason.NODE_JOINED, Reason.NODE_READY}


def coming_up(machines, state=S.LAUNCHED, ready_for=timedelta(seconds=1), **fields):
    """So many machines that have just registered, each with a pod that waits for it and has no toleration yet."""
    pods = [
        replace(pod(f"p{number}"), phase=Phase.PENDING, node=None, unschedulable_since=NOW - timedelta(minutes=1))
        for number in range(machines)
    ]
    records = tuple(
        record(
            state,
            name=f"r{number}",
            since=NOW - timedelta(seconds=20),
            spec=rented_spec(
                f"r{number}", pods=(PodRef(namespace=each.namespace, name=each.name, uid=each.uid),), **fields
            ),
        )
        for number, each in enumerate(pods)
    )
    made = GPUNodeClass(
        metadata=ObjectMeta(name="cheap", uid="uid-cheap"),
        spec=GPUNodeClassSpec(providers=(ProviderEntry(name="simulated"),)),
    )
    return Snapshot(
        now=NOW,
        classes=(made,),
        records=records,
        nodes={each.metadata.name: node(each.metadata.name, ready_since=NOW - ready_for) for each in records},
        pending=tuple(pods),
        sources={CLOUD: Source(key=CLOUD, capabilities=RENTED, offers=())},
    )


def decided(snapshot):
    """How many tolerations, and how much news of nodes."""
    result = tick(snapshot)
    tolerations = sum(isinstance(each, AddToleration) for each in result.decisions)
    return tolerations, sum(isinstance(each, WriteStatus) and each.reason in NEWS for each in result.decisions)


@pytest.mark.parametrize("state", [S.LAUNCHED, S.JOINED])
def test_news_of_nodes_gives_way_to_the_tolerations_of_many_pods_and_follows_a_second_later(state):
    snapshot = coming_up(RUSH, state)
    assert decided(snapshot) == (RUSH, 0)
    assert tick(snapshot).requeue_at == NOW + timedelta(seconds=1)

    tolerated = replace(snapshot, pending=tuple(map(tolerant, snapshot.pending)))
    assert decided(tolerated) == (0, 0), "the scheduler binds them now, through the same API server"

    bound = replace(snapshot, pending=snapshot.pending[: RUSH - 1])
    assert decided(bound)[1] == RUSH


def tolerant(pod):
    every = Toleration(operator="Exists")
    return replace(pod, shape=replace(pod.shape, tolerations=(every,)))


def test_a_few_tolerations_delay_nothing():
    assert decided(coming_up(RUSH - 1)) == (RUSH - 1, RUSH - 1)


def test_news_does_not_wait_for_ever_where_tolerations_cannot_be_written():
    assert decided(coming_up(RUSH, ready_for=NEWS_WAIT - timedelta(seconds=1))) == (RUSH, 0)
    assert decided(coming_up(RUSH, ready_for=NEWS_WAIT)) == (RUSH, RUSH)


def test_in_a_crowd_the_pods_of_nodes_that_are_ready_get_their_tolerations_first_and_the_next_tick_goes_on_at_once():
    snapshot = coming_up(TOLERATIONS_AT_ONCE + 50)
    late = {f"r{number}" for number in range(100)}
    nodes = {name: replace(each, ready=name not in late) for name, each in snapshot.nodes.items()}
    result = tick(replace(snapshot, nodes=nodes))

    given = [each.record.metadata.name for each in result.decisions if isinstance(each, AddToleration)]
    assert len(given) == TOLERATIONS_AT_ONCE
    assert late.isdisjoint(given[: TOLERATIONS_AT_ONCE - 50])
    assert late.issuperset(given[TOLERATIONS_AT_ONCE - 50 :])
    assert result.requeue_now
