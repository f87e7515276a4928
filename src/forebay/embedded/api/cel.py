"""CEL validation rules of CRDs, evaluated by cel-python with the functions that Kubernetes adds to CEL.

A rule that does not compile makes its CRD invalid; a rule that fails to evaluate makes the object invalid.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import msgspec

from forebay.embedded.api.failures import shown
from forebay.embedded.api.objects import Json
from forebay.model.notation import InvalidQuantity, Quantity

_MACROS = {"has": 1, "dyn": 1, "all": 2, "exists": 2, "exists_one": 2, "map": 2, "filter": 2}
_KEYWORDS = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
#: cel-python needs milliseconds for a rule, and most writes ask what was asked before.
_MOST_VERDICTS = 2000
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))


class BadRule(Exception):
    """A rule that does not compile or evaluate, or uses what this server does not support; the message says which."""


@cache
def _celpy() -> Any:
    try:
        import celpy  # noqa: PLC0415 (half a second, and only CRDs with rules need it)
    except ImportError as error:
        raise BadRule("CEL rules need the package cel-python: pip install 'forebay[embedded]'") from error
    return celpy


@cache
def _environment() -> Any:
    before = sys.getrecursionlimit()
    environment = _celpy().Environment()
    # Creating a celpy environment sets the recursion limit, even to a lower one.
    sys.setrecursionlimit(max(before, sys.getrecursionlimit()))
    return environment


@lru_cache(maxsize=1024)
def _program(source: str) -> Any:
    celpy = _celpy()
    try:
        tree = _environment().compile(source)
    except celpy.CELParseError as error:
        raise BadRule(
            f"compilation failed: ERROR: <input>:{error.line}:{error.column}: Syntax error: {source}"
        ) from None
    functions = _functions()
    known = functions.keys() | celpy.evaluation.base_functions.keys() | _MACROS.keys()
    for call in tree.iter_subtrees():
        if call.data not in {"ident_arg", "dot_ident_arg", "member_dot_arg"}:
            continue
        name = next(str(token) for token in call.children if getattr(token, "type", "") == "IDENT")
        if name not in known:
            raise BadRule(f"compilation failed: undeclared reference to '{name}'")
        last = call.children[-1]
        count = len(last.children) if getattr(last, "data", "") == "exprlist" else 0
        if call.data == "member_dot_arg" and _MACROS.get(name, count) != count:
            raise BadRule(f"compilation failed: {name}() with {count} arguments is not supported by this server")
    return _environment().program(tree, functions=functions)


class CompiledRule:
    """One entry of `x-kubernetes-validations`, compiled."""

    def __init__(self, rule: Json) -> None:
        self.source: str = rule["rule"]
        if rule.get("optionalOldSelf"):
            raise BadRule("optionalOldSelf is not supported by this server")
        _program(self.source)
        self.reason: str = rule.get("reason") or "FieldValueInvalid"
        self.field_path: str = rule.get("fieldPath", "")
        #: A transition rule, which uses oldSelf and is evaluated only in updates.
        self.is_transition = re.search(r"\boldSelf\b", self.source) is not None
        self._message = rule.get("message") or f"failed rule: {self.source}"
        self._expression: str = rule.get("messageExpression", "")
        if self._expression:
            _program(self._expression)
        #: By schema, value and value before.
        self._verdicts: dict[tuple[bytes, bytes, bytes], str | None] = {}

    def violation(self, schema: Json, value: Any, old: Any = None) -> str | None:
        """The message where the value violates the rule, else None. The same question is evaluated once."""
        encode = msgspec.json.encode
        question = (_text(schema), encode(value), encode(old) if self.is_transition else b"")
        if question not in self._verdicts:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[question] = self._judge(schema, value, old)
        return self._verdicts[question]

    def _judge(self, schema: Json, value: Any, old: Any) -> str | None:
        try:
            names = {"self": _to_cel(schema, value)}
            if self.is_transition:
                names["oldSelf"] = _to_cel(schema, old)
            holds = _evaluate(self.source, names)
        except BadRule as error:
            return f"rule evaluation error: {error}"
        if not isinstance(holds, _celpy().celtypes.BoolType | bool):
            return f"rule evaluation error: {self.source} gives {type(holds).__name__}, not a boolean"
        return None if holds else self._failure_message(names)

    def _failure_message(self, names: Mapping[str, Any]) -> str:
        if not self._expression:
            return self._message
        try:
            return str(_evaluate(self._expression, names))
        except BadRule:
            return self._message


#: Texts of schemas by identity; with the schemas, so that no other gets the identity of one.
_texts: dict[int, tuple[Json, bytes]] = {}


def _text(schema: Json) -> bytes:
    """The schema as bytes that are made once: it is large, and nobody changes it."""
    if id(schema) not in _texts:
        if len(_texts) >= _MOST_VERDICTS:
            _texts.clear()
        _texts[id(schema)] = (schema, msgspec.json.encode(schema))
    return _texts[id(schema)][1]


_compiled: dict[str, CompiledRule] = {}
#: Rules of parts of schemas by identity, as above.
_rules: dict[int, tuple[Json, list[CompiledRule]]] = {}


def compiled_rules(schema: Json) -> list[CompiledRule]:
    """The rules of this part of a schema, each compiled once. Raises `BadRule`."""
    if "x-kubernetes-validations" not in schema:
        return []
    if id(schema) not in _rules:
        if len(_rules) >= _MOST_VERDICTS:
            _rules.clear()
        _rules[id(schema)] = (schema, _compile(schema))
    return _rules[id(schema)][1]


def _compile(schema: Json) -> list[CompiledRule]:
    found = []
    for entry in schema["x-kubernetes-validations"] or ():
        key = shown(entry)
        if key not in _compiled:
            _compiled[key] = CompiledRule(entry)
        found.append(_compiled[key])
    return found


def _evaluate(source: str, names: Mapping[str, Any]) -> Any:
    celpy = _celpy()
    try:
        return _program(source).evaluate(dict(names))
    except (celpy.CELEvalError, celpy.evaluation.CELUnsupportedError, InvalidQuantity, ValueError, TypeError) as error:
        # cel-python lets some of Python's own errors through; the first argument is its message.
        raise BadRule(str(error.args[0] if error.args else error).partition(" (in activation")[0]) from None


def _to_cel(schema: Json, value: Any) -> Any:
    try:
        return to_cel(schema, value)
    except (ValueError, OverflowError) as error:
        raise BadRule(f"{error} in {value!r}") from None


def to_cel(schema: Json, value: Any) -> Any:
    """A JSON value as a CEL value, typed by its schema: a `number` is a double even where it is written as 1."""
    types = _celpy().celtypes
    if value is None:
        return None
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
        return types.MapType(
            {
                types.StringType(_escaped(key) if key in properties else key): to_cel(
                    properties.get(key) or (rest if isinstance(rest, dict) else {}), item
                )
                for key, item in value.items()
            }
        )
    if isinstance(value, list):
        return types.ListType([to_cel(schema.get("items") or {}, item) for item in value])
    if isinstance(value, bool):
        return types.BoolType(value)
    if isinstance(value, str):
        typed = {"date-time": types.TimestampType, "duration": types.DurationType}
        return typed.get(schema.get("format", ""), types.StringType)(value)
    if schema.get("type") == "number" or isinstance(value, float):
        return types.DoubleType(value)
    return types.IntType(value)


def _escaped(name: str) -> str:
    if name in _KEYWORDS:
        return f"__{name}__"
    for part, escape in _ESCAPES:
        name = name.replace(part, escape)
    return name


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Functions that Kubernetes adds to CEL, as far as CRDs here use them; any other makes its CRD invalid."""
    types = _celpy().celtypes
    boolean, integer, text, array = types.BoolType, types.IntType, types.StringType, types.ListType

    def is_quantity(value: str) -> Any:
        try:
            Quantity.parse(str(value))
        except InvalidQuantity:
            return boolean(False)
        return boolean(True)

    return {
        "quantity": lambda value: Quantity.parse(str(value)),
        "isQuantity": is_quantity,
        "isGreaterThan": lambda left, right: boolean(left.nano > right.nano),
        "isLessThan": lambda left, right: boolean(left.nano < right.nano),
        "compareTo": lambda left, right: integer((left.nano > right.nano) - (left.nano < right.nano)),
        "asInteger": lambda value: integer(value.value),
        "isInteger": lambda value: boolean(value.nano % 10**9 == 0),
        "sign": lambda value: integer((value.nano > 0) - (value.nano < 0)),
        "split": lambda value, by: array([text(part) for part in str(value).split(str(by))]),
        "join": lambda parts, by="": text(str(by).join(parts)),
        "lowerAscii": lambda value: text(value.lower()),
        "upperAscii": lambda value: text(value.upper()),
        "trim": lambda value: text(value.strip()),
        "replace": lambda value, old, new: text(value.replace(old, new)),
        "substring": lambda value, start, end=None: text(str(value)[start:end]),
        "indexOf": lambda value, part: integer(str(value).find(str(part))),
        "isSorted": lambda values: boolean(all(not later < earlier for earlier, later in pairwise(values))),
        "sum": lambda values: sum(values[1:], start=values[0]) if values else integer(0),
        "max": max,
        "min": min,
    }
