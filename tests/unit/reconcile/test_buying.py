"""Purchases become GPUInstances, and no GPUInstance is deleted that is still needed."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from forebay.api.gpu_instance import GPUInstance, GPUInstanceStatus, InstanceState
from forebay.api.meta import ObjectMeta
from forebay.budgets.accounts import Accounts
from forebay.demand.reservation import Reservation, Reservations
from forebay.lifecycle.steps import DeleteRecord
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.requirements import LabelSelector
from forebay.model.sources import Billing, Capabilities, Delivery, Offer, Source, SourceKey
from forebay.model.workloads import PodAffinityTerm
from forebay.planning.plan import Preferences
from forebay.reconcile.budgeting import Budgeting, assess_budgets
from forebay.reconcile.buying import buy, order, plan_for
from forebay.reconcile.decisions import CreateInstance
from forebay.reconcile.purchases import purchases
from forebay.reconcile.snapshot import BudgetState, Snapshot
from tests.unit.budgets.factories import budget
from tests.unit.demand.builders import NOW, node, pod, running

RENTED = Source(
    key=SourceKey("", "simulated"),
    capabilities=Capabilities(deliveries=(Delivery.NODE,)),
    offers=(
        Offer(
            provider="simulated",
            instance_type="a100",
            gpu_count=1,
            price=UsdPerHour(1),
            allocatable=Resources({"cpu": 8000, "memory": 2**36, "nvidia.com/gpu": 1, "pods": 110}),
        ),
    ),
)
#: Prices by zone.
ZONES = {"cheap": 1, "dear": 2}
TRAIN = pod()
EMPTY = Snapshot(now=NOW, pending=(TRAIN,), sources={RENTED.key: RENTED})


def recorded(create, state, **metadata):
    return GPUInstance(
        metadata=ObjectMeta(name=create.name, uid="uid-earlier", creation_timestamp=NOW, **metadata),
        spec=create.spec,
        status=GPUInstanceStatus(state=state),
    )


def bought(snapshot=EMPTY):
    return buy(snapshot, [TRAIN]).decisions


@pytest.mark.parametrize("state", sorted(set(InstanceState) - {InstanceState.GONE}))
def test_a_gpuinstance_that_is_not_gone_is_never_deleted_for_another_one_for_the_same_pods(state):
    (first,) = bought()
    # As after `kubectl delete gi`, or where a failed instance takes longer to terminate than its cooldown lasts.
    leaving = recorded(first, state, deletion_timestamp=NOW)

    (again,) = bought(replace(EMPTY, records=(leaving,)))

    assert isinstance(again, CreateInstance)
    assert again.name != first.name
    assert again.spec.node.name == again.name
    assert bought(replace(EMPTY, records=(leaving,))) == (again,), "the same plan gives the same name"


def test_the_gpuinstance_of_the_previous_run_is_deleted_first():
    (first,) = bought()
    delete, again = bought(replace(EMPTY, records=(recorded(first, InstanceState.GONE),)))

    assert isinstance(delete, DeleteRecord)
    assert again.name == first.name
    assert again.spec.node_class_name is None, "the environment names no class"


OWNED = Source(
    key=SourceKey("", "webhook"),
    capabilities=Capabilities(deliveries=(Delivery.POWER,), idempotent_launch=True),
    offers=(replace(RENTED.offers[0], provider="webhook", instance_type="box", node_name="box", stock=1),),
)


def test_an_owned_machine_has_one_gpuinstance_at_a_time_and_the_last_stays_until_its_cost_is_stored():
    snapshot = Snapshot(now=NOW, pending=(TRAIN,), sources={OWNED.key: OWNED})
    (first,) = bought(snapshot)
    assert first.name == "box"
    gone = replace(snapshot, records=(recorded(first, InstanceState.GONE),))

    delete, again = bought(gone)
    assert (type(delete), again.name) == (DeleteRecord, "box")
    assert bought(replace(gone, unrecorded_cost=frozenset({"uid-earlier"}))) == ()
    # A plan that was made before the machine was found to be on.
    (purchase,) = plan_for(snapshot, (TRAIN,), Preferences()).purchases
    assert order(replace(snapshot, records=(recorded(first, InstanceState.READY),)), [purchase]) == ()
    assert [each.name for each in order(snapshot, [purchase])] == ["box"]


def test_running_members_count_towards_the_least_size_of_a_gang():
    gang = {"forebay.dev/pod-group": "g", "forebay.dev/pod-group-min-count": "6"}
    waiting = [pod(f"waits-{n}", annotations=gang) for n in range(2)]
    placed = tuple(running(f"runs-{n}", annotations=gang) for n in range(4))
    before = replace(EMPTY, pending=tuple(waiting), nodes={"n1": node("n1")})

    assert not buy(before, waiting).decisions
    assert len(buy(replace(before, pods_by_node={"n1": placed}), waiting).decisions) == 2


def test_the_rest_of_a_gang_goes_where_its_other_pods_run_launch_or_have_room():
    zone = "topology.kubernetes.io/zone"
    gang = {"forebay.dev/pod-group": "g", "forebay.dev/pod-group-min-count": "1", "forebay.dev/together": "zone"}
    waiting, other = pod("waits", annotations=gang), pod("other", annotations=gang)
    offers = tuple(replace(RENTED.offers[0], zone=name, price=UsdPerHour(price)) for name, price in ZONES.items())
    source = replace(RENTED, offers=offers)
    alone = replace(EMPTY, pending=(waiting,), sources={RENTED.key: source})
    dear = replace(alone, sources={RENTED.key: replace(source, offers=offers[1:])})
    both = replace(alone, pending=(waiting, other), nodes={"n1": node("n1", labels={zone: "dear"})})
    (launching,) = buy(dear, [other]).decisions

    def zones(snapshot, **reserved):
        return [each.spec.node.labels[zone] for each in buy(snapshot, [waiting], **reserved).decisions]

    assert zones(alone) == ["cheap"]
    runs = {"n1": (running("runs", annotations=gang),)}
    assert zones(replace(both, pending=(waiting,), pods_by_node=runs)) == ["dear"]
    assert zones(replace(both, records=(recorded(launching, InstanceState.REQUESTED),))) == ["dear"]
    room = Reservation(node="n1", launching=None, reason=Reason.FITS_EXISTING, sentence="")
    assert zones(both, reserved={other.uid: room}) == ["dear"]
    assert zones(both) == ["cheap"], "a member that waits as well decides nothing"


def test_affinity_finds_the_running_pods():
    near = PodAffinityTerm("topology.kubernetes.io/region", LabelSelector({"app": "db"}))
    waiting = pod(pod_affinity=(near,))
    offer = replace(RENTED.offers[0], region="eu")
    snapshot = replace(
        EMPTY,
        sources={RENTED.key: replace(RENTED, offers=(offer,))},
        nodes={"n1": node("n1", labels={"topology.kubernetes.io/region": "eu"})},
        pods_by_node={"n1": (running("db", labels={"app": "db"}),)},
    )

    assert len(buy(snapshot, [waiting]).decisions) == 1
    assert not buy(replace(snapshot, pods_by_node={}), [waiting]).decisions


def test_a_pod_that_nothing_fits_is_told_so_while_the_ledgers_are_not_read():
    huge = pod("huge", gpus=99)
    found = purchases(replace(EMPTY, pending=(huge,)), Budgeting(), Reservations(left=(huge,)))
    assert [each.pod.name for each in found.bought.left_out] == ["huge"]
    assert found.bought.decisions == ()


def test_a_pod_that_nothing_fits_holds_back_no_other_pod_of_its_budget():
    huge, small = pod("huge", gpus=99, labels={"team": "a"}), pod("small", labels={"team": "a"})
    own = budget(hours="10")
    accounts = Accounts()
    accounts.open(own, NOW)
    for each in (huge, small):
        accounts.see(each, NOW)
    state = BudgetState(accounts=accounts.frozen())
    snapshot = replace(EMPTY, pending=(huge, small), budgets=(own,), budget_state=state)

    found = purchases(snapshot, assess_budgets(snapshot), Reservations(left=(huge, small)))

    assert [each.pod.name for each in found.bought.left_out] == ["huge"]
    assert [ref.name for create in found.bought.decisions for ref in create.spec.pods] == ["small"]
    assert found.admitted.held == ()


def test_a_gang_is_bought_for_whole_or_not_at_all_where_a_budget_of_dollars_holds_one_of_its_pods():
    gang = {"forebay.dev/pod-group": "trio"}
    held = pod("held", labels={"team": "a"}, annotations=gang)
    others = [pod(name, annotations=gang) for name in ("other", "third")]
    alone = pod("alone")
    own = budget(hours="1000", usd="0.01")
    accounts = Accounts()
    accounts.open(own, NOW)
    accounts.see(held, NOW)
    everybody = (alone, *others, held)
    state = BudgetState(accounts=accounts.frozen())
    by_the_hour = replace(RENTED.offers[0], billing=Billing(minimum=timedelta(hours=1)))
    sources = {RENTED.key: replace(RENTED, offers=(by_the_hour,))}
    snapshot = replace(EMPTY, pending=everybody, budgets=(own,), budget_state=state, sources=sources)

    found = purchases(snapshot, assess_budgets(snapshot), Reservations(left=everybody))

    assert [ref.name for create in found.bought.decisions for ref in create.spec.pods] == ["alone"]
    told = {each.pod.name for each in (*found.admitted.held, *found.bought.held)}
    assert told == {"held", "other", "third"}


def test_a_pod_left_out_is_told_which_sources_might_still_fit_it_in_a_sentence_that_reads_well():
    failed = {
        SourceKey("", name): replace(RENTED, key=SourceKey("", name), offers=None, error=error)
        for name, error in [("eu", "Its Secret does not exist: create it."), ("us", "The key is refused.")]
    }
    huge = pod("huge", gpus=99)

    (left,) = buy(replace(EMPTY, pending=(huge,), sources=EMPTY.sources | failed), [huge]).left_out

    assert ": Its Secret does not exist: create it; us of " in left.sentence
    assert left.sentence.endswith(": The key is refused.")


SLOW = Source(key=SourceKey("slow", "crusoe"), capabilities=Capabilities(deliveries=(Delivery.NODE,)), since=NOW)


def beside(slow, after=timedelta(0)):
    return replace(EMPTY, now=NOW + after, sources={RENTED.key: RENTED, slow.key: slow})


def test_nothing_is_bought_before_every_source_has_told_its_first_offers_which_may_be_cheaper():
    found = buy(beside(SLOW), [TRAIN])

    assert found.decisions == ()
    assert found.requeue_at == NOW + timedelta(seconds=5)
    assert len(bought(beside(replace(SLOW, offers=())))) == 1


@pytest.mark.parametrize(
    ("slow", "after"),
    [
        pytest.param(SLOW, timedelta(seconds=5), id="took five seconds already"),
        pytest.param(replace(SLOW, error="crusoe does not answer."), timedelta(0), id="has failed"),
        pytest.param(replace(SLOW, enabled=False), timedelta(0), id="may sell nothing"),
        pytest.param(replace(SLOW, since=None), timedelta(0), id="is asked by nobody"),
        pytest.param(
            replace(SLOW, capabilities=Capabilities(deliveries=(Delivery.CONTAINER,))), timedelta(0), id="has no nodes"
        ),
    ],
)
def test_purchases_do_not_wait_for_a_source_that(slow, after):
    assert len(bought(beside(slow, after))) == 1
