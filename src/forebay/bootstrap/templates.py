"""Templates of boot payloads: `{{.NodeName}}` stands for a value. No other part of Go's template language is known."""

import re
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = re.compile(r"\{\{-?\s*\.([A-Za-z]+)\s*-?\}\}")


class UnknownVariable(ValueError):
    """The template uses a variable that has no value. The text says which, and what there is."""


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """The template with its variables replaced. Raises `UnknownVariable`; its text holds no value."""
    unknown = sorted({name for name in _VARIABLE.findall(template) if name not in values})
    if unknown:
        raise UnknownVariable(
            f"The template uses {', '.join(unknown)}, which this release does not fill in; there are: "
            f"{', '.join(sorted(values))}."
        )
    return _VARIABLE.sub(lambda found: values[found[1]], template)
