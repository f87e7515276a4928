from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.planning.planner import plan
from tests.unit.planning.worlds import bought, candidate, machine, pods, served, shape, why


def test_one_pod_gets_the_cheapest_offer_that_fits_with_a_sentence_why():
    offers = [
        candidate(1, "1.29", name="a100", region="us-east"),
        candidate(1, "0.86", name="l40s", region="us-east", gpu_type="L40S"),
    ]

    made = plan(pods(1), offers)

    assert bought(made) == ["l40s"]
    assert made.cost == made.bound == made.price == UsdPerHour("0.86")
    assert made.purchases[0].sentence == (
        "L40S in us-east at $0.86/h (simulated l40s) was chosen over a100 in us-east at $1.29/h (simulated): "
        "same pods, 33 % cheaper."
    )
    assert made.purchases[0].alternatives[0].more == UsdPerHour("0.43")


def test_many_pods_share_a_large_machine_where_that_is_cheaper():
    offers = [candidate(1, "1", name="one"), candidate(8, "6", name="eight")]

    made = plan(pods(9), offers)

    assert bought(made) == ["eight", "one"]
    assert len(served(made)) == 9
    assert made.cost == UsdPerHour(7)


def test_owned_machines_that_cost_nothing_are_powered_on_from_the_smallest_up():
    machines = [machine("large", 4), machine("small", 1), machine("medium", 2)]

    assert bought(plan(pods(1), machines)) == ["small"]
    assert bought(plan(pods(3), machines)) == ["medium", "small"]
    assert bought(plan(pods(1, shape(gpus=2)), machines)) == ["medium"]
    assert bought(plan(pods(7), machines)) == ["large", "medium", "small"]


def test_a_pod_that_no_offer_fits_blocks_no_other_and_its_sentence_says_what_would_help():
    huge, small = pods(1, shape(gpus=16)), pods(1)

    made = plan([*huge, *small], [machine("small", 1), machine("large", 4)])

    assert bought(made) == ["small"]
    assert why(made) == {huge[0].name: Reason.NO_OFFER_FITS}
    assert made.left_out[0].sentence == (
        "None of 2 offers fits the pod (2: Insufficient nvidia.com/gpu). The pod requests 16 nvidia.com/gpu (largest "
        "offer: 4): request less, or allow larger machines."
    )


def test_without_any_capacity_the_sentence_says_what_to_create():
    made = plan(pods(2), [])

    assert set(why(made).values()) == {Reason.NO_CAPACITY_CONFIGURED}
    assert "create a GPUNodeClass and a GPUNodePool" in made.left_out[0].sentence
    assert plan([], []).cost == UsdPerHour(0)
