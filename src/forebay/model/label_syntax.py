"""Syntax of label keys and values. The messages are those of apimachinery, because people search for them."""

import re
from functools import lru_cache
from typing import Final

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


# A price table repeats few different names thousands of times.
@lru_cache(maxsize=16_384)
def label_value(text: str) -> str:
    """`text` as a valid label value: `RTX 4090` becomes `RTX-4090`."""
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
