import pytest

from forebay.model.requirements import (
    Effect,
    LabelOperator,
    LabelSelector,
    NodeSelectorTerm,
    Requirement,
    Taint,
    Toleration,
    integer,
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


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        (Requirement("a", IN, ("b",)), "a=b"),
        (Requirement("a", IN, ("y", "x")), "a in (x,y)"),
        (Requirement("a", NOT_IN, ("b",)), "a!=b"),
        (Requirement("a", NOT_IN, ("x", "y")), "a notin (x,y)"),
        (Requirement("a", EXISTS), "a"),
        (Requirement("a", ABSENT), "!a"),
        (Requirement("cores", GT, ("8",)), "cores>8"),
        (Requirement("cores", LT, ("64",)), "cores<64"),
    ],
)
def test_a_requirement_is_written_in_the_syntax_of_kubectl(requirement, text):
    assert str(requirement) == text


def test_the_empty_selector_matches_everything_and_every_part_must_hold():
    assert LabelSelector().matches({})
    assert LabelSelector().empty
    both = LabelSelector({"gpu": "h100"}, (Requirement("zone", IN, ("a", "b")),))
    assert both.matches(H100)
    assert not both.matches({"gpu": "h100", "zone": "c"})
    assert not both.matches({"gpu": "a100", "zone": "a"})
    assert str(both) == "gpu=h100,zone in (a,b)"


def test_a_node_term_requires_labels_and_the_name_and_an_empty_one_matches_no_node():
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


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("", None),
        (" 7", None),
        ("1_0", None),
    ],
)
def test_integers_are_those_that_go_reads(text, number):
    assert integer(text) == number


def test_a_selector_is_told_with_its_labels_in_order():
    assert str(LabelSelector({"b": "2", "a": "1"})) == "a=1,b=2"
