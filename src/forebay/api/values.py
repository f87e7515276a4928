"""Types of single values as users write them: quantities, dollars, durations, URLs, names.

Values stay as written (`int | str`, `str`), because an object that is read and written back must not change. Code that
needs them parses them: quantities and dollars by `forebay.model.quantities`, durations by `duration()` below.
"""

import re
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta

from forebay.api.rules import INT32, ValidationRule, checked

NEVER: Final = "Never"

#: Longer durations count as this one: no machine or window lasts longer, and dates far beyond it do not exist.
LONGEST_DURATION: Final = timedelta(days=3652)

_DURATION: Final = r"(0|([0-9]{1,7}([.][0-9]{1,6})?(ms|s|m|h))+)"
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": Fraction(1, 1000), "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600)}

IntOrString = int | Annotated[str, Meta(max_length=32)]
#: A quantity or dollars in a status, which only Forebay writes, with all digits.
Figure = int | Annotated[str, Meta(max_length=64)]

QuantityText = Annotated[
    IntOrString,
    checked(
        ValidationRule(
            "type(self) == int ? self >= 0 : (isQuantity(self) && !self.startsWith('-'))",
            "must be a Kubernetes quantity that is not negative, such as 8, 500m or 64Gi",
        )
    ),
]
PositiveQuantity = Annotated[
    IntOrString,
    checked(
        ValidationRule(
            "type(self) == int ? self > 0 : (isQuantity(self) && quantity(self).isGreaterThan(quantity('0')))",
            'must be a quantity greater than 0, such as 100, "1.5" or 500m',
        )
    ),
]

_DOLLARS: Final = "^[0-9]{1,9}([.][0-9]{1,6})?$"
Dollars = Annotated[
    IntOrString,
    checked(
        ValidationRule(
            f"type(self) == int ? self >= 0 : self.matches('{_DOLLARS}')",
            'must be US dollars as a plain decimal number that is not negative, such as 10 or "2.50"',
        )
    ),
]
PositiveDollars = Annotated[
    IntOrString,
    checked(
        ValidationRule(
            f"type(self) == int ? self > 0 : (self.matches('{_DOLLARS}') && self.matches('[1-9]'))",
            'must be US dollars greater than 0 as a plain decimal number, such as 500 or "99.50"',
        )
    ),
]

Duration = Annotated[
    str,
    Meta(max_length=32),
    checked(ValidationRule(f"self.matches('^{_DURATION}$')", "must be a duration such as 30s, 5m or 1h30m")),
]
DurationOrNever = Annotated[
    str,
    Meta(max_length=32),
    checked(
        ValidationRule(
            f"self.matches('^({NEVER}|{_DURATION})$')", f"must be a duration such as 30s, 5m or 1h30m, or {NEVER}"
        )
    ),
]

Url = Annotated[
    str,
    Meta(max_length=2048),
    checked(
        # No regular expression: with hundreds of machines it would exceed the API server's cost limit for rules.
        ValidationRule(
            "(self.startsWith('http://') || self.startsWith('https://'))"
            " && !self.endsWith('://') && !self.contains(' ')",
            "must be a URL that starts with http:// or https://",
        )
    ),
]

Count = Annotated[int, Meta(ge=0, le=2**31 - 1), INT32]
PositiveCount = Annotated[int, Meta(ge=1, le=2**31 - 1), INT32]

_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED: Final = f"({_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
ObjectName = Annotated[str, Meta(min_length=1, max_length=253, pattern=f"^{_SUBDOMAIN}$")]
NamespaceName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
LabelKey = Annotated[str, Meta(min_length=1, max_length=317, pattern=f"^{_QUALIFIED}$")]
LabelValue = Annotated[str, Meta(max_length=63, pattern="^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]
#: Such as `nvidia.com/gpu` or `cpu`: Kubernetes' rule for resource names is its rule for label keys.
ResourceName = LabelKey
ShortText = Annotated[str, Meta(min_length=1, max_length=253)]


class NotADuration(ValueError):
    def __init__(self, text: str) -> None:
        super().__init__(f'"{text}" is not a duration: write it like 30s, 5m or 1h30m')


@lru_cache(maxsize=1024)
def duration(text: str) -> timedelta:
    """The duration of a text such as `1h30m`, as Go reads it but without signs and units below a millisecond.

    At most `LONGEST_DURATION`, so that a date plus or minus a duration is always a date.
    """
    if not re.fullmatch(_DURATION, text, re.ASCII):
        raise NotADuration(text)
    seconds = sum(Fraction(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
    return timedelta(microseconds=min(int(seconds * 1_000_000), LONGEST_DURATION // timedelta(microseconds=1)))


def duration_text(span: timedelta) -> str:
    """The text that `duration` reads as this span, to the millisecond."""
    milliseconds = span // timedelta(milliseconds=1)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


def duration_or_never(text: str) -> timedelta | None:
    """The duration of a text, or None for `Never`."""
    return None if text == NEVER else duration(text)
