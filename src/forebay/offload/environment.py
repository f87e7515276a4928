"""The environment of a remote container, as a kubelet would build it.

Values of Secrets, and values that refer to these, stay apart: they are `SecretText` from the first moment.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from forebay.model.quantities import InvalidQuantity, Quantity
from forebay.model.secret_text import SecretText
from forebay.offload.pod_manifest import (
    EnvVar,
    KeyRef,
    ManifestContainer,
    ManifestSpec,
    NamedRef,
    PodMetadata,
    ResourceFieldRef,
)


class HolderKind(StrEnum):
    SECRET = "Secret"  # noqa: S105 (a kind)
    CONFIG_MAP = "ConfigMap"


class Holder(NamedTuple):
    """A Secret or ConfigMap in the namespace of the pod."""

    kind: HolderKind
    name: str


#: What the holders contain, by key; None: there is no such object.
HeldValues = Mapping[Holder, Mapping[str, bytes] | None]


class ContainerEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    plain: Mapping[str, str] = {}
    secret: Mapping[str, SecretText] = {}
    #: Why the container cannot be started as it is written, a sentence each.
    problems: tuple[str, ...] = ()


#: `$$`, which stands for one `$`, or a reference to a variable. As in Kubernetes, a name goes on to the first `)`: of
#: `$(cat $(FILE))` it is `cat $(FILE`, which no variable has, so that a shell gets what was written.
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_KEYED: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
#: The other fields that variables can hold.
_FIELDS: Final = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"}
)
#: Kubernetes divides by one where nothing is stated, whatever the resource.
_ONE: Final = Quantity.parse(1)


def holders(container: ManifestContainer) -> frozenset[Holder]:
    """Secrets and ConfigMaps that must be read before the environment can be built."""
    return frozenset(_holders(container))


def _holders(container: ManifestContainer) -> Iterator[Holder]:
    for source in container.env_from:
        if source.secret_ref is not None:
            yield Holder(HolderKind.SECRET, source.secret_ref.name)
        if source.config_map_ref is not None:
            yield Holder(HolderKind.CONFIG_MAP, source.config_map_ref.name)
    for each in container.env:
        if each.value_from is None:
            continue
        if each.value_from.secret_key_ref is not None:
            yield Holder(HolderKind.SECRET, each.value_from.secret_key_ref.name)
        if each.value_from.config_map_key_ref is not None:
            yield Holder(HolderKind.CONFIG_MAP, each.value_from.config_map_key_ref.name)


def environment(
    container: ManifestContainer, metadata: PodMetadata, spec: ManifestSpec, held: HeldValues
) -> ContainerEnvironment:
    """All variables of the container: envFrom in its order, then env, of which the last one of a name counts."""
    return _Builder(container, metadata, spec, held).build()


def impossible_fields(container: ManifestContainer) -> Iterator[str]:
    """Problems with variables that hold what no remote container has, known without reading anything."""
    for each in container.env:
        source = each.value_from
        if source is None or source.secret_key_ref is not None or source.config_map_key_ref is not None:
            continue
        if source.field_ref is not None:
            path = source.field_ref.field_path
            if path not in _FIELDS and _KEYED.fullmatch(path) is None:
                yield _no_such_field(each.name, path)
        elif source.resource_field_ref is not None:
            if _amount(container, source.resource_field_ref) is None:
                yield _no_such_field(each.name, source.resource_field_ref.resource)
        else:
            yield f"Variable {each.name} has a source that a remote container cannot have. Remove it."


def _amount(container: ManifestContainer, ref: ResourceFieldRef) -> str | None:
    """What the container requests or is limited to, in units of the divisor; None where it states nothing."""
    which, _, name = ref.resource.partition(".")
    amounts = {"limits": container.resources.limits, "requests": container.resources.requests}.get(which)
    if amounts is None or name not in amounts:
        return None
    try:
        amount, unit = Quantity.parse(amounts[name]), Quantity.parse(ref.divisor or 1)
    except InvalidQuantity:
        return None
    return str(-(-amount.nano // (unit.nano or _ONE.nano)))


def secret_names(container: ManifestContainer) -> frozenset[str]:
    """Variables that hold a key of a Secret by the pod's own word, or refer to one that does."""
    found: set[str] = set()
    for each in container.env:
        secret = each.value_from is not None and each.value_from.secret_key_ref is not None
        (found.add if secret or references(each.value) & found else found.discard)(each.name)
    return frozenset(found)


