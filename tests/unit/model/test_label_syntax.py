import pytest

from forebay.model.label_syntax import key_problem, label_value, value_problem


@pytest.mark.parametrize("key", ["a", "a.b", "A_b-c", "example.com/a", "1", "a" * 63, "a" * 253 + "/b"])
def test_valid_label_keys(key):
    assert key_problem(key) is None


@pytest.mark.parametrize(
    "key", ["", "a/", "/a", "a/b/c", "-a", "a-", "a b", "A.com/x", "a" * 64, "a" * 254 + "/b", "é", "a\n"]
)
def test_invalid_label_keys(key):
    assert key_problem(key)


@pytest.mark.parametrize("value", ["", "a", "1.2", "A_b-c", "x" * 63])
def test_valid_label_values(value):
    assert value_problem(value) is None


@pytest.mark.parametrize("value", ["-", "a b", "a/b", ".a", "a" * 64, "é", "a\n"])
def test_invalid_label_values(value):
    assert value_problem(value)


def test_any_name_becomes_a_valid_label_value():
    assert label_value("RTX 4090") == "RTX-4090"
    assert label_value("(A100) SXM/80 GB!") == "A100-SXM-80-GB"
    assert label_value("x" * 70) == "x" * 63
