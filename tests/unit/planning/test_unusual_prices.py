"""Offers far below the usual price of their model, unknown models, alternatives: what real price lists hold."""

from forebay.model.gpu_models import nearest_models, unknown_models
from forebay.model.quantities import UsdPerHour
from forebay.model.reasons import Reason
from forebay.planning.candidates import candidates
from forebay.planning.planner import plan
from tests.unit.planning.test_candidates import CONTEXT, node_class, offer, pool, source
from tests.unit.planning.worlds import bought, candidate, pods, shape, why

USUAL = [offer(f"a100-{n}", f"{1.5 + n / 10}", gpu_type="A100-80GB", region=f"region-{n}") for n in range(6)]
SLIP = offer("slip", "0.01", gpu_type="A100-80GB")


def offering(*offers, **spec):
    return candidates(source(*offers), [pool(**spec)], [node_class()], CONTEXT)


def test_an_offer_at_one_percent_of_the_usual_price_is_excluded_with_the_reason():
    found = offering(*USUAL, SLIP)

    (excluded,) = found.excluded
    assert excluded.reason is Reason.PRICE_UNUSUAL
    assert excluded.sentence == (
        "its price is 0.6 % of what A100-80GB usually costs ($1.70/h for each GPU): GPUNodePool team/pool does not buy "
        "such offers unless it has unusualPrices: Allow"
    )
    assert bought(plan(pods(1), found.candidates, excluded=found.excluded)) == ["a100-0"]


def test_a_pool_may_allow_unusual_prices_and_the_reason_of_the_launch_warns():
    found = offering(*USUAL, SLIP, unusualPrices="Allow")

    for number in (1, 2):
        made = plan(pods(number), found.candidates)
        assert set(bought(made)) == {"slip"}
        assert made.purchases[0].sentence.endswith(
            "Beware: its price is 0.6 % of what A100-80GB usually costs ($1.70/h for each GPU)."
        )
    assert not found.excluded


def test_cheap_offers_are_usual_down_to_a_few_percent_and_spot_is_compared_with_spot():
    # Three hundredths of the usual $1.60.
    cheap = offer("old", "0.048", gpu_type="A100-80GB")
    spot = offer("spot", "0.02", gpu_type="A100-80GB", spot=True)
    eight = offer("eight", "12", gpus=8, gpu_type="A100-80GB")
    other = offer("other", "0.01", gpu_type="L4")

    found = candidates(
        source(*USUAL, cheap, spot, eight, other),
        [pool(maxHourlyPrice="100")],
        [node_class(instanceRequirements={"spotAllowed": True})],
        CONTEXT,
    )

    assert not found.excluded


def test_an_offer_that_names_a_model_and_has_no_gpu_is_compared_with_nothing():
    without = offer("cpu-only", "0.01", gpus=0, gpu_type="A100-80GB")

    assert not offering(*USUAL, without).excluded


def test_few_offers_of_a_model_say_nothing_about_what_is_usual():
    assert not offering(*USUAL[:3], SLIP).excluded
    assert [each.reason for each in offering(*USUAL[:4], SLIP).excluded] == [Reason.PRICE_UNUSUAL]


def test_candidates_are_the_same_objects_until_offers_or_pool_change():
    some, here, there = source(*USUAL), pool(), node_class()
    first = candidates(some, [here], [there], CONTEXT).candidates

    assert candidates(some, [here], [there], CONTEXT).candidates is first
    assert candidates(source(*USUAL), [pool()], [node_class()], CONTEXT).candidates == first

    cheaper = source(*USUAL[1:], offer("a100-0", "1.4", gpu_type="A100-80GB", region="region-0"))
    assert {each.offer.price for each in candidates(cheaper, [here], [there], CONTEXT).candidates} != {
        each.offer.price for each in first
    }
    labelled = pool(template={"metadata": {"labels": {"team": "a"}}})
    assert {each.node.labels["team"] for each in candidates(some, [labelled], [there], CONTEXT).candidates} == {"a"}
    preferred = source(*USUAL, priority=10)
    assert [each.effective_price for each in candidates(preferred, [here], [there], CONTEXT).candidates] == [
        UsdPerHour.from_units(each.offer.price.units * 2) for each in first
    ]
    disabled = source(*USUAL, enabled=False)
    assert not candidates(disabled, [here], [there], CONTEXT).candidates
    assert candidates(some, [here], [there], CONTEXT).candidates == first


def test_a_misspelt_model_is_named_with_the_nearest():
    assert nearest_models("H10O").startswith(": did you mean H100")
    assert unknown_models(["H100", "L40S"]) == ""

    by_class = candidates(
        source(*USUAL), [pool()], [node_class(instanceRequirements={"gpuTypes": ["H10O"]})], CONTEXT
    ).excluded
    assert '"H10O" is not a known GPU model: did you mean H100' in by_class[0].sentence
    template = {"spec": {"requirements": [{"key": "forebay.dev/gpu-type", "operator": "In", "values": ["L40SS"]}]}}
    assert (
        '"L40SS" is not a known GPU model: did you mean L40S'
        in offering(*USUAL, template=template).excluded[0].sentence
    )

    selecting = pods(1, shape(node_selector={"forebay.dev/gpu-type": "A10O-80GB"}))
    made = plan(selecting, offering(*USUAL).candidates)
    assert set(why(made).values()) == {Reason.NO_OFFER_FITS}
    assert (
        'The pod selects "A10O-80GB", which is not a known GPU model: did you mean A100-80GB'
        in made.left_out[0].sentence
    )


def test_a_pod_that_selects_a_model_by_another_name_is_told_the_label():
    selecting = pods(1, shape(node_selector={"forebay.dev/gpu-type": "NVIDIA-A100-SXM4-80GB"}))

    made = plan(selecting, offering(*USUAL).candidates)

    assert (
        'The pod selects "NVIDIA-A100-SXM4-80GB"; nodes with that GPU are labelled A100-80GB: select that.'
        in made.left_out[0].sentence
    )


def test_alternatives_are_other_types_and_not_the_same_one_elsewhere():
    regions = [candidate(1, f"1.{n}", name="same", region=f"region-{n}") for n in range(5)]
    others = [candidate(1, f"2.{n}", name="other", region=f"region-{n}") for n in range(5)]
    third = candidate(1, "3", name="third")

    for number in (1, 2):
        made = plan(pods(number), [*regions, *others, third])
        named = [each.candidate.offer.instance_type for each in made.purchases[0].alternatives]
        assert named == ["other", "third"]
        assert made.purchases[0].alternatives[0].more == UsdPerHour("1")
