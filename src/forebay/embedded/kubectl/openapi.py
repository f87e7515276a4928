"""OpenAPI documents, as much of them as kubectl needs: `kubectl explain` of custom resources, and server-side dry runs.

Schemas of built-in kinds are not published: kubectl then leaves validation to the server.
"""

from collections.abc import Sequence

import msgspec

from forebay.embedded.api.custom_resources import custom_version
from forebay.embedded.api.discovery import SERVER_VERSION
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

_INFO: Json = {"title": "Forebay embedded Kubernetes", "version": SERVER_VERSION["gitVersion"]}
_PROTOBUF_ACCEPTED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
#: A real server names the type of its answer without the @, which is not allowed in a media type.
_PROTOBUF_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def openapi_document(store: Store, path: Sequence[str], accept: str) -> tuple[str, bytes] | None:
    """Media type and content of the document at `/openapi/{path}`; None where there is none."""
    found: Json | None
    match path:
        case ["v2"]:
            if _PROTOBUF_ACCEPTED in accept:
                return _PROTOBUF_TYPE, _openapi_v2_protobuf()
            found = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": {}}
        case ["v3"]:
            found = _openapi_v3_roots(store)
        case _:
            found = _openapi_v3(store, "/".join(path[1:]))
    return None if found is None else ("application/json", msgspec.json.encode(found) + b"\n")


def _root(kind: ApiKind) -> str:
    return f"apis/{kind.api_version}" if kind.group else f"api/{kind.version}"


def _openapi_v3_roots(store: Store) -> Json:
    # Clients cache a document by its hash, which must change with every CRD.
    roots = dict.fromkeys(_root(kind) for kind in store.kinds)
    return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={store.version}"} for root in roots}}


def _openapi_v3(store: Store, root: str) -> Json | None:
    """Schemas of custom resources, and for every kind the query parameters from which kubectl sees what it may use."""
    kinds = [kind for kind in store.kinds if _root(kind) == root]
    if not kinds:
        return None
    paths, schemas = {}, {}
    for kind in kinds:
        identity = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        parameters = [
            {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
            for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        namespace = "/namespaces/{namespace}" if kind.namespaced else ""
        operation = {"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": identity}
        paths[f"/{root}{namespace}/{kind.plural}/{{name}}"] = {"patch": {**operation, "parameters": parameters}}
        custom = custom_version(store, kind)
        if custom is not None:
            name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
            schemas[name] = {**custom.schema, "x-kubernetes-group-version-kind": [identity]}
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": schemas}}


def _openapi_v2_protobuf() -> bytes:
    """The v2 document as gnostic's `openapi.v2.Document`: fields 1 (swagger), 2 (info: title, version), 8 (paths)."""
    info = _bytes_field(1, _INFO["title"].encode()) + _bytes_field(2, _INFO["version"].encode())
    return _bytes_field(1, b"2.0") + _bytes_field(2, info) + _bytes_field(8, b"")


def _bytes_field(number: int, content: bytes) -> bytes:
    # Protobuf: a key (field number, wire type 2), a length, the content; everything here is shorter than 128.
    return bytes([number << 3 | 2, len(content)]) + content
