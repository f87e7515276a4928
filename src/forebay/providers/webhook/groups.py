"""Machines that the environment names: every variable that ends in `_GPU_COUNT` begins a group of variables.

What may stand in a group is what may stand in `machines` of a GPUNodeClass, under the same rules; a test holds both
together.
"""

import re
from collections.abc import Callable, Iterator, Mapping
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

BEGINS_A_GROUP: Final = "_GPU_COUNT"


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    machines: tuple[Machine, ...] = ()
    #: A sentence for each variable that must be corrected. Its group is left out; the others are in `machines`.
    problems: tuple[str, ...] = ()


def read_groups(environment: Mapping[str, str]) -> Groups:
    """An empty variable counts as unset. No group at all is no problem."""
    variables = {name: value.strip() for name, value in environment.items() if value.strip()}
    prefixes = sorted(name.removesuffix(BEGINS_A_GROUP) for name in variables if name.endswith(BEGINS_A_GROUP))
    machines: dict[str, Machine] = {}
    problems: list[str] = []
    named: dict[str, str] = {}
    for prefix in prefixes:
        group = _Group(prefix, variables, longer=[other for other in prefixes if other.startswith(f"{prefix}_")])
        machine = group.machine()
        if machine is not None and machine.name in named:
            group.problem(
                "_NAME", f"is {machine.name!r}, as is {named[machine.name]}", "give each machine its own name"
            )
        elif machine is not None:
            machines[machine.name] = machine
            named[machine.name] = f"{prefix}_NAME"
        problems += group.problems
    return Groups(machines=tuple(machines.values()), problems=tuple(problems))


class _Wrong(ValueError):
    """The text says what to write instead."""


def _of(kind: Any, instead: str) -> Callable[[Any], Any]:
    """What the API takes as a value of that kind, within its bounds."""

    def read(value: Any) -> Any:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise _Wrong(instead) from None
        return value

    return read


_name = _of(ObjectName, "write the name of a Kubernetes node: small letters, digits, - and . such as gpu-1")
_text = _of(ShortText, "write at most 253 characters")
_short = _of(Annotated[str, Meta(max_length=32)], "write at most 32 characters")
_bounded_url = _of(Url, "write a URL of at most 2048 characters")
_bounded_labels = _of(NodeLabels, "write at most 64 labels")
_bounded_taints = _of(Taints, "write at most 32 taints")
_secret_ref = _of(SecretRef, "write the name of a Secret, such as power-api or namespace/power-api")
_secret_key_ref = _of(
    SecretKeyRef, "write a Secret and a key of it, such as power-api/signing-key or namespace/power-api/signing-key"
)


def _count(value: str) -> int:
    number = integer(value)
    if number is None or not 1 <= number < 2**31:
        raise _Wrong("write a whole number greater than 0, such as 8")
    return number


def _url(value: str) -> str:
    if not value.startswith(("http://", "https://")) or value.endswith("://") or " " in value:
        raise _Wrong("write a URL that starts with http:// or https://")
    _bounded_url(value)
    return value


def _duration(value: str) -> str:
    _short(value)
    try:
        if not duration(value):
            raise _Wrong("write more than 0, such as 30s")
    except NotADuration:
        raise _Wrong("write a duration such as 30s, 5m or 1h30m") from None
    return value


def _quantity(value: str) -> str:
    _short(value)
    try:
        if Quantity.parse(value).nano > 0:
            return value
    except InvalidQuantity:
        pass
    raise _Wrong("write a quantity greater than 0, such as 30, 500m or 240Gi")


def _dollars(value: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value, re.ASCII):
        raise _Wrong("write US dollars as a plain decimal number, such as 0.80")
    return value


def _resource(value: str) -> str:
    if key_problem(value):
        raise _Wrong("write the name of a resource, such as nvidia.com/gpu")
    return value


