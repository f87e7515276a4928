"""Manifests as documents: kind and name, file and position, and how many pods a workload would have."""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from forebay.api.meta import OwnerReference

Json = dict[str, Any]
T = TypeVar("T")
#: Kind, namespace and name.
Id = tuple[str, str, str]

DEFAULT_NAMESPACE: Final = "default"


class ManifestError(ValueError):
    """An invalid manifest, as one sentence: which object, and what is wrong with it."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class _Header(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _Template(msgspec.Struct):
    spec: Json
    metadata: Json | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str


class WorkloadSpec(msgspec.Struct, rename="camel"):
    template: _Template | None = None
    job_template: "_JobTemplate | None" = None
    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None


class _JobTemplate(msgspec.Struct):
    spec: WorkloadSpec


class _Status(msgspec.Struct):
    succeeded: int | None = None
    conditions: list[_Condition] | None = None


class Workload(msgspec.Struct):
    spec: WorkloadSpec
    status: _Status | None = None

    @property
    def over(self) -> bool:
        """Whether the Job has finished and creates no more pods."""
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return any(each.type in ("Complete", "Failed") and each.status == "True" for each in conditions)

    @property
    def succeeded(self) -> int:
        return (self.status.succeeded if self.status is not None else None) or 0


class Document(msgspec.Struct, frozen=True):
    #: File and position, for sentences.
    origin: str
    header: _Header
    body: Json

    @property
    def namespace(self) -> str:
        return self.header.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def id(self) -> Id:
        return (self.header.kind, self.namespace, self.header.metadata.name)

    @property
    def title(self) -> str:
        meta = self.header.metadata
        name = meta.name or f"{meta.generate_name}*"
        return f"{self.origin}: {self.header.kind} {f'{meta.namespace}/' if meta.namespace else ''}{name}"


def documents_in(origin: str, document: Any) -> Iterator[Document]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise ManifestError(f"{origin} is not an object with apiVersion and kind")
    header = convert(document, _Header, f"{origin} is not a manifest")
    items = document.get("items")
    if header.kind.endswith("List") and isinstance(items, list):
        # Items of a PodList do not repeat apiVersion and kind; items of a List do.
        of = {"apiVersion": header.api_version, "kind": header.kind.removesuffix("List")}
        for number, item in enumerate(items):
            where = f"{origin}, item {number + 1}"
            yield from documents_in(where, {**of, **item} if isinstance(item, dict) else item)
        return
    if not (header.metadata.name or header.metadata.generate_name):
        raise ManifestError(f"{origin}: a {header.kind} without metadata.name")
    yield Document(origin, header, document)


def how_many(kind: str, spec: WorkloadSpec, succeeded: int) -> int:
    if kind not in ("Job", "CronJob"):
        return 1 if spec.replicas is None else spec.replicas
    at_once = 1 if spec.parallelism is None else spec.parallelism
    return at_once if spec.completions is None else min(at_once, max(spec.completions - succeeded, 0))


def convert(value: Json, kind: type[T], title: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ManifestError(f"{title}: {error}") from error


def encode_document(each: Document, body: Json) -> bytes:
    try:
        return msgspec.json.encode(body)
    except TypeError as error:
        raise ManifestError(f"{each.title}: it has a value that JSON cannot hold: {error}") from error


def without_floats(value: Any) -> Any:
    """`value` with floats as text: `cpu: 0.5` is a float in YAML and a quantity to Kubernetes."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {key: without_floats(below) for key, below in value.items()}
    return [without_floats(below) for below in value] if isinstance(value, list) else value
