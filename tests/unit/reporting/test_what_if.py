"""--what-if: which changes are understood, what each changes, and what is said about one that cannot be made."""

from fractions import Fraction

import pytest

from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec, ProviderEntry
from forebay.api.meta import ObjectMeta
from forebay.model.quantities import Resources, UsdPerHour
from forebay.model.sources import Capabilities, Delivery, Offer, Source, SourceKey
from forebay.planning.plan import PoolKey
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.what_if import (
    PriceChange,
    QuotaChange,
    SpendingCap,
    WhatIfError,
    WithoutProvider,
    dry_run,
    parse_supposition,
    suppose,
    with_table,
)
from tests.unit.budgets.factories import budget
from tests.unit.reporting.objects import NOW, pod, pool
from tests.unit.web.observations import observed


def offer(provider, kind="a", **fields):
    known = {"gpu_count": 1, "price": UsdPerHour("2.00"), "allocatable": Resources({"nvidia.com/gpu": 1, "pods": 9})}
    return Offer(provider=provider, instance_type=kind, **{**known, **fields})


def sources(*found):
    return {
        key: Source(key=key, capabilities=Capabilities(deliveries=(Delivery.NODE,)), offers=offers)
        for key, offers in found
    }


def prices(snapshot):
    return {
        each.instance_type: each.price.exact() for source in snapshot.sources.values() for each in source.offers or ()
    }


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("price=H100:0.5", PriceChange("H100", Fraction(1, 2))),
        ("price=a:b:0", PriceChange("a:b", Fraction(0))),
        ("price=x:1000000", PriceChange("x", Fraction(10**6))),
        ("without=gcp", WithoutProvider("gcp")),
        ("budget=0", SpendingCap(UsdPerHour(0))),
        ("budget=12.50", SpendingCap(UsdPerHour("12.50"))),
        ("budget=team/quota:200", QuotaChange("team", "quota", gpu_hours="200")),
        ("budget=team/quota:50usd", QuotaChange("team", "quota", usd="50")),
    ],
)
def test_changes_that_are_understood(text, change):
    assert parse_supposition(text) == change


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("price=H100", "has no factor"),
        ("price=:2", "has no factor"),
        ("price=H100:", '"" is not a factor'),
        ("price=H100:much", '"much" is not a factor'),
        ("price=H100:-1", '"-1" is not a factor'),
        ("price=H100:1000001", '"1000001" is not a factor'),
        ("price=H100:Infinity", '"Infinity" is not a factor'),
        ("without=", "is not a valid change; give price=NAME:FACTOR"),
        ("weather=good", "is not a valid change; give price=NAME:FACTOR"),
        ("budget=much", '"much" is not a budget'),
        ("budget=-1", '"-1" is not a budget'),
        ("budget=team/quota", "has no quota"),
        ("budget=/quota:2", "has no quota"),
        ("budget=team/:2", "has no quota"),
        ("budget=team/quota:0", '"0" is not a quota'),
        ("budget=team/quota:0usd", '"0usd" is not a quota'),
        ("budget=team/quota:many", '"many" is not a quota'),
        ("budget=a:1/2", "has no quota"),
    ],
)
def test_what_is_wrong_with_a_change_is_said_in_one_sentence(text, says):
    with pytest.raises(WhatIfError) as caught:
        parse_supposition(text)

    assert says in str(caught.value)


def test_a_price_changes_for_what_the_name_matches_and_unknown_offers_stay_unknown():
    snapshot = Snapshot(
        now=NOW,
        sources=sources(
            (SourceKey("c", "x"), (offer("x", "small", gpu_type="L4"), offer("x", "bare"))),
            (SourceKey("c", "y"), (offer("y", "large", gpu_type="H100", gpu_memory_gib=80),)),
            (SourceKey("c", "z"), None),
        ),
    )

    for_the_model, _ = suppose(snapshot, [PriceChange("h100", Fraction(3, 2))])
    assert prices(for_the_model) == {"small": "2", "bare": "2", "large": "3"}
    assert for_the_model.sources[SourceKey("c", "z")].offers is None
    for_the_provider, _ = suppose(snapshot, [PriceChange("X", Fraction(1, 2))])
    assert prices(for_the_provider) == {"small": "1", "bare": "1", "large": "2"}
    with pytest.raises(WhatIfError, match='no offer matches "A100"'):
        suppose(snapshot, [PriceChange("A100", Fraction(2))])


