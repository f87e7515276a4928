from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.model.label_syntax import InvalidSelector, key_problem, parse_selector, value_problem
from forebay.model.requirements import LabelOperator, LabelSelector, Requirement

IN, NOT_IN, EXISTS, ABSENT, GT, LT = LabelOperator


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        ("  ", []),
        ("a=b", [Requirement("a", IN, ("b",))]),
        ("a==b", [Requirement("a", IN, ("b",))]),
        (" a = b ", [Requirement("a", IN, ("b",))]),
        ("a=", [Requirement("a", IN, ("",))]),
        ("a=,b", [Requirement("a", IN, ("",)), Requirement("b", EXISTS)]),
        ("a!=b", [Requirement("a", NOT_IN, ("b",))]),
        ("a", [Requirement("a", EXISTS)]),
        ("!a", [Requirement("a", ABSENT)]),
        ("a in (x,y)", [Requirement("a", IN, ("x", "y"))]),
        ("a in(y, x ,x)", [Requirement("a", IN, ("x", "y"))]),
        ("a notin (x)", [Requirement("a", NOT_IN, ("x",))]),
        ("a in ()", [Requirement("a", IN, ("",))]),
        ("a in (,x)", [Requirement("a", IN, ("", "x"))]),
        ("a in (x,)", [Requirement("a", IN, ("", "x"))]),
        ("a in (x,,y)", [Requirement("a", IN, ("", "x", "y"))]),
        ("cores>8,cores<64", [Requirement("cores", GT, ("8",)), Requirement("cores", LT, ("64",))]),
        ("in=notin", [Requirement("in", IN, ("notin",))]),
        ("in in (in)", [Requirement("in", IN, ("in",))]),
        ("forebay.dev/pool=x", [Requirement("forebay.dev/pool", IN, ("x",))]),
        (
            "z=1,a!=d,e in (x,y),!f,g",
            [
                Requirement("a", NOT_IN, ("d",)),
                Requirement("e", IN, ("x", "y")),
                Requirement("f", ABSENT),
                Requirement("g", EXISTS),
                Requirement("z", IN, ("1",)),
            ],
        ),
    ],
)
def test_selectors_are_read_as_kubectl_writes_them(text, requirements):
    assert parse_selector(text) == LabelSelector(match_expressions=tuple(requirements))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(b", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a>b", "the value must be an integer"),
        ("-a=b", 'Invalid value: "-a": name part must consist of alphanumeric characters'),
        ("a=b_", 'Invalid value: "b_": a valid label must be an empty string or consist of'),
        ("/a", "prefix part must be non-empty"),
    ],
)
def test_a_selector_that_cannot_be_read_says_where_it_stops_making_sense(text, complaint):
    with pytest.raises(InvalidSelector) as refused:
        parse_selector(text)
    assert complaint in str(refused.value)


@pytest.mark.parametrize("key", ["a", "a.b", "A_b-c", "example.com/a", "1", "a" * 63, "a" * 253 + "/b"])
def test_keys_that_may_be_used(key):
    assert key_problem(key) is None


@pytest.mark.parametrize(
    "key", ["", "a/", "/a", "a/b/c", "-a", "a-", "a b", "A.com/x", "a" * 64, "a" * 254 + "/b", "é", "a\n"]
)
def test_keys_that_may_not(key):
    assert key_problem(key)


@pytest.mark.parametrize("value", ["", "a", "1.2", "A_b-c", "x" * 63])
def test_values_that_may_be_used(value):
    assert value_problem(value) is None


@pytest.mark.parametrize("value", ["-", "a b", "a/b", ".a", "a" * 64, "é", "a\n"])
def test_values_that_may_not(value):
    assert value_problem(value)


WORDS = st.text("abz09", min_size=1, max_size=5) | st.sampled_from(["a-b", "a.b", "in", "notin", "x_1"])
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement, WORDS, st.sampled_from([IN, NOT_IN]), st.sets(WORDS, min_size=1, max_size=4).map(sorted).map(tuple)
    ),
    st.builds(Requirement, WORDS, st.sampled_from([EXISTS, ABSENT])),
    st.builds(Requirement, WORDS, st.sampled_from([GT, LT]), st.integers(0, 99).map(lambda n: (str(n),))),
)


@pytest.mark.law
@given(st.lists(REQUIREMENTS, max_size=5, unique_by=lambda requirement: requirement.key))
def test_a_selector_that_is_written_down_is_read_back_the_same(requirements):
    selector = LabelSelector(match_expressions=tuple(sorted(requirements, key=lambda one: one.key)))

    assert parse_selector(str(selector)) == selector


@pytest.mark.law
@given(st.text(alphabet="ab1=!,()<> in", max_size=15))
def test_any_text_is_either_read_or_refused(text):
    with suppress(InvalidSelector):
        parse_selector(text)
