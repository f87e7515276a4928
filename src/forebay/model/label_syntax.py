"""What may be a label, and selectors as kubectl writes them: `a=b,c!=d,e in (x,y),!f,g`.

The messages are apimachinery's: people search for them.
"""

import re
from typing import Final

from forebay.model.requirements import LabelOperator, LabelSelector, Requirement, integer

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LONGEST_NAME: Final = 63
_LONGEST_PREFIX: Final = 253

_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)")
_SYMBOLS: Final = frozenset("=!(),<>") | {"==", "!="}
_OPERATORS: Final = {
    "in": LabelOperator.IN,
    "=": LabelOperator.IN,
    "==": LabelOperator.IN,
    "notin": LabelOperator.NOT_IN,
    "!=": LabelOperator.NOT_IN,
    ">": LabelOperator.GT,
    "<": LabelOperator.LT,
}


class InvalidSelector(ValueError):
    pass


def label_value(text: str) -> str:
    """`RTX 4090` as a label can hold it: `RTX-4090`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_LONGEST_NAME].strip("-_.")


def key_problem(key: str) -> str | None:
    """Why `key` cannot be the key of a label or annotation, or None."""
    prefix, slash, name = key.rpartition("/")
    if prefix.count("/"):
        return (
            f"a qualified name {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and not prefix:
        return "prefix part must be non-empty"
    if len(prefix) > _LONGEST_PREFIX:
        return f"prefix part must be no more than {_LONGEST_PREFIX} bytes"
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST_NAME:
        return f"name part must be no more than {_LONGEST_NAME} bytes"
    return None if _NAME.fullmatch(name) else f"name part {_NAME_RULE}"


def value_problem(value: str) -> str | None:
    """Why `value` cannot be the value of a label, or None."""
    if len(value) > _LONGEST_NAME:
        return f"must be no more than {_LONGEST_NAME} bytes"
    return None if not value or _NAME.fullmatch(value) else _VALUE_RULE


def parse_selector(text: str) -> LabelSelector:
    """The empty text is the selector that picks everything."""
    return LabelSelector(match_expressions=_Reader(text).requirements())


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        if not self._is_word(self._next) and self._next not in ("!", ""):
            raise InvalidSelector(f"found '{self._next}', expected: !, identifier, or 'end of string'")
        while self._next:
            try:
                found.append(self._requirement())
            except InvalidSelector as wrong:
                raise InvalidSelector(f"unable to parse requirement: {wrong}") from None
            lexeme = self._take()
            if lexeme not in (",", ""):
                raise InvalidSelector(f"found '{lexeme}', expected: ',' or 'end of string'")
            if lexeme == "," and not self._is_word(self._next) and self._next != "!":
                raise InvalidSelector(f"found '{self._next}', expected: identifier after ','")
        return tuple(sorted(found, key=lambda requirement: requirement.key))

    def _requirement(self) -> Requirement:
        absent = self._next == "!"
        if absent:
            self._take()
        key = self._word()
        if problem := key_problem(key):
            raise InvalidSelector(f'Invalid value: "{key}": {problem}')
        if absent or self._next in (",", ""):
            return Requirement(key, LabelOperator.DOES_NOT_EXIST if absent else LabelOperator.EXISTS)
        lexeme = self._take()
        if lexeme not in _OPERATORS:
            raise InvalidSelector(f"found '{lexeme}', expected: in, notin, =, ==, !=, gt, lt")
        operator = _OPERATORS[lexeme]
        values = self._values() if lexeme in ("in", "notin") else (self._value(),)
        for value in values:
            if problem := value_problem(value):
                raise InvalidSelector(f'values[0][{key}]: Invalid value: "{value}": {problem}')
            if operator in (LabelOperator.GT, LabelOperator.LT) and integer(value) is None:
                raise InvalidSelector(
                    f"values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer"
                )
        return Requirement(key, operator, values)

    def _values(self) -> tuple[str, ...]:
        """A value between commas may be left out: that is the empty value."""
        if (lexeme := self._take()) != "(":
            raise InvalidSelector(f"found '{lexeme}' expected: '('")
        found: set[str] = set()
        while True:
            found.add(self._take() if self._is_word(self._next) else "")
            lexeme = self._take()
            if lexeme == ")":
                return tuple(sorted(found))
            if lexeme != ",":
                raise InvalidSelector(f"found '{lexeme}', expected: ',' or ')'")

    def _value(self) -> str:
        return "" if self._next in (",", "") else self._word()

    def _word(self) -> str:
        lexeme = self._take()
        if not self._is_word(lexeme):
            raise InvalidSelector(f"found '{lexeme}', expected: identifier")
        return lexeme

    @staticmethod
    def _is_word(lexeme: str) -> bool:
        return lexeme != "" and lexeme not in _SYMBOLS

    @property
    def _next(self) -> str:
        """Empty at the end."""
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        lexeme = self._next
        self._at += 1
        return lexeme
