"""Which remote container a pod gets: the cheapest that is allowed, or why there is none."""

from types import MappingProxyType

import pytest

from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.reasons import Reason
from forebay.model.sources import AMPLE, Capabilities, Delivery, Offer, Source, SourceKey
from forebay.offload.marks import Marks
from forebay.offload.offer_choice import Exclusions, NoContainer, container_choices
from tests.unit.demand.builders import GPU, pod

HALF = UsdPerHour("0.5")


def offer(name="NVIDIA L4", price="0.40", *, memory=24, gpus=1, resource=GPU, **fields):
    return Offer(
        **{
            "provider": "runpod",
            "instance_type": name if gpus == 1 else f"{gpus}x {name}",
            "gpu_type": name.removeprefix("NVIDIA "),
            "gpu_count": gpus,
            "gpu_resource": resource,
            "gpu_memory_gib": memory,
            "price": UsdPerHour(price),
            "allocatable": Resources({"cpu": AMPLE, "memory": AMPLE, "pods": 1, resource: gpus}),
            **fields,
        }
    )


def source(*offers, node_class="remote", **fields):
    capabilities = Capabilities(deliveries=(Delivery.CONTAINER,))
    return Source(key=SourceKey(node_class, "runpod"), capabilities=capabilities, offers=offers, **fields)


NOTHING = MappingProxyType({})


def choose(*sources, of=None, marks=Marks(), cap=HALF, cooling=NOTHING, refused=NOTHING):  # noqa: B008 (immutable)
    return container_choices(of or pod(), marks, sources, cap, Exclusions(cooling, refused))


def names(found):
    return [each.offer.instance_type for each in found]


def test_the_cheapest_comes_first_and_the_others_are_ready_for_a_capacity_error():
    dear, cheap = offer("NVIDIA A40", "0.45", memory=48), offer("NVIDIA L4", "0.30")
    assert names(choose(source(dear, cheap))) == ["NVIDIA L4", "NVIDIA A40"]


def test_a_provider_s_priority_counts_as_a_surcharge():
    first = source(offer("NVIDIA L4", "0.40"), priority=5)
    second = source(offer("NVIDIA A40", "0.45", memory=48), node_class="other")
    assert names(choose(first, second)) == ["NVIDIA A40", "NVIDIA L4"]


def test_the_cap_is_per_gpu_and_includes_itself():
    four = offer(gpus=4, price="2.00")
    assert names(choose(source(four), of=pod(gpus=4))) == ["4x NVIDIA L4"]
    assert choose(source(four), of=pod(gpus=3)).reason is Reason.PRICE_TOO_HIGH


