import pytest

from forebay.model.label_syntax import key_problem, value_problem


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
