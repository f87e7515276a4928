"""Selectors: of labels and fields in a request's query, and LabelSelectors inside objects."""

import re
from collections.abc import Callable, Sequence
from typing import Any

from forebay.embedded.api.failures import bad_request
from forebay.embedded.api.kinds import (
    EVENT_KIND,
    EVENT_V1_KIND,
    JOB_KIND,
    NAMESPACE_KIND,
    NODE_KIND,
    POD_KIND,
    REPLICA_SET_KIND,
    SECRET_KIND,
    SIGNING_REQUEST_KIND,
    ApiKind,
)
from forebay.embedded.api.objects import Json, Labels

Predicate = Callable[[Json], bool]

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s,!=()<>]+)
      | (?P<key>[^\s,!=()<>]+)\s*(?:
            (?P<set>in|notin)\s*\((?P<values>[^()]*)\)
          | (?P<compare>==|=|!=|<|>)\s*(?P<value>[^\s,()=!<>]*)
        )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)

_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = ("reason", "type", "source")
#: Selectable fields besides name and namespace, with the stored path where it differs.
_FIELDS: dict[str, dict[str, str]] = {
    SIGNING_REQUEST_KIND.storage: {"spec.signerName": ""},
    POD_KIND.storage: dict.fromkeys(
        (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ),
        "",
    ),
    NODE_KIND.storage: {"spec.unschedulable": ""},
    NAMESPACE_KIND.storage: {"status.phase": ""},
    SECRET_KIND.storage: {"type": ""},
    JOB_KIND.storage: {"status.successful": "status.succeeded"},
    REPLICA_SET_KIND.storage: {"status.replicas": ""},
    EVENT_KIND.storage: {
        **{f"involvedObject.{field}": "" for field in _REFERENCE},
        **dict.fromkeys(_EVENT_FIELDS, ""),
        "source": "source.component",
        "reportingComponent": "",
    },
}
_EVENT_V1_FIELDS = {
    **{f"regarding.{field}": f"involvedObject.{field}" for field in _REFERENCE},
    **dict.fromkeys(_EVENT_FIELDS, ""),
    "reportingController": "reportingComponent",
}
#: Boolean fields whose absence means false.
_FLAGS = frozenset({"spec.unschedulable", "spec.hostNetwork"})


def label_selector(text: str) -> Predicate | None:
    """A predicate for `a=b,c!=d,e in (x,y),!f`; None where every object matches."""
    tests = _label_tests(text)
    if not tests:
        return None

    def matches(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _label_tests(text: str) -> list[Callable[[Labels], bool]]:
    tests: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(text.rstrip()):
        found = _REQUIREMENT.match(text, position)
        if found is None:
            raise bad_request(f"unable to parse requirement: found '{text[position:]}' expected: a label requirement")
        position = found.end()
        if found["absent"]:
            tests.append(_test(found["absent_key"], "DoesNotExist", ()))
        elif found["set"]:
            values = [value.strip() for value in found["values"].split(",")]
            tests.append(_test(found["key"], "In" if found["set"] == "in" else "NotIn", values))
        elif found["compare"]:
            operator = {"!=": "NotIn", "<": "Lt", ">": "Gt"}.get(found["compare"], "In")
            tests.append(_test(found["key"], operator, [found["value"]]))
        else:
            tests.append(_test(found["key"], "Exists", ()))
    return tests


def _test(key: str, operator: str, values: Sequence[str]) -> Callable[[Labels], bool]:
    allowed = frozenset(values)
    if operator == "In":
        return lambda labels: key in labels and labels[key] in allowed
    if operator == "NotIn":
        return lambda labels: key not in labels or labels[key] not in allowed
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    if operator in {"Gt", "Lt"}:
        try:
            bound = int(values[0])
        except ValueError:
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise bad_request(f'values[0][{key}]: Invalid value: "{values[0]}": {why}') from None
        above = operator == "Gt"

        def compares(labels: Labels) -> bool:
            label = labels.get(key, "")
            if not label.lstrip("-").isdigit():
                return False
            return int(label) > bound if above else int(label) < bound

        return compares
    raise bad_request(f'"{operator}" is not a valid label selector operator')


def selector_matches(selector: Json, labels: Labels) -> bool:
    """Whether a LabelSelector, such as that of a PDB or ReplicaSet, matches. An empty one matches all labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    expressions = selector.get("matchExpressions") or ()
    return all(_test(one["key"], one["operator"], one.get("values") or ())(labels) for one in expressions)


def field_selector(kind: ApiKind, text: str, selectable: Sequence[str] = ()) -> Predicate | None:
    """A predicate of stored objects for `spec.nodeName=n1,status.phase!=Failed`; None where every object matches."""
    tests: list[tuple[str, bool, str]] = []
    fields = _EVENT_V1_FIELDS if kind is EVENT_V1_KIND else _FIELDS.get(kind.storage, {})
    for part in filter(None, re.split(r"(?<!\\),", text)):
        name, equal, value = _field_test(part)
        if name not in {"metadata.name", "metadata.namespace", *fields, *selectable}:
            if kind.custom or kind.storage in _FIELDS:
                raise bad_request(f"field label not supported: {name}")
            only = '"metadata.name", "metadata.namespace"'
            raise bad_request(f'"{name}" is not a known field selector: only {only}')
        tests.append((fields.get(name) or name, equal, value))
    if not tests:
        return None
    return lambda obj: all((_field(obj, path) == value) is equal for path, equal, value in tests)


def _field_test(part: str) -> tuple[str, bool, str]:
    found = re.fullmatch(r"([^=!]+)(!=|==|=)(.*)", part.strip(), re.DOTALL)
    if found is None:
        raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
    return found[1], found[2] != "!=", re.sub(r"\\([\\,=])", r"\1", found[3])


def _field(obj: Json, path: str) -> str:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return "false" if path in _FLAGS else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
