"""Templates of boot payloads."""

import pytest

from forebay.bootstrap.templates import UnknownVariable, filled_in

VALUES = {"NodeName": "gpu-1", "BootstrapToken": "abcdef.0123456789abcdef"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("name: {{.NodeName}}", "name: gpu-1"),
        ("{{ .NodeName }} {{- .NodeName -}}", "gpu-1 gpu-1"),
        ("no variable, ${SHELL} and {{ notours }}", "no variable, ${SHELL} and {{ notours }}"),
    ],
)
def test_variables_are_replaced_and_all_else_is_left_alone(template, text):
    assert filled_in(template, VALUES) == text


def test_a_value_is_not_a_template():
    assert filled_in("{{.NodeName}}", {"NodeName": "{{.BootstrapToken}}", "BootstrapToken": "x"}) == (
        "{{.BootstrapToken}}"
    )


def test_an_unknown_variable_is_named_and_no_value_is_shown():
    with pytest.raises(UnknownVariable) as caught:
        filled_in("{{.MachineToken}} {{.NodeName}} {{.ClusterCA}}", VALUES)
    assert str(caught.value) == (
        "The template uses ClusterCA, MachineToken, which this release does not fill in; there are: BootstrapToken, "
        "NodeName."
    )
