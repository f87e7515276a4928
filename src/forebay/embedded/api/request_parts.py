"""The parts of a request: the resource in its path, the options in its query, the object in its body."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import yaml

from forebay.embedded.api import builtin, failures
from forebay.embedded.api.failures import ApiFailure, bad_request
from forebay.embedded.api.kinds import ApiKind, KindRegistry
from forebay.embedded.api.objects import Json
from forebay.embedded.kubectl import protobuf
from forebay.net.transport import Request

_SHORTEST_GROUP_PATH = 3
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_BODY_TYPES = "application/json, application/yaml"
#: Kinds of bodies that are never stored, and are therefore decoded and checked here; stored ones are when written.
_UNSTORED = frozenset(
    {
        "Binding",
        "DeleteOptions",
        "Eviction",
        "LocalSubjectAccessReview",
        "Scale",
        "SelfSubjectAccessReview",
        "SubjectAccessReview",
        "TokenReview",
    }
)
_TRUE = frozenset({"1", "true", "True", "TRUE", "t", "T"})


class Target(msgspec.Struct, frozen=True):
    """The resource that a path names."""

    kind: ApiKind
    #: None for all namespaces, or for a cluster-scoped kind.
    namespace: str | None
    name: str | None
    subresource: str | None


class Options:
    """The query of a request."""

    def __init__(self, query: str) -> None:
        self._values = dict(parse_qsl(query, keep_blank_values=True))

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        return self._values.get(name, "") in _TRUE

    def has(self, name: str) -> bool:
        return name in self._values

    def number(self, name: str) -> int | None:
        text = self._values.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None

    def version(self, name: str = "resourceVersion") -> int | None:
        text = self._values.get(name, "")
        if text and not text.isdigit():
            why = f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise bad_request(f"invalid resource version: {why}")
        return int(text) if text else None

    def listed(self, name: str) -> list[str]:
        return [self._values[name]] if name in self._values else []

    def dry_run(self, kind: str, body: Mapping[str, Any] | None = None) -> bool:
        return is_dry_run(kind, (body or {}).get("dryRun") or self.listed("dryRun"))


def is_dry_run(kind: str, asked: Any) -> bool:
    """Whether `asked` is a dry run; 422 for an unknown value. `kind` is that of the options, for the error."""
    if asked and asked != ["All"]:
        cause = failures.unsupported("dryRun", asked, ["All"])
        raise failures.invalid(ApiKind(group="meta.k8s.io", plural="", kind=kind), "", [cause])
    return bool(asked)


def split(request: Request) -> tuple[list[str], Options]:
    url = urlsplit(request.url)
    return [unquote(part) for part in url.path.split("/") if part], Options(url.query)


def parse_target(kinds: KindRegistry, path: list[str]) -> Target:
    """The resource at a path such as `/api/v1/namespaces/{ns}/pods/{name}/status`; 404 where none is served."""
    if path[0] == "api":
        group, version, rest = "", path[1], path[2:]
    else:
        group, version, rest = path[1], path[2], path[_SHORTEST_GROUP_PATH:]
    namespace = None
    # `namespaces/x` alone, and with a subresource of Namespace, is the Namespace itself.
    if len(rest) >= _SHORTEST_GROUP_PATH and rest[0] == "namespaces" and kinds.at(group, version, rest[2]):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.at(group, version, rest[0]) if rest else None
    if kind is None or (namespace is not None and not kind.namespaced):
        raise no_such_resource()
    name = rest[1] if len(rest) > 1 else None
    subresource = "/".join(rest[2:]) or None
    if subresource is not None and subresource not in kind.subresources:
        raise no_such_resource()
    if kind.namespaced and name and namespace is None:
        raise no_such_resource()
    return Target(kind, namespace, name, subresource)


def no_such_resource() -> ApiFailure:
    return ApiFailure(404, "NotFound", "the server could not find the requested resource", details={})


def body(request: Request, kind: str) -> Json:
    """The object in the body, from JSON, YAML or protobuf."""
    media = request.headers.get("Content-Type", "application/json").partition(";")[0].strip()
    content = request.body or b""
    if media in {"application/json", ""}:
        found = _from_json(content, kind)
    elif media in {"application/yaml", "application/apply-patch+yaml"}:
        found = from_yaml(content)
    elif media == _PROTOBUF:
        found = protobuf.decode_protobuf(content)
    else:
        message = f"the body of the request was in an unknown format - accepted media types include: {_BODY_TYPES}"
        raise ApiFailure(415, "UnsupportedMediaType", message)
    if not isinstance(found, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind}): it is not a JSON object")
    return builtin.decode_unstored(kind, found) if kind in _UNSTORED else found


def _from_json(content: bytes, kind: str) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        why = "unexpected end of JSON input (<empty>)" if not content else str(error)
        message = f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse"
        raise bad_request(f"{message} error: {why}") from None


def duplicates(content: bytes) -> list[str]:
    """Paths of the keys that occur twice in a JSON document."""
    repeated: dict[int, list[str]] = {}

    def pairs(found: list[tuple[str, Any]]) -> Json:
        names = [name for name, _ in found]
        obj = dict(found)
        repeated[id(obj)] = [name for name in obj if names.count(name) > 1]
        return obj

    def walk(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            for name in repeated.get(id(value), ()):
                yield f"{path}{name}"
            for name, inner in value.items():
                yield from walk(inner, f"{path}{name}.")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, f"{path[:-1]}[{index}].")

    try:
        document = json.loads(content, object_pairs_hook=pairs)
    except ValueError:
        # YAML or protobuf. Invalid JSON has been refused before.
        return []
    return list(walk(document, ""))


def from_yaml(content: bytes) -> Any:
    try:
        # Through JSON, so that dates and other types of YAML become text, as in Kubernetes.
        return msgspec.json.decode(msgspec.json.encode(yaml.safe_load(content)))
    except (yaml.YAMLError, msgspec.DecodeError, TypeError) as error:
        raise bad_request(f"error converting YAML to JSON: {error}") from None


def accepted(request: Request) -> str:
    """The first accepted form that this server can give: `json`, or the `as` parameter of a media type."""
    header = request.headers.get("Accept", "") or "*/*"
    for choice in header.split(","):
        media, *parameters = [part.strip() for part in choice.split(";")]
        options = dict(part.partition("=")[::2] for part in parameters)
        if media in {"application/json", "application/*", "*/*"}:
            form = options.get("as", "json")
            if form in {"json", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"}:
                return form
    message = "406: Not Acceptable\n\nAvailable representations: application/json, application/json;stream=watch"
    raise ApiFailure(406, "NotAcceptable", message)