def _no_such_field(variable: str, path: str) -> str:
    return f"Variable {variable} needs {path}, which a remote container does not have. Remove it."


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced; an unknown name stays as it is written, and `$$` is a dollar sign."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else variables.get(match[1], match[0])

    return _REFERENCE.sub(value, text)


def references(text: str) -> frozenset[str]:
    """Names of the variables that the text refers to."""
    return frozenset(match[1] for match in _REFERENCE.finditer(text) if match[0] != "$$")


class _Builder:
    def __init__(
        self, container: ManifestContainer, metadata: PodMetadata, spec: ManifestSpec, held: HeldValues
    ) -> None:
        self._container = container
        self._metadata = metadata
        self._spec = spec
        self._held = held
        self._values: dict[str, str] = {}
        self._secret: set[str] = set()
        self._problems: list[str] = []

    def build(self) -> ContainerEnvironment:
        for source in self._container.env_from:
            if source.config_map_ref is not None:
                self._add_all(source.prefix, HolderKind.CONFIG_MAP, source.config_map_ref)
            if source.secret_ref is not None:
                self._add_all(source.prefix, HolderKind.SECRET, source.secret_ref)
        for each in self._container.env:
            self._add(each)
        return ContainerEnvironment(
            plain={name: value for name, value in self._values.items() if name not in self._secret},
            secret={name: SecretText(value) for name, value in self._values.items() if name in self._secret},
            problems=tuple(self._problems),
        )

    def _set(self, name: str, value: str, *, secret: bool) -> None:
        self._values[name] = value
        (self._secret.add if secret else self._secret.discard)(name)

    def _add_all(self, prefix: str, kind: HolderKind, ref: NamedRef) -> None:
        found = self._held.get(Holder(kind, ref.name))
        if found is None:
            if not ref.optional:
                self._problems.append(f"{kind} {ref.name} does not exist. Create it, or mark envFrom as optional.")
            return
        for key, value in found.items():
            text = self._text(value, f"Key {key} of {kind} {ref.name}")
            if text is not None and "=" not in prefix + key:
                self._set(prefix + key, text, secret=kind is HolderKind.SECRET)

    def _add(self, variable: EnvVar) -> None:
        source = variable.value_from
        if source is None:
            secret = not references(variable.value).isdisjoint(self._secret)
            self._set(variable.name, expanded(variable.value, self._values), secret=secret)
        elif source.secret_key_ref is not None:
            self._add_key(variable.name, HolderKind.SECRET, source.secret_key_ref)
        elif source.config_map_key_ref is not None:
            self._add_key(variable.name, HolderKind.CONFIG_MAP, source.config_map_key_ref)
        elif source.field_ref is not None:
            self._add_found(variable.name, self._field(source.field_ref.field_path), source.field_ref.field_path)
        elif source.resource_field_ref is not None:
            ref = source.resource_field_ref
            self._add_found(variable.name, _amount(self._container, ref), ref.resource)

    def _add_found(self, name: str, value: str | None, source: str) -> None:
        if value is None:
            self._problems.append(_no_such_field(name, source))
        else:
            self._set(name, value, secret=False)

    def _add_key(self, name: str, kind: HolderKind, ref: KeyRef) -> None:
        found = self._held.get(Holder(kind, ref.name))
        if found is None or ref.key not in found:
            if not ref.optional:
                missing = (
                    f"{kind} {ref.name} does not exist" if found is None else f"{kind} {ref.name} has no key {ref.key}"
                )
                self._problems.append(f"{missing}, and variable {name} needs it. Create it.")
            return
        text = self._text(found[ref.key], f"Key {ref.key} of {kind} {ref.name}")
        if text is not None:
            self._set(name, text, secret=kind is HolderKind.SECRET)

    def _text(self, value: bytes, what: str) -> str | None:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:
            self._problems.append(f"{what} is not text, so no variable can hold it.")
            return None
        return text

    def _field(self, path: str) -> str | None:
        metadata = self._metadata
        if (keyed := _KEYED.fullmatch(path)) is not None:
            values = metadata.labels if keyed[1] == "labels" else metadata.annotations
            return values.get(keyed[2], "")
        return {
            "metadata.name": metadata.name,
            "metadata.namespace": metadata.namespace,
            "metadata.uid": metadata.uid,
            "spec.nodeName": self._spec.node_name,
            "spec.serviceAccountName": self._spec.service_account_name,
        }.get(path)
