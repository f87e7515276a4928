import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.requirement_sets import Requirements
from forebay.model.requirements import (
    Effect,
    LabelOperator,
    LabelSelector,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
    tolerates,
)

IN, NOT_IN, EXISTS, ABSENT, GT, LT = LabelOperator
H100 = {"gpu": "h100", "zone": "a", "cores": "16", "empty": ""}


@pytest.mark.parametrize(
    ("requirement", "met"),
    [
        (Requirement("gpu", IN, ("a100", "h100")), True),
        (Requirement("gpu", IN, ("a100",)), False),
        (Requirement("missing", IN, ("a100",)), False),
        (Requirement("empty", IN, ("",)), True),
        (Requirement("missing", IN, ("",)), False),
        (Requirement("gpu", NOT_IN, ("a100",)), True),
        (Requirement("gpu", NOT_IN, ("h100",)), False),
        (Requirement("missing", NOT_IN, ("h100",)), True),
        (Requirement("gpu", EXISTS), True),
        (Requirement("empty", EXISTS), True),
        (Requirement("missing", EXISTS), False),
        (Requirement("gpu", ABSENT), False),
        (Requirement("missing", ABSENT), True),
        (Requirement("cores", GT, ("15",)), True),
        (Requirement("cores", GT, ("16",)), False),
        (Requirement("cores", LT, ("17",)), True),
        (Requirement("cores", LT, ("16",)), False),
        (Requirement("gpu", GT, ("1",)), False),
        (Requirement("missing", LT, ("1",)), False),
        (Requirement("cores", GT, ("few",)), False),
        (Requirement("cores", GT, ("1", "2")), False),
        (Requirement("cores", GT, ()), False),
        (Requirement("cores", GT, ("1_0",)), False),
        (Requirement("cores", LT, ("9223372036854775808",)), False),
        (Requirement("cores", LT, ("0000000000000000000000000017",)), True),
    ],
    ids=str,
)
def test_a_requirement_reads_labels_as_kubernetes_does(requirement, met):
    assert requirement.matches(H100) is met
    assert Requirements([requirement]).allows(H100) is met


def test_the_empty_selector_picks_everything_and_every_part_must_hold():
    assert LabelSelector().matches({})
    assert LabelSelector().empty
    both = LabelSelector({"gpu": "h100"}, (Requirement("zone", IN, ("a", "b")),))
    assert both.matches(H100)
    assert not both.matches({"gpu": "h100", "zone": "c"})
    assert not both.matches({"gpu": "a100", "zone": "a"})
    assert str(both) == "gpu=h100,zone in (a,b)"


def test_a_node_term_wants_labels_and_the_name_and_an_empty_one_matches_no_node():
    by_label = Requirement("gpu", EXISTS)
    by_name = Requirement("metadata.name", IN, ("n1",))

    assert not NodeSelectorTerm().matches(H100, "n1")
    assert NodeSelectorTerm((by_label,), (by_name,)).matches(H100, "n1")
    assert not NodeSelectorTerm((by_label,), (by_name,)).matches(H100, "n2")
    assert not NodeSelectorTerm((by_label,), (by_name,)).matches({}, "n1")
    assert NodeSelectorTerm((), (Requirement("metadata.name", NOT_IN, ("n1",)),)).matches({}, "n2")
    assert not NodeSelectorTerm((), (Requirement("metadata.name", IN, ("n1", "n2")),)).matches({}, "n1")
    assert not NodeSelectorTerm((), (Requirement("metadata.name", EXISTS),)).matches({}, "n1")
    assert not NodeSelectorTerm((), (Requirement("spec.name", IN, ("n1",)),)).matches({}, "n1")


GPU_TAINT = Taint("nvidia.com/gpu", "present", Effect.NO_SCHEDULE)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("nvidia.com/gpu", "Equal", "present", "NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "", "present"), True),
        (Toleration("nvidia.com/gpu", "Equal", "absent"), False),
        (Toleration("nvidia.com/gpu", "Exists"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoSchedule"), True),
        (Toleration("nvidia.com/gpu", "Exists", effect="NoExecute"), False),
        (Toleration("amd.com/gpu", "Exists"), False),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration("nvidia.com/gpu", "SemverGt", "present"), False),
        (Toleration("nvidia.com/gpu", "Gt", "1"), False),
    ],
    ids=str,
)
def test_a_toleration_covers_key_value_and_effect(toleration, tolerated):
    assert toleration.tolerates(GPU_TAINT) is tolerated
    assert tolerates([toleration], GPU_TAINT) is tolerated


def test_numeric_tolerations_compare_the_taint_with_their_own_value():
    reliability = Taint("sla", "950")

    assert Toleration("sla", "Gt", "900").tolerates(reliability)
    assert not Toleration("sla", "Gt", "950").tolerates(reliability)
    assert Toleration("sla", "Lt", "951").tolerates(reliability)
    assert not Toleration("sla", "Lt", "high").tolerates(reliability)


