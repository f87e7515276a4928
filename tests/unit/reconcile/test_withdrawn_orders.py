"""Orders that wait for their turn are cancelled where they would not be made any more."""

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import PoolRef, Purpose
from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_pool import GPUNodePool
from forebay.api.names import VIRTUAL_NODE
from forebay.lifecycle.steps import Launch
from forebay.model.reasons import Reason
from forebay.model.sources import Delivery, Source, SourceKey
from forebay.reconcile.due_steps import due_steps
from forebay.reconcile.orders import template_hash
from forebay.reconcile.snapshot import Snapshot
from forebay.reconcile.withdrawn_orders import withdrawn_orders
from tests.unit.demand.builders import node, pod
from tests.unit.lifecycle.builders import NOW, RENTED, S, listed, minutes, record, rented_spec

SOURCE = Source(key=SourceKey("cheap", "simulated"), capabilities=RENTED, listing=listed(), offers=())


def node_class(**spec):
    entries = [{"name": "simulated"}]
    return msgspec.convert({"metadata": {"name": "cheap"}, "spec": {"providers": entries, **spec}}, GPUNodeClass)


def pool(**spec):
    spec = {"nodeClassRef": {"name": "cheap"}, **spec}
    return msgspec.convert({"metadata": {"name": "gpus", "namespace": "team"}, "spec": spec}, GPUNodePool)


def order(name, age=0, state=S.REQUESTED, **fields):
    fields = {"purpose": Purpose.PODS, "template_hash": template_hash(node_class(), pool()), **fields}
    spec = rented_spec(name, pool_ref=PoolRef(namespace="team", name="gpus"), **fields)
    return record(state, name=name, since=NOW - minutes(age), spec=spec)


def seen(*records, of_class=None, of_pool=None, source=SOURCE):
    return Snapshot(
        now=NOW,
        records=records,
        classes=(of_class or node_class(),),
        pools=(of_pool or pool(),),
        sources={source.key: source},
        pending=(replace(pod("train"), uid="uid-train"),),
    )


def test_an_order_that_would_be_made_again_stays():
    assert withdrawn_orders(seen(order("a"))) == {}
    (step,) = due_steps(seen(order("a")), {}).steps
    assert isinstance(step, Launch)


@pytest.mark.parametrize(
    ("changed", "reason", "told"),
    [
        (
            {"source": replace(SOURCE, enabled=False)},
            Reason.PROVIDER_DISABLED,
            "GPUNodeClass cheap has disabled simulated",
        ),
        (
            {"of_pool": pool(maxHourlyPrice="1.28")},
            Reason.PRICE_TOO_HIGH,
            "it costs more than $1.28/h, the maxHourlyPrice of GPUNodePool team/gpus",
        ),
        (
            {"of_pool": pool(template={"metadata": {"labels": {"tier": "new"}}})},
            Reason.NOT_NEEDED,
            "the template of GPUNodePool team/gpus, or its class, has changed since it was ordered",
        ),
        (
            {"of_class": node_class(tags={"team": "vision"})},
            Reason.NOT_NEEDED,
            "the template of GPUNodePool team/gpus, or its class, has changed since it was ordered",
        ),
    ],
    ids=["disabled", "price", "template", "class"],
)
def test_a_change_of_the_pool_or_class_cancels_what_was_not_launched_yet(changed, reason, told):
    (step,) = due_steps(seen(order("a"), **changed), {}).steps
    assert (step.status.state, step.reason) == (S.GONE, reason)
    assert step.sentence == f"Cancelled before anything was started: {told}."
    assert withdrawn_orders(seen(order("a", state=S.LAUNCHING), **changed)) == {}


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"maxNodes": 2}, "limits.maxNodes"),
        ({"maxHourlyCost": "2.58"}, "limits.maxHourlyCost"),
        ({"resources": {"nvidia.com/gpu": 5}}, "limits.resources.nvidia.com/gpu"),
    ],
)
def test_of_orders_beyond_a_limit_that_was_lowered_the_newest_are_cancelled(limits, limit):
    """`kubectl edit` is what people do when too many machines come."""
    there, first, last = order("there", 1, S.READY), order("first", 9), order("last", 5)

    cancelled = withdrawn_orders(seen(there, first, last, of_pool=pool(limits=limits)))
    assert {uid: each.sentence for uid, each in cancelled.items()} == {
        last.uid: f"{limit} of GPUNodePool team/gpus allows no more"
    }
    cancelled = withdrawn_orders(seen(there, first, last, of_class=node_class(limits=limits)))
    assert [each.sentence for each in cancelled.values()] == [f"{limit} of GPUNodeClass cheap allows no more"]
    enough = {"maxNodes": 3, "maxHourlyCost": "3.87", "resources": {"nvidia.com/gpu": 6}}
    assert withdrawn_orders(seen(there, first, last, of_pool=pool(limits=enough))) == {}


def test_an_order_that_is_cancelled_for_another_reason_leaves_room_within_the_limits():
    dear, fair = order("dear", 9, hourly_price="9"), order("fair", 5)
    found = withdrawn_orders(seen(dear, fair, of_pool=pool(maxHourlyPrice="2", limits={"maxNodes": 1})))
    assert {uid: each.reason for uid, each in found.items()} == {dear.uid: Reason.PRICE_TOO_HIGH}


def container(name, age=0):
    return order(name, age, delivers=Delivery.CONTAINER, node=None, template_hash=None)


def test_containers_that_wait_for_their_turn_are_cancelled_like_machines():
    first, last = container("first", 9), container("last", 5)
    assert withdrawn_orders(seen(first, last)) == {}
    assert set(withdrawn_orders(seen(first, last, of_pool=pool(limits={"maxNodes": 1})))) == {last.uid}
    found = withdrawn_orders(seen(first, of_pool=pool(maxHourlyPrice="1")))
    assert [each.reason for each in found.values()] == [Reason.PRICE_TOO_HIGH]


def test_a_cordon_of_the_virtual_node_keeps_the_pods_that_are_not_bound_yet_and_no_machines():
    remote, machine = container("a", 9), order("b", 5)
    snapshot = seen(remote, machine)
    cordoned = replace(snapshot, nodes={VIRTUAL_NODE: node(VIRTUAL_NODE, unschedulable=True)})
    assert withdrawn_orders(cordoned) == {remote.uid: (Reason.NOT_ALLOWED, "node runpod-virtual-node is cordoned")}
    assert withdrawn_orders(replace(cordoned, pending=())) == {}, "its pod is bound: nothing else can run it"
