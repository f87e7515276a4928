"""GPUs that pods hold by resource claims."""

import pytest
from msgspec.structs import replace

from forebay.budgets.claims import ClaimedGPUs, resource_of
from forebay.model.devices import DeviceClass, ResourceClaim
from tests.unit.budgets.factories import START, pod

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"


def device_class(name, extended_resource=None):
    return DeviceClass(name=name, uid=name, resource_version=1, created=START, extended_resource=extended_resource)


CLASSES = {each.name: each for each in (device_class("fast", GPU), device_class("nic.example.com"))}


def claim(name="data", allocated=("fast", "fast"), pods=("train",), uid=None):
    reserved = tuple((each, f"uid-{each}") for each in pods)
    fields = {"namespace": "default", "name": name, "uid": uid or f"uid-of-{name}", "resource_version": 1}
    return ResourceClaim(**fields, allocated=allocated, reserved_for=reserved)


def with_claims(name="train", gpus=0):
    plain = pod(name, gpus, started=0)
    return replace(plain, shape=replace(plain.shape, resource_claims=True))


class Claims:
    def __init__(self):
        self.gpus = ClaimedGPUs()

    def see(self, *claims):
        for each in claims:
            self.gpus.add(each)
        return self.gpus.update(CLASSES.get)

    def held(self, seen=None):
        requests = self.gpus.counted(seen or with_claims()).shape.requests
        return {name: amount for name, amount in requests.items() if name in {GPU, AMD} and amount}


@pytest.mark.parametrize(
    ("name", "resource"), [("fast", GPU), ("gpu.nvidia.com", GPU), ("gpu.amd.com", AMD), ("nic.example.com", None)]
)
def test_devices_count_as_the_resource_of_their_class_or_by_the_convention_of_its_name(name, resource):
    assert resource_of(name, CLASSES.get(name)) == resource


def test_a_pod_holds_what_is_allocated_to_its_claims_beside_what_it_requests():
    it = Claims()
    assert it.see(claim(), claim("more", ("gpu.amd.com", "nic.example.com"))) == [("default", "train")] * 2
    assert it.held() == {GPU: 2, AMD: 1}
    assert it.held(with_claims(gpus=1))[GPU] == 3
    assert it.held(with_claims("other")) == {}
    assert it.held(pod(gpus=1, started=0))[GPU] == 1, "it names no claim"


def test_a_claim_that_is_seen_again_changes_nothing_and_one_that_grows_does():
    it = Claims()
    it.see(claim())
    assert it.see(claim()) == []
    assert it.held() == {GPU: 2}
    assert it.see(claim(allocated=("fast",) * 3)) == [("default", "train")]
    assert it.held() == {GPU: 3}


def test_a_claim_that_is_not_allocated_reserved_or_of_gpus_counts_for_nobody():
    it = Claims()
    assert it.see(claim(allocated=()), claim("free", pods=()), claim("nic", ("nic.example.com",))) == []
    assert it.held() == {}


def test_a_claim_that_is_released_counts_until_its_pod_is_gone():
    it = Claims()
    it.see(claim())
    it.gpus.change(claim(), claim(allocated=(), pods=()))
    assert it.gpus.update(CLASSES.get) == []
    assert it.held() == {GPU: 2}
    it.gpus.gone(with_claims())
    assert it.held() == {}


def test_a_claim_of_several_pods_counts_once_for_the_first():
    it = Claims()
    it.see(claim(pods=("train", "other")))
    assert (it.held(), it.held(with_claims("other"))) == ({GPU: 2}, {})


def test_a_claim_that_is_deleted_before_it_was_counted_never_counts():
    it = Claims()
    it.gpus.add(claim())
    it.gpus.change(claim(), None)
    assert it.gpus.update(CLASSES.get) == []
    assert it.held() == {}


def test_of_a_claim_that_was_created_anew_under_its_name_only_the_new_one_counts():
    it = Claims()
    it.gpus.add(claim())
    it.gpus.change(claim(), claim(allocated=("fast",), uid="another"))
    assert it.gpus.update(CLASSES.get) == [("default", "train")]
    assert it.held() == {GPU: 1}
