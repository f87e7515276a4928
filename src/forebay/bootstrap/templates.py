"""Templates of boot payloads: `{{.NodeName}}` stands for a value. No other part of Go's template language is known."""

import re
from collections.abc import Collection, Mapping
from typing import Final

_ACTION: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_VARIABLE: Final = re.compile(r"-?\s*\.([A-Za-z]+)\s*-?")
#: Go's way to write two braces that begin nothing.
_BRACES: Final = re.compile(r"""-?\s*["`']\{\{["`']\s*-?""")
#: First line of cloud-init user data whose braces are cloud-init's own.
_JINJA: Final = re.compile(r"##\s*template:\s*jinja")


class UnusableTemplate(ValueError):
    """The template uses a variable that has no value, or logic. The text says which, and what there is."""


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """The template with its variables replaced. Raises `UnusableTemplate`; its text holds no value."""
    if (problem := template_problem(template, values)) is not None:
        raise UnusableTemplate(problem)
    return _ACTION.sub(lambda found: _replaced(found, values), template)


def variables_of(template: str) -> frozenset[str]:
    """Names of the variables that the template uses."""
    found = (_VARIABLE.fullmatch(action) for action in _ACTION.findall(template))
    return frozenset(each[1] for each in found if each is not None)


def template_problem(template: str, known: Collection[str]) -> str | None:
    """What must be corrected in the template before it can be filled in; None: nothing."""
    jinja = _JINJA.match(template) is not None
    for action in _ACTION.findall(template):
        if (
            _VARIABLE.fullmatch(action)
            or _BRACES.fullmatch(action)
            or (jinja and not action.lstrip("- ").startswith("."))
        ):
            continue
        return (
            f"The template uses {{{{{action}}}}}: only variables such as {{{{.NodeName}}}} are filled in, without "
            'logic or functions. Two braces that are meant for something else are written {{"{{"}}.'
        )
    unknown = sorted(variables_of(template) - set(known))
    if unknown:
        return (
            f"The template uses {', '.join(unknown)}, which has no value here; there are: {', '.join(sorted(known))}."
        )
    return None


def _replaced(found: re.Match[str], values: Mapping[str, str]) -> str:
    if (variable := _VARIABLE.fullmatch(found[1])) is not None:
        return values[variable[1]]
    return "{{" if _BRACES.fullmatch(found[1]) else found[0]