def test_one_toleration_is_enough_and_none_tolerates_nothing():
    assert tolerates([Toleration("other", "Exists"), Toleration("nvidia.com/gpu", "Exists")], GPU_TAINT)
    assert not tolerates([], GPU_TAINT)
    assert GPU_TAINT.repels
    assert not Taint("soft", "", Effect.PREFER_NO_SCHEDULE).repels
    assert str(GPU_TAINT) == "nvidia.com/gpu=present:NoSchedule"


def test_pools_and_pods_that_share_no_label_value_are_incompatible():
    pool = Requirements([Requirement("zone", IN, ("a", "b")), Requirement("cores", GT, ("8",))])

    assert pool.compatible(Requirements([Requirement("zone", IN, ("b", "c"))]))
    assert not pool.compatible(Requirements([Requirement("zone", IN, ("c",))]))
    assert not pool.compatible(Requirements([Requirement("zone", ABSENT)]))
    assert not pool.compatible(
        Requirements(
            [Requirement("cores", LT, ("10",)), Requirement("cores", GT, ("8",)), Requirement("cores", LT, ("9",))]
        )
    )
    assert pool.compatible(Requirements.from_labels({"zone": "a", "cores": "9", "gpu": "h100"}))
    assert not pool.compatible(Requirements.from_labels({"zone": "a", "cores": "8"}))
    assert pool["zone"].values == {"a", "b"}
    assert pool.add(Requirement("zone", NOT_IN, ("a",)))["zone"].values == {"b"}


def test_requirements_nothing_can_meet_are_known_as_such():
    never = Requirements([Requirement("zone", EXISTS), Requirement("zone", ABSENT)])

    assert not never.satisfiable
    assert not never.compatible(Requirements())
    assert not Requirements().compatible(never)
    assert not Requirements([Requirement("cores", GT, ("many",))]).satisfiable
    assert Requirements().satisfiable
    assert Requirements([Requirement("zone", NOT_IN, ())]) == Requirements()


KEYS = ["k", "l"]
VALUES = ["a", "b", "1", "2", "3"]
# The universe also has values no requirement names: in life there is always another one. Numbers come in two spellings.
UNIVERSE = [None, *VALUES, "other", "0", "00", "01", "02", "03", "04", "4", "9"]
ONE_VALUE = st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple)
REQUIREMENT = st.one_of(
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([IN, NOT_IN]), ONE_VALUE),
    st.builds(Requirement, st.sampled_from(KEYS), st.sampled_from([EXISTS, ABSENT])),
    st.builds(
        Requirement, st.sampled_from(KEYS), st.sampled_from([GT, LT]), st.sampled_from("1234").map(lambda v: (v,))
    ),
)
SETS = st.lists(REQUIREMENT, max_size=5)
EVERY_LABELLING = [
    {key: value for key, value in zip(KEYS, pair, strict=True) if value is not None}
    for pair in [(one, other) for one in UNIVERSE for other in UNIVERSE]
]


@pytest.mark.law
@given(SETS, SETS, SETS)
def test_intersection_is_commutative_associative_and_idempotent(one, two, three):
    a, b, c = Requirements(one), Requirements(two), Requirements(three)

    assert a.intersect(b) == b.intersect(a)
    assert hash(a.intersect(b)) == hash(b.intersect(a))
    assert a.intersect(b).intersect(c) == a.intersect(b.intersect(c))
    assert a.intersect(a) == a
    assert a.intersect(Requirements()) == a
    assert a.add(*two) == a.intersect(b) == Requirements([*one, *two])


@pytest.mark.law
@given(SETS, SETS)
def test_the_intersection_allows_exactly_what_both_allow(one, two):
    a, b = Requirements(one), Requirements(two)
    both = a.intersect(b)

    for labels in EVERY_LABELLING:
        assert a.allows(labels) is all(requirement.matches(labels) for requirement in one)
        assert both.allows(labels) is (a.allows(labels) and b.allows(labels))


@pytest.mark.law
@given(SETS, SETS)
def test_two_are_compatible_if_and_only_if_some_labels_satisfy_both(one, two):
    a, b = Requirements(one), Requirements(two)
    both = a.intersect(b)

    assert a.compatible(b) is b.compatible(a) is both.satisfiable
    assert a.compatible(b) is any(both.allows(labels) for labels in EVERY_LABELLING)


@pytest.mark.law
@given(SETS, st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=2))
def test_a_full_set_of_labels_is_compatible_if_it_is_allowed(requirements, labels):
    assert Requirements(requirements).compatible(Requirements.from_labels(labels)) is Requirements(requirements).allows(
        labels
    )