def _labels(value: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _listed(value):
        key, equals, said = part.partition("=")
        if not equals or key_problem(key) or value_problem(said) or key in found:
            raise _Wrong("write labels like example.com/rack=r7,team=vision, each key once")
        if key.startswith(f"{GROUP}/") or key == "kubernetes.io/hostname":
            raise _Wrong(f"labels under {GROUP}/ and kubernetes.io/hostname are set by Forebay, so leave them out")
        found[key] = said
    _bounded_labels(found)
    return found


def _taints(value: str) -> list[dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for part in _listed(value):
        what, _, effect = part.rpartition(":")
        key, equals, said = what.partition("=")
        if key_problem(key) or value_problem(said) or effect not in set(TaintEffect) or (key, effect) in found:
            raise _Wrong("write taints like nvidia.com/gpu=present:NoSchedule,dedicated:NoExecute, each once")
        found[key, effect] = {"key": key, "effect": effect, **({"value": said} if equals else {})}
    _bounded_taints(list(found.values()))
    return list(found.values())


def _listed(value: str) -> Iterator[str]:
    return (part.strip() for part in value.split(",") if part.strip())


def _secret(value: str) -> Any:
    return _secret_ref(_place(value))


def _secret_key(value: str) -> Any:
    secret, _, key = value.rpartition("/")
    return _secret_key_ref({**_place(secret), "key": key})


def _place(value: str) -> dict[str, str]:
    namespace, _, name = value.rpartition("/")
    return {"name": name, **({"namespace": namespace} if namespace else {})}


def _truth(value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise _Wrong("write true or false")
    return value.lower() == "true"


class _Variable(NamedTuple):
    #: Where it stands in a Machine.
    path: tuple[str, ...]
    read: Callable[[str], Any]
    #: What to set it to, where it must be set.
    required: str | None = None


VARIABLES: Final[dict[str, _Variable]] = {
    "_NAME": _Variable(("name",), _name, "the name of the machine's Kubernetes node"),
    BEGINS_A_GROUP: _Variable(("gpuCount",), _count),
    "_SCALE_UP_ENDPOINT": _Variable(("scaleUpEndpoint",), _url, "the URL that switches the machine on"),
    "_SCALE_DOWN_ENDPOINT": _Variable(("scaleDownEndpoint",), _url, "the URL that switches the machine off"),
    "_STATUS_ENDPOINT": _Variable(("statusEndpoint",), _url),
    "_HEADERS_SECRET": _Variable(("headersSecretRef",), _secret),
    "_HMAC_SECRET": _Variable(("hmacSecretRef",), _secret_key),
    "_TIMEOUT": _Variable(("timeout",), _duration),
    "_BOOT_TIMEOUT": _Variable(("bootTimeout",), _duration),
    "_TLS_CA_SECRET": _Variable(("tls", "caSecretRef"), _secret_key),
    "_TLS_CLIENT_CERTIFICATE_SECRET": _Variable(("tls", "clientCertificateSecretRef"), _secret),
    "_TLS_SERVER_NAME": _Variable(("tls", "serverName"), _text),
    "_TLS_INSECURE_SKIP_VERIFY": _Variable(("tls", "insecureSkipVerify"), _truth),
    "_GPU_TYPE": _Variable(("gpuType",), _text),
    "_GPU_RESOURCE_NAME": _Variable(("gpuResourceName",), _resource),
    "_CPU": _Variable(("cpu",), _quantity),
    "_MEMORY": _Variable(("memory",), _quantity),
    "_LABELS": _Variable(("labels",), _labels),
    "_TAINTS": _Variable(("taints",), _taints),
    "_HOURLY_PRICE": _Variable(("hourlyPrice",), _dollars),
}


class _Group:
    def __init__(self, prefix: str, variables: Mapping[str, str], *, longer: list[str]) -> None:
        self.problems: list[str] = []
        self._prefix = prefix
        # `GPU_BOOT_TIMEOUT` is the timeout of the group GPU_BOOT, if there is one, and not the boot timeout of GPU.
        others = {f"{other}{suffix}" for other in longer for suffix in VARIABLES}
        self._given = {
            suffix: variables[f"{prefix}{suffix}"]
            for suffix in VARIABLES
            if f"{prefix}{suffix}" in variables and f"{prefix}{suffix}" not in others
        }

    def problem(self, suffix: str, wrong: str, instead: str) -> None:
        self.problems.append(f"{self._prefix}{suffix} {wrong}: {instead}. Until then this machine is left out.")

    def machine(self) -> Machine | None:
        document: dict[str, Any] = {}
        for suffix, variable in VARIABLES.items():
            if suffix not in self._given:
                if variable.required:
                    self.problem(suffix, "is missing", f"set it to {variable.required}")
                continue
            try:
                _put(document, variable.path, variable.read(self._given[suffix]))
            except _Wrong as wrong:
                self._bad(suffix, str(wrong))
        self._check_together(document)
        if self.problems:
            return None
        return msgspec.convert(document, Machine)

    def _check_together(self, document: Mapping[str, Any]) -> None:
        urls = document.get("scaleUpEndpoint"), document.get("scaleDownEndpoint")
        if urls[0] is not None and urls[0] == urls[1]:
            up = f"{self._prefix}_SCALE_UP_ENDPOINT"
            self.problem("_SCALE_DOWN_ENDPOINT", f"is the same URL as {up}", "one must switch on, the other off")
        tls = document.get("tls", {})
        if tls.get("insecureSkipVerify") and "caSecretRef" in tls:
            no_effect = f"has no effect with {self._prefix}_TLS_INSECURE_SKIP_VERIFY"
            self.problem("_TLS_CA_SECRET", no_effect, "set one of them")

    def _bad(self, suffix: str, instead: str) -> None:
        # Not repeated: a URL may hold a password or a token, and some write a secret where its name belongs.
        said = "cannot be used" if suffix.endswith(("_ENDPOINT", "_SECRET")) else f"is {self._given[suffix]!r}"
        self.problem(suffix, said, instead)


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        document = document.setdefault(name, {})
    document[path[-1]] = value
