"""Templates of boot payloads."""

import pytest

from forebay.bootstrap.templates import UnusableTemplate, filled_in, template_problem, variables_of

VALUES = {"NodeName": "gpu-1", "BootstrapToken": "abcdef.0123456789abcdef"}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("name: {{.NodeName}}", "name: gpu-1"),
        ("{{ .NodeName }} {{- .NodeName -}}", "gpu-1 gpu-1"),
        ("no variable, ${SHELL} and }}", "no variable, ${SHELL} and }}"),
        ("docker inspect -f '{{\"{{\"}}.State}}'", "docker inspect -f '{{.State}}'"),
        (
            "## template: jinja\n#cloud-config\n# {{ v1.region }} {{.NodeName}}",
            "## template: jinja\n#cloud-config\n# {{ v1.region }} gpu-1",
        ),
    ],
)
def test_variables_are_replaced_and_all_else_is_left_alone(template, text):
    assert filled_in(template, VALUES) == text


def test_a_value_is_not_a_template():
    assert filled_in("{{.NodeName}}", {"NodeName": "{{.BootstrapToken}}", "BootstrapToken": "x"}) == (
        "{{.BootstrapToken}}"
    )


def test_an_unknown_variable_is_named_and_no_value_is_shown():
    with pytest.raises(UnusableTemplate) as caught:
        filled_in("{{.MachineToken}} {{.NodeName}} {{.ClusterCA}}", VALUES)
    assert str(caught.value) == (
        "The template uses ClusterCA, MachineToken, which has no value here; there are: BootstrapToken, NodeName."
    )


@pytest.mark.parametrize(
    "logic",
    [
        "{{if .NodeName}}x{{end}}",
        "{{range .Nodes}}{{end}}",
        "{{ .NodeName | quote }}",
        '{{printf "%s" .NodeName}}',
        "{{ notours }}",
        "{{ .a.b }}",
        "{{/* a comment */}}",
        "{{if\n.NodeName}}x{{end}}",
    ],
)
def test_logic_is_refused_with_what_to_write(logic):
    problem = template_problem(f"a: 1\n{logic}\n", VALUES)
    assert problem is not None
    assert "only variables such as {{.NodeName}} are filled in" in problem


def test_the_variables_of_a_template_are_known_without_values():
    assert variables_of("{{.NodeName}} {{ .BootstrapToken -}} {{if .X}}") == {"NodeName", "BootstrapToken"}
