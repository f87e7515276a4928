"""Plans under limits that do not allow all pods to be served."""

from forebay.model.quantities import Resources, UsdPerHour
from forebay.planning.plan import Cap, Preferences
from forebay.planning.planner import plan
from tests.unit.planning.worlds import GPU, POOL, candidate, pods, served, shape


def limit(**fields):
    return Cap(name="limits.x of GPUNodePool team/pool", pools=frozenset({POOL}), **fields)


def test_under_a_limit_of_money_as_many_pods_as_possible_are_served():
    # Two cheap pods of each kind share a node; pairs of different kinds would waste it.
    offers = [
        candidate(1, "1", name="single", cpu="4"),
        candidate(8, "6", name="eight", cpu="64"),
        candidate(8, "20", name="wide", cpu="512"),
    ]
    kinds = [(1, "1"), (1, "3"), (2, "8"), (4, "8"), (8, "200")]
    demand = [each for gpus, cpu in kinds for each in pods(60, shape(gpus=gpus, cpu=cpu))]

    made = plan(demand, offers, [limit(hourly_cost=UsdPerHour(100))], clock=lambda: 0.0)

    # 120 small pods in 15 full nodes of eight for $90, and $10 for 6 more pods of 2 or 4 GPUs.
    assert len(served(made)) >= 123


def test_pods_of_higher_priority_are_served_first_under_a_limit():
    urgent, others = pods(150, shape(gpus=8, priority=10)), pods(150, shape(gpus=1))

    made = plan([*others, *urgent], [candidate(8, "8")], [limit(nodes=160)], Preferences(), clock=lambda: 0.0)

    assert {each.name for each in urgent} <= served(made)
    assert len(served(made)) == 150 + 80


def test_the_sentence_says_what_raising_the_limit_would_buy():
    offers = [candidate(4, "4", name="four", cpu="16")]

    def sentence(**fields):
        return plan(pods(8), offers, [limit(**fields)]).left_out[0].sentence

    assert "raise the limit (1 node more serves 4 of these pods)" in sentence(nodes=1)
    assert "raise the limit ($2.50/h more serves 4 of these pods)" in sentence(hourly_cost=UsdPerHour("5.5"))
    assert "raise the limit (1 nvidia.com/gpu more serves 4 of these pods)" in sentence(resources=Resources({GPU: 7}))
    assert "raise the limit (6 cpu more serves 4 of these pods)" in sentence(resources=Resources({"cpu": 26000}))


def test_amounts_are_written_as_people_write_them():
    made = plan(pods(1, shape(cpu="64", memory="1000Gi")), [candidate(1, "1")])

    assert "64 cpu (largest offer: 32)" in made.left_out[0].sentence
    assert "1000 GiB of memory (largest offer: 256 GiB)" in made.left_out[0].sentence


def test_money_goes_to_many_cheap_pods_and_not_to_few_expensive_ones_that_share_nodes_well():
    large = {"node_selector": {"model": "h100"}}
    offers = [
        candidate(8, "20", name="large", cpu="32", labels={"model": "h100"}),
        candidate(1, "1", name="small", cpu="4"),
    ]
    demand = [
        *pods(150, shape(gpus=1, cpu="30", **large)),
        *pods(150, shape(gpus=7, cpu="1", **large)),
        *pods(150, shape(gpus=1, cpu="4")),
    ]

    made = plan(demand, offers, [limit(hourly_cost=UsdPerHour(200))], clock=lambda: 0.0)

    assert len(served(made)) == 150 + 4
