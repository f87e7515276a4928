"""Machines named by environment variables. Every variable that ends in `_GPU_COUNT` defines a group: one machine.

A group has the fields of `machines` in a GPUNodeClass, under the same rules; a test keeps both in step.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta

from forebay.api.machines import Machine
from forebay.api.names import GROUP
from forebay.api.parts import NodeLabels, SecretKeyRef, SecretRef, TaintEffect, Taints
from forebay.api.values import NotADuration, ObjectName, ShortText, Url, duration
from forebay.model.label_syntax import key_problem, value_problem
from forebay.model.quantities import InvalidQuantity, Quantity
from forebay.model.requirements import integer

GROUP_SUFFIX: Final = "_GPU_COUNT"
_ENDPOINTS: Final = ("_SCALE_UP_ENDPOINT", "_SCALE_DOWN_ENDPOINT")
#: How much alike two names must be for one to be taken for the other: 1 is equal.
_LIKE: Final = 0.8


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of valid groups, and the problems of the others."""

    machines: tuple[Machine, ...] = ()
    #: The variable that states the number of GPUs of each machine, by its name.
    gpu_count_variables: Mapping[str, str] = {}
    #: A sentence for each variable that must be corrected. Its group is not in `machines`, unless the variable is one
    #: that no machine has.
    problems: tuple[str, ...] = ()


def read_groups(environment: Mapping[str, str]) -> Groups:
    """Reads all groups. An empty variable counts as unset; having no group is no problem."""
    variables = {name: value.strip() for name, value in environment.items() if value.strip()}
    prefixes = sorted(name.removesuffix(GROUP_SUFFIX) for name in variables if name.endswith(GROUP_SUFFIX))
    machines: dict[str, Machine] = {}
    problems: list[str] = []
    named_by: dict[str, str] = {}
    for prefix in prefixes:
        group = _Group(prefix, variables, longer=[other for other in prefixes if other.startswith(f"{prefix}_")])
        machine = group.machine()
        if machine is not None and machine.name in named_by:
            group.problem(
                "_NAME", f"is {machine.name!r}, as is {named_by[machine.name]}", "give each machine its own name"
            )
        elif machine is not None:
            machines[machine.name] = machine
            named_by[machine.name] = f"{prefix}_NAME"
        problems += group.problems
    problems += [*_without_count(variables), *_mistyped(variables, prefixes)]
    return Groups(
        machines=tuple(machines.values()),
        gpu_count_variables={
            machine: f"{variable.removesuffix('_NAME')}{GROUP_SUFFIX}" for machine, variable in named_by.items()
        },
        problems=tuple(problems),
    )


