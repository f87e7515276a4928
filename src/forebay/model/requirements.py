"""Label requirements, selectors, taints and tolerations, with the semantics of Kubernetes."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,19})", re.ASCII)
_INT64: Final = range(-(2**63), 2**63)

NODE_NAME_FIELD: Final = "metadata.name"


def integer(text: str) -> int | None:
    """The integer that Go's ParseInt reads, or None. Python's `int` would also take spaces and underscores."""
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if number in _INT64 else None


class LabelOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


class Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: LabelOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case LabelOperator.IN:
                return value in self.values
            case LabelOperator.NOT_IN:
                return value not in self.values
            case LabelOperator.EXISTS:
                return value is not None
            case LabelOperator.DOES_NOT_EXIST:
                return value is None
            case LabelOperator.GT | LabelOperator.LT:
                bound = self.bound
                number = integer(value) if value is not None else None
                if bound is None or number is None:
                    return False
                return number > bound if self.operator is LabelOperator.GT else number < bound

    @property
    def bound(self) -> int | None:
        """The integer that Gt and Lt compare with; None if there is not exactly one, and then nothing matches."""
        return integer(self.values[0]) if len(self.values) == 1 else None

    def __str__(self) -> str:
        """The requirement in the syntax of kubectl's --selector."""
        values = ",".join(sorted(self.values))
        match self.operator:
            case LabelOperator.IN:
                return f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})"
            case LabelOperator.NOT_IN:
                return f"{self.key}!={values}" if len(self.values) == 1 else f"{self.key} notin ({values})"
            case LabelOperator.EXISTS:
                return self.key
            case LabelOperator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case LabelOperator.GT | LabelOperator.LT:
                return f"{self.key}{'>' if self.operator is LabelOperator.GT else '<'}{values}"


class LabelSelector(msgspec.Struct, frozen=True):
    """A label selector; both parts must hold. The empty selector matches everything."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.match_labels.items():
            if labels.get(key) != value:
                return False
        return all(requirement.matches(labels) for requirement in self.match_expressions)

    @property
    def empty(self) -> bool:
        return not self.match_labels and not self.match_expressions

    def __str__(self) -> str:
        labels = [f"{key}={value}" for key, value in sorted(self.match_labels.items())]
        return ",".join([*labels, *map(str, self.match_expressions)])


class NodeSelectorTerm(msgspec.Struct, frozen=True):
    """All expressions (on labels) and fields (on metadata.name) must hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str], name: str) -> bool:
        if not self.match_expressions and not self.match_fields:
            return False
        return all(requirement.matches(labels) for requirement in self.match_expressions) and all(
            _field_matches(requirement, name) for requirement in self.match_fields
        )


def _field_matches(requirement: Requirement, name: str) -> bool:
    if len(requirement.values) != 1:
        return False
    equal = requirement.values[0] == (name if requirement.key == NODE_NAME_FIELD else "")
    match requirement.operator:
        case LabelOperator.IN:
            return equal
        case LabelOperator.NOT_IN:
            return not equal
        case _:
            return False


class PreferredTerm(msgspec.Struct, frozen=True):
    weight: int
    term: NodeSelectorTerm


class Effect(StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Taint(msgspec.Struct, frozen=True):
    key: str
    value: str = ""
    effect: str = Effect.NO_SCHEDULE

    @property
    def repels(self) -> bool:
        """Whether the taint keeps new pods away; PreferNoSchedule does not."""
        return self.effect in (Effect.NO_SCHEDULE, Effect.NO_EXECUTE)

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True):
    #: Empty: all keys, which the API allows with Exists only.
    key: str = ""
    #: Equal, Exists, Lt or Gt. A string, so that pods with operators of later Kubernetes versions can be read.
    operator: str = "Equal"
    value: str = ""
    #: Empty: all effects.
    effect: str = ""
    toleration_seconds: int | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator:
            case "" | "Equal":
                return self.value == taint.value
            case "Exists":
                return True
            case "Lt" | "Gt":
                # Since Kubernetes 1.35, behind a feature gate; servers without it accept no such pod.
                bound, number = integer(self.value), integer(taint.value)
                if bound is None or number is None:
                    return False
                return number < bound if self.operator == "Lt" else number > bound
            case _:
                return False


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)