def test_without_a_provider_its_offers_go_in_every_class_and_an_unknown_one_is_told_which_there_are():
    snapshot = Snapshot(
        now=NOW,
        sources=sources(
            (SourceKey("c", "x"), (offer("x"),)), (SourceKey("d", "x"), (offer("x"),)), (SourceKey("c", "y"), ())
        ),
    )

    kept, caps = suppose(snapshot, [WithoutProvider("x")])

    assert (set(kept.sources), caps) == ({SourceKey("c", "y")}, ())
    with pytest.raises(WhatIfError, match='there is no provider "z"; providers are: x, y'):
        suppose(snapshot, [WithoutProvider("z")])
    with pytest.raises(WhatIfError, match="providers are: none"):
        suppose(Snapshot(now=NOW), [WithoutProvider("z")])


def test_a_spending_cap_covers_every_pool_and_machines_without_one():
    _, (cap,) = suppose(Snapshot(now=NOW, pools=(pool(), pool("other"))), [SpendingCap(UsdPerHour("3"))])

    assert cap.hourly_cost == UsdPerHour("3")
    assert cap.pools >= {PoolKey("team", "lab"), PoolKey("team", "other")}
    assert len(cap.pools) == 3


def test_one_quota_of_one_budget_changes_and_nothing_else():
    snapshot = Snapshot(now=NOW, budgets=(budget("a", hours="10", usd="5"), budget("b", hours="10")))

    more, other = suppose(snapshot, [QuotaChange("default", "a", gpu_hours="20")])[0].budgets
    assert (more.spec.quota.gpu_hours, more.spec.quota.usd, other.spec.quota.gpu_hours) == ("20", "5", "10")
    dearer, _ = suppose(snapshot, [QuotaChange("default", "a", usd="50")])[0].budgets
    assert (dearer.spec.quota.gpu_hours, dearer.spec.quota.usd) == ("10", "50")
    with pytest.raises(WhatIfError, match='no GPUWorkloadBudget "team/a"; budgets are: default/a, default/b'):
        suppose(snapshot, [QuotaChange("team", "a", gpu_hours="20")])
    with pytest.raises(WhatIfError, match="budgets are: none"):
        suppose(Snapshot(now=NOW), [QuotaChange("team", "a", gpu_hours="20")])


def test_a_table_replaces_the_offers_of_the_classes_that_name_its_providers():
    node_class = GPUNodeClass(
        metadata=ObjectMeta(name="rented"),
        spec=GPUNodeClassSpec(
            providers=(
                ProviderEntry(name="x", priority=7),
                ProviderEntry(name="y"),
                ProviderEntry(name="off", enabled=False),
            )
        ),
    )
    snapshot = Snapshot(
        now=NOW,
        classes=(node_class,),
        sources=sources((SourceKey("rented", "y"), (offer("y", "known"),))),
        unusable={SourceKey("rented", "x"): "its Secret is missing", SourceKey("rented", "z"): "unknown"},
    )

    found = with_table(snapshot, [offer("x", "one"), offer("x", "two"), offer("off", "three")], {})

    assert prices(found).keys() == {"one", "two", "three", "known"}
    of_x, off = found.sources[SourceKey("rented", "x")], found.sources[SourceKey("rented", "off")]
    assert (of_x.priority, of_x.enabled, off.enabled) == (7, True, False)
    assert of_x.capabilities.deliveries == (Delivery.NODE,)
    assert found.unusable == {SourceKey("rented", "z"): "unknown"}, "the table makes its provider usable"


def test_without_a_class_every_pod_may_use_the_table_but_spot_only_where_it_is_allowed():
    table = [offer("x", "kept"), offer("x", "cheap", spot=True), offer("y", "owned")]

    found = with_table(Snapshot(now=NOW), table, {"y": Delivery.POWER})

    assert prices(found).keys() == {"kept", "owned"}
    assert found.sources[SourceKey("", "y")].capabilities.deliveries == (Delivery.POWER,)
    assert prices(with_table(Snapshot(now=NOW), table, {}, spot=True)).keys() == {"kept", "cheap", "owned"}


def test_a_budget_without_room_holds_the_pod_in_a_dry_run_and_buys_nothing_for_it():
    seen = observed(
        pending=(pod("held", namespace="default", labels={"team": "a"}), pod("free")),
        nodes={},
        used={},
        records=(),
        pods_by_node={},
    )
    table = [offer("x", "one", stock=9)]
    full = suppose(with_table(seen.snapshot, table, {}), [QuotaChange("default", "team-0", gpu_hours="1")])[0]

    made = dry_run(full)

    assert [each.name for bought in made.plan.purchases for each in bought.pods] == ["free"]
    assert [(each.pod.name, each.reason) for each in made.held] == [("held", "HeldByBudget")]
    roomy = dry_run(with_table(seen.snapshot, table, {}))
    assert sorted(each.name for bought in roomy.plan.purchases for each in bought.pods) == ["free", "held"]
    assert roomy.held == ()