def _without_count(variables: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each machine that has endpoints and is no group: without it, the machine would never be used."""
    found = {
        name.removesuffix(suffix)
        for suffix in _ENDPOINTS
        for name in variables
        if name.endswith(suffix) and name != suffix
    }
    for prefix in sorted(found):
        if f"{prefix}{GROUP_SUFFIX}" not in variables:
            yield (
                f"{prefix}{GROUP_SUFFIX} is missing: set it to the number of GPUs in the machine. Forebay skips this "
                "machine until then."
            )


def _mistyped(variables: Mapping[str, str], prefixes: Sequence[str]) -> Iterator[str]:
    """A sentence for each variable of a group that is written almost like one of a machine, and has no effect."""
    for name in sorted(variables):
        possible = [each for each in prefixes if name.startswith(f"{each}_")]
        if not possible or any(name.removeprefix(each) in VARIABLES for each in possible):
            continue
        prefix = max(possible, key=len)
        unset = [each for each in VARIABLES if f"{prefix}{each}" not in variables]
        if near := get_close_matches(name.removeprefix(prefix), unset, 1, _LIKE):
            yield f"{name} is no variable of a machine and has no effect; did you mean {prefix}{near[0]}?"


def shown(machine: Machine) -> Machine:
    """The machine as everybody may see it: without endpoints, which may hold credentials, and how they are called."""
    return msgspec.structs.replace(
        machine,
        scale_up_endpoint=None,
        scale_down_endpoint=None,
        status_endpoint=None,
        headers_secret_ref=None,
        hmac_secret_ref=None,
        tls=None,
        timeout="5s",
    )


class _InvalidValue(ValueError):
    """A variable has an invalid value. The text says what to write instead."""


def _validator(kind: Any, advice: str) -> Callable[[Any], Any]:
    """Function that returns a value which the API accepts as this type, and raises `_InvalidValue` for any other."""

    def read(value: Any) -> Any:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise _InvalidValue(advice) from None
        return value

    return read


_name = _validator(ObjectName, "write the name of a Kubernetes node: small letters, digits, - and . such as gpu-1")
_text = _validator(ShortText, "write at most 253 characters")
_short = _validator(Annotated[str, Meta(max_length=32)], "write at most 32 characters")
_bounded_url = _validator(Url, "write a URL of at most 2048 characters")
_bounded_labels = _validator(NodeLabels, "write at most 64 labels")
_bounded_taints = _validator(Taints, "write at most 32 taints")
_secret_ref = _validator(SecretRef, "write the name of a Secret, such as power-api or namespace/power-api")
_secret_key_ref = _validator(
    SecretKeyRef, "write a Secret and a key of it, such as power-api/signing-key or namespace/power-api/signing-key"
)


def _count(value: str) -> int:
    number = integer(value)
    if number is None or not 1 <= number < 2**31:
        raise _InvalidValue("write a whole number greater than 0, such as 8")
    return number


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")) or value.endswith("://") or " " in value:
        raise _InvalidValue("write a URL that starts with http:// or https://")
    _bounded_url(value)
    return value


def _duration(value: str) -> str:
    _short(value)
    try:
        if not duration(value):
            raise _InvalidValue("write more than 0, such as 30s")
    except NotADuration:
        raise _InvalidValue("write a duration such as 30s, 5m or 1h30m") from None
    return value


def _quantity(value: str) -> str:
    _short(value)
    try:
        if Quantity.parse(value).nano > 0:
            return value
    except InvalidQuantity:
        pass
    raise _InvalidValue("write a quantity greater than 0, such as 30, 500m or 240Gi")


def _dollars(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value, re.ASCII):
        raise _InvalidValue("write US dollars as a plain decimal number, such as 0.80")
    return value


def _resource(value: str) -> str:
    if key_problem(value):
        raise _InvalidValue("write the name of a resource, such as nvidia.com/gpu")
    return value


def _labels(value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _items(value):
        key, equals, label = part.partition("=")
        if not equals or key_problem(key) or value_problem(label) or key in found:
            raise _InvalidValue("write labels like example.com/rack=r7,team=vision, each key once")
        if key.startswith(f"{GROUP}/") or key == "kubernetes.io/hostname":
            raise _InvalidValue(
                f"labels under {GROUP}/ and kubernetes.io/hostname are set by Forebay, so leave them out"
            )
        found[key] = label
    _bounded_labels(found)
    return found


def _taints(value: str) -> list[dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for part in _items(value):
        taint, _, effect = part.rpartition(":")
        key, equals, text = taint.partition("=")
        if key_problem(key) or value_problem(text) or effect not in set(TaintEffect) or (key, effect) in found:
            raise _InvalidValue("write taints like nvidia.com/gpu=present:NoSchedule,dedicated:NoExecute, each once")
        found[key, effect] = {"key": key, "effect": effect, **({"value": text} if equals else {})}
    _bounded_taints(list(found.values()))
    return list(found.values())


def _items(value: str) -> Iterator[str]:
    return (part.strip() for part in value.split(",") if part.strip())


def _secret(value: str) -> Any:
    return _secret_ref(_secret_name(value))


def _secret_key(value: str) -> Any:
    secret, _, key = value.rpartition("/")
    return _secret_key_ref({**_secret_name(secret), "key": key})


def _secret_name(value: str) -> dict[str, str]:
    namespace, _, name = value.rpartition("/")
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def _boolean(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise _InvalidValue("write true or false")
    return value.lower() == "true"


class _Variable(NamedTuple):
    #: Path of its field in `Machine`.
    path: tuple[str, ...]
    read: Callable[[str], Any]
    #: What to set it to, where it is required.
    required: str | None = None


VARIABLES: Final[dict[str, _Variable]] = {
    "_NAME": _Variable(("name",), _name, "the name of the machine's Kubernetes node"),
    GROUP_SUFFIX: _Variable(("gpuCount",), _count),
    "_SCALE_UP_ENDPOINT": _Variable(("scaleUpEndpoint",), _url, "the URL that powers the machine on"),
    "_SCALE_DOWN_ENDPOINT": _Variable(("scaleDownEndpoint",), _url, "the URL that powers the machine off"),
    "_STATUS_ENDPOINT": _Variable(("statusEndpoint",), _url),
    "_HEADERS_SECRET": _Variable(("headersSecretRef",), _secret),
    "_HMAC_SECRET": _Variable(("hmacSecretRef",), _secret_key),
    "_TIMEOUT": _Variable(("timeout",), _duration),
    "_BOOT_TIMEOUT": _Variable(("bootTimeout",), _duration),
    "_TLS_CA_SECRET": _Variable(("tls", "caSecretRef"), _secret_key),
    "_TLS_CLIENT_CERTIFICATE_SECRET": _Variable(("tls", "clientCertificateSecretRef"), _secret),
    "_TLS_SERVER_NAME": _Variable(("tls", "serverName"), _text),
    "_TLS_INSECURE_SKIP_VERIFY": _Variable(("tls", "insecureSkipVerify"), _boolean),
    "_GPU_TYPE": _Variable(("gpuType",), _text),
    "_GPU_RESOURCE_NAME": _Variable(("gpuResourceName",), _resource),
    "_CPU": _Variable(("cpu",), _quantity),
    "_MEMORY": _Variable(("memory",), _quantity),
    "_LABELS": _Variable(("labels",), _labels),
    "_TAINTS": _Variable(("taints",), _taints),
    "_HOURLY_PRICE": _Variable(("hourlyPrice",), _dollars),
}


class _Group:
    """The variables with one prefix."""

    def __init__(self, prefix: str, variables: Mapping[str, str], *, longer: list[str]) -> None:
        self.problems: list[str] = []
        self._prefix = prefix
        # `GPU_BOOT_TIMEOUT` is the timeout of a group GPU_BOOT, and the boot timeout of GPU only where there is none.
        others = {f"{other}{suffix}" for other in longer for suffix in VARIABLES}
        self._given = {
            suffix: variables[f"{prefix}{suffix}"]
            for suffix in VARIABLES
            if f"{prefix}{suffix}" in variables and f"{prefix}{suffix}" not in others
        }

    def problem(self, suffix: str, fact: str, advice: str) -> None:
        self.problems.append(f"{self._prefix}{suffix} {fact}: {advice}. Forebay skips this machine until then.")

    def machine(self) -> Machine | None:
        document: dict[str, Any] = {}
        for suffix, variable in VARIABLES.items():
            if suffix not in self._given:
                if variable.required:
                    self.problem(suffix, "is missing", f"set it to {variable.required}")
                continue
            try:
                _put(document, variable.path, variable.read(self._given[suffix]))
            except _InvalidValue as error:
                self._invalid(suffix, str(error))
        self._check_together(document)
        if self.problems:
            return None
        return msgspec.convert(document, Machine)

    def _check_together(self, document: Mapping[str, Any]) -> None:
        urls = document.get("scaleUpEndpoint"), document.get("scaleDownEndpoint")
        if urls[0] is not None and urls[0] == urls[1]:
            up = f"{self._prefix}_SCALE_UP_ENDPOINT"
            self.problem(
                "_SCALE_DOWN_ENDPOINT", f"is the same URL as {up}", "one must power the machine on, the other off"
            )
        tls = document.get("tls", {})
        if tls.get("insecureSkipVerify") and "caSecretRef" in tls:
            fact = f"has no effect with {self._prefix}_TLS_INSECURE_SKIP_VERIFY"
            self.problem("_TLS_CA_SECRET", fact, "set one of them")

    def _invalid(self, suffix: str, advice: str) -> None:
        # These values are not repeated: a URL may hold a password, and users write secrets where names belong.
        fact = "is invalid" if suffix.endswith(("_ENDPOINT", "_SECRET")) else f"is {self._given[suffix]!r}"
        self.problem(suffix, fact, advice)


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value
