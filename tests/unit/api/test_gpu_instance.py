"""What a GPUInstance says of itself, also where it was just created or says little."""

from datetime import timedelta

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, GPUInstanceStatus, InstanceState, PoolRef
from forebay.api.instance_order import BillingTerms
from forebay.api.meta import ObjectMeta
from forebay.model.sources import Billing, Delivery


def made(status=None, namespace=None, **spec):
    spec = GPUInstanceSpec(provider="cloud", delivers=Delivery.NODE, **spec)
    return GPUInstance(metadata=ObjectMeta(name="a", namespace=namespace), spec=spec, status=status)


def test_one_that_was_just_created_is_requested():
    assert made().state is InstanceState.REQUESTED
    assert made(GPUInstanceStatus()).state is InstanceState.REQUESTED
    assert made(GPUInstanceStatus(state=InstanceState.READY)).state is InstanceState.READY


def test_its_key_and_that_of_its_pool_are_texts_with_and_without_a_namespace():
    assert (made().key, made(namespace="team").key) == (("", "a"), ("team", "a"))
    assert made().pool_key == ("", "")
    assert made(pool_ref=PoolRef(namespace="team", name="pool")).pool_key == ("team", "pool")


def test_an_hour_costs_what_is_billed_or_else_what_was_ordered_or_nothing():
    assert made().hourly_price == 0
    assert made(hourly_price="1.29").hourly_price == "1.29"
    assert made(GPUInstanceStatus(hourly_price="1.35"), hourly_price="1.29").hourly_price == "1.35"
    assert made(GPUInstanceStatus(hourly_price="0"), hourly_price="1.29").hourly_price == "0"


def test_it_is_billed_by_the_terms_of_its_order_and_as_usual_where_these_say_nothing():
    assert made().billing == Billing()
    assert made(billing=BillingTerms(minimum="10m")).billing == Billing(minimum=timedelta(minutes=10))
    hours = made(billing=BillingTerms(increment="1h")).billing
    assert hours == Billing(increment=timedelta(hours=1))