NEVER = {
    "too few GPUs": (offer(), {"of": pod(gpus=2)}, Reason.NO_OFFER_FITS, "too little nvidia.com/gpu"),
    "another vendor's GPUs": (offer(resource="amd.com/gpu"), {}, Reason.NO_OFFER_FITS, "too little nvidia.com/gpu"),
    "a node selector": (
        offer(),
        {"of": pod(node_selector={"zone": "a"})},
        Reason.NO_OFFER_FITS,
        "node selector or affinity",
    ),
    "too little GPU memory": (offer(memory=8), {}, Reason.NOT_ALLOWED, "has 8 GiB a GPU, below 16"),
    "another GPU type": (
        offer(),
        {"marks": Marks(gpu_types=("A40",))},
        Reason.NOT_ALLOWED,
        "asks for GPU type A40, which",
    ),
    "another data center": (
        offer(region="EU-RO-1"),
        {"marks": Marks(data_centers=("US-TX-3",))},
        Reason.NOT_ALLOWED,
        "asks for data center US-TX-3: name it in regions",
    ),
    "any data center where one is asked for": (
        offer(),
        {"marks": Marks(data_centers=("US-TX-3",))},
        Reason.NOT_ALLOWED,
        "regions of the provider",
    ),
    "the community cloud": (offer(zone="COMMUNITY"), {}, Reason.NOT_ALLOWED, "for Jobs that ask for it"),
    "the secure cloud, where another is asked for": (
        offer(),
        {"marks": Marks(cloud="COMMUNITY")},
        Reason.NOT_ALLOWED,
        "asks for the COMMUNITY cloud, and NVIDIA L4 of runpod is in the SECURE cloud",
    ),
    "the price": (offer(price="0.51"), {}, Reason.PRICE_TOO_HIGH, "costs"),
    "the Job's own cap": (
        offer(),
        {"marks": Marks(max_price=UsdPerHour("0.1"))},
        Reason.PRICE_TOO_HIGH,
        "costs",
    ),
    "no stock": (offer(stock=0), {}, Reason.OUT_OF_STOCK, "has no NVIDIA L4 now"),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_excludes_an_offer_is_said(case):
    excluded, given, reason, sentence = NEVER[case]
    found = choose(source(excluded), **given)
    assert isinstance(found, NoContainer)
    assert found.reason is reason
    assert sentence in found.sentence


def test_a_cooldown_of_the_offer_or_of_its_provider_excludes_it():
    one = source(offer())
    for cooling in (offer().key, one.key):
        none = choose(one, cooling={cooling: "until noon: gpu-1 failed"})
        assert none.reason is Reason.COOLING_DOWN
        assert none.sentence.endswith("is cooling down until noon: gpu-1 failed.")


def test_the_reason_is_that_of_the_offer_that_comes_nearest():
    found = choose(source(offer(memory=8), offer("NVIDIA A40", "0.60", memory=48), offer(gpus=8, price="9")))
    assert found.reason is Reason.PRICE_TOO_HIGH


def test_what_the_pool_does_not_allow_comes_nearer_than_what_the_job_has_not_asked_for():
    dear, elsewhere = offer("NVIDIA A40", "0.45", memory=48), offer(zone="COMMUNITY")
    refused = {dear.key: (Reason.PRICE_TOO_HIGH, "costs more than $0.40/h, the maxHourlyPrice of GPUNodePool a/b")}
    found = choose(source(elsewhere, dear), refused=refused)
    assert (found.reason, found.sentence) == (
        Reason.PRICE_TOO_HIGH,
        "NVIDIA A40 of runpod: costs more than $0.40/h, the maxHourlyPrice of GPUNodePool a/b.",
    )
    not_for_all = {dear.key: (Reason.NOT_ALLOWED, "GPUNodeClass remote allows only the GPU types L4")}
    assert "only the GPU types L4" in choose(source(elsewhere, dear), refused=not_for_all).sentence
    # One that the Job would not take either is not the answer.
    capped = choose(source(elsewhere, dear), cap=UsdPerHour("0.30"), refused=refused)
    assert "the Job may cost $0.30/h (--max-gpu-price)" in capped.sentence
    asked = choose(source(elsewhere, dear), marks=Marks(gpu_types=("H100",)), refused=refused)
    assert "asks for GPU type H100" in asked.sentence


@pytest.mark.parametrize("asked", ["L4", "nvidia l4", "NVIDIA L4"])
def test_gpu_types_are_the_provider_s_ids_or_models_in_any_spelling(asked):
    assert names(choose(source(offer()), marks=Marks(gpu_types=(asked,)))) == ["NVIDIA L4"]


def test_a_pod_may_select_what_its_container_will_have():
    selective = pod(node_selector={"forebay.dev/gpu-type": "L4", "type": "virtual-kubelet"})
    assert names(choose(source(offer()), of=selective)) == ["NVIDIA L4"]


def test_offers_of_nodes_and_of_disabled_providers_are_none():
    node = Source(
        key=SourceKey("c", "cloud"), capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=(offer(),)
    )
    found = choose(node, source(offer(), enabled=False), source())
    assert found.reason is Reason.NO_CAPACITY_CONFIGURED


def test_of_several_offers_the_one_that_comes_nearest_is_named():
    three = source(offer("NVIDIA H100", "2.00", memory=80), offer("NVIDIA L4", "0.60"), offer("NVIDIA A40", memory=48))
    assert "NVIDIA L4 of runpod costs" in choose(three, marks=Marks(gpu_types=("L4", "H100"))).sentence
    assert (
        "NVIDIA H100 of runpod has 80 GiB a GPU, below 100" in choose(three, marks=Marks(gpu_memory_gib=100)).sentence
    )
    asked = choose(three, marks=Marks(gpu_memory_gib=48, gpu_types=("H200",)))
    assert "asks for GPU type H200" in asked.sentence, "of two that are not allowed, the one with enough memory"


def test_a_sentence_names_a_few_of_many_types():
    names = (*(f"GPU-{number}" for number in range(2000)), "x" * 5000)
    found = choose(source(offer()), marks=Marks(gpu_types=names))
    assert isinstance(found, NoContainer)
    assert "GPU-0 or GPU-1 or GPU-2 or GPU-3 or GPU-4 or 1996 others, which" in found.sentence
