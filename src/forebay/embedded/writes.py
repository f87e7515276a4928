"""Create, replace, patch, delete: bodies checked against the URL, then handed to the store."""

from collections.abc import Mapping
from typing import Any

import msgspec

from forebay.embedded import calls, failures, patches, subresources
from forebay.embedded.apply import server_side_apply
from forebay.embedded.calls import Options, Target
from forebay.embedded.definitions import CustomRules
from forebay.embedded.events import inward, outward
from forebay.embedded.failures import UNPROCESSABLE, ApiFailure, bad_request
from forebay.embedded.kinds import PODS, Kind
from forebay.embedded.reads import selection
from forebay.embedded.store import Json, Store
from forebay.net.transport import Request

#: Status, the object as stored, and headers to add.
Written = tuple[int, Json, dict[str, str]]

_MERGE, _JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_DELETE_OPTIONS = Kind(group="meta.k8s.io", plural="", kind="DeleteOptions")


def create(store: Store, target: Target, options: Options, request: Request) -> Written:
    kind = target.kind
    if kind.namespaced and target.namespace is None:
        raise ApiFailure(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
        )
    obj = _object(target, request)
    if (obj["metadata"]).get("resourceVersion"):
        raise ApiFailure(500, "", "resourceVersion should not be set on objects to be created")
    dry_run = options.dry_run("CreateOptions")
    warnings = _check_fields(store, kind, obj, options)
    return 201, store.create(kind, inward(kind, obj), dry_run=dry_run), warnings


def replace(store: Store, target: Target, options: Options, request: Request) -> Written:
    kind = target.kind
    obj = _object(target, request)
    dry_run = options.dry_run("UpdateOptions")
    warnings = _check_fields(store, kind, obj, options)
    if kind.create_on_update and store.find(kind, target.namespace, target.name or "") is None:
        return 201, store.create(kind, inward(kind, obj), dry_run=dry_run), warnings
    old = store.get(kind, target.namespace, target.name or "")
    if not kind.unconditional_update and not obj["metadata"].get("resourceVersion"):
        cause = failures.bad_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise failures.invalid(msgspec.structs.replace(kind, kind=kind.plural), old["metadata"]["name"], [cause])
    new = store.update(kind, inward(kind, obj), subresource=target.subresource, dry_run=dry_run)
    return 200, new, warnings


def patch(store: Store, target: Target, options: Options, request: Request) -> Written:
    kind, media = target.kind, _media(request)
    dry_run = options.dry_run("PatchOptions")
    if media == _APPLY:
        return server_side_apply(store, target, options, calls.from_yaml(request.body or b""), dry_run=dry_run)
    old = outward(kind, store.get(kind, target.namespace, target.name or ""))
    new = patched(kind, old, media, request.body or b"")
    meta = new.get("metadata") or {}
    if meta.get("name") != target.name:
        raise bad_request(
            f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({target.name})"
        )
    if (new.get("kind"), new.get("apiVersion")) != (old.get("kind"), old.get("apiVersion")):
        raise _bad_patch(new, f'no kind "{new.get("kind")}" is registered for version "{new.get("apiVersion")}"')
    if meta.get("uid") not in {None, old["metadata"]["uid"]}:
        raise failures.invalid(
            kind, meta["name"], [failures.bad_value("metadata.uid", meta["uid"], "field is immutable")]
        )
    shown = dict(new)
    try:
        warnings = _check_fields(store, kind, new, options)
    except ApiFailure as failure:
        raise _bad_patch(shown, failure.message.partition(": ")[2]) from None
    written = store.update(kind, inward(kind, new), subresource=target.subresource, dry_run=dry_run)
    return 200, written, warnings


def patched(kind: Kind, old: Json, media: str, content: bytes) -> Json:
    """The object after a patch of one of the three plain types."""
    types = (_JSON_PATCH, _MERGE) if kind.custom else (_JSON_PATCH, _MERGE, _STRATEGIC)
    if media not in types:
        named = ", ".join((*types, _APPLY))
        message = f"the body of the request was in an unknown format - accepted media types include: {named}"
        raise ApiFailure(415, "UnsupportedMediaType", message)
    try:
        sent = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if media == _JSON_PATCH:
        if not isinstance(sent, list) or not all(isinstance(one, dict) for one in sent):
            raise bad_request("error decoding patch: a JSON patch is a list of operations")
        return patches.json_patch(old, sent)
    if not isinstance(sent, dict):
        raise bad_request("error decoding patch: a merge patch is an object")
    if media == _STRATEGIC:
        return patches.strategic(old, sent, patches.merge_keys(kind.plural))
    merged: Json = patches.merge(old, sent)
    return merged


def _bad_patch(obj: Json, why: str) -> ApiFailure:
    cause = failures.bad_value("patch", msgspec.json.encode(obj).decode(), why)
    causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    message = f' "" is invalid: {cause}'
    return ApiFailure(UNPROCESSABLE, "Invalid", message, details={"causes": causes})


def scale(store: Store, target: Target, options: Options, request: Request) -> Json:
    kind = target.kind
    obj = store.get(kind, target.namespace, target.name or "")
    if request.method == "PUT":
        wanted = calls.body(request, "Scale")
    else:
        shown = subresources.scale_of(store, kind, obj)
        wanted = patched(Kind(plural="scales", kind="Scale"), shown, _media(request), request.body or b"")
    new = subresources.scaled(store, kind, obj, wanted)
    return subresources.scale_of(store, kind, store.update(kind, new, dry_run=options.dry_run("UpdateOptions")))


def delete(store: Store, target: Target, options: Options, request: Request) -> Json:
    wishes = _delete_options(options, request)
    dry_run = options.dry_run("DeleteOptions", wishes)
    obj, gone = store.delete(target.kind, target.namespace, target.name or "", dry_run=dry_run, **_wished(wishes))
    if not gone or target.kind.storage == PODS.storage:
        return outward(target.kind, obj)
    kind, meta = target.kind, obj["metadata"]
    named = {"name": meta["name"], **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
    details = {**named, "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete_all(store: Store, target: Target, options: Options, request: Request) -> Json:
    kind = target.kind
    wishes = _delete_options(options, request)
    dry_run = options.dry_run("DeleteOptions", wishes)
    matches = selection(store, kind, options)
    found = [obj for obj in store.list(kind, target.namespace) if matches(obj)]
    for obj in found:
        meta = obj["metadata"]
        # The one before may have taken this one along.
        if store.find(kind, meta.get("namespace"), meta["name"]) is not None:
            store.delete(kind, meta.get("namespace"), meta["name"], dry_run=dry_run, **_wished(wishes))
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version}
    return {**head, "metadata": {"resourceVersion": str(store.version)}, "items": [outward(kind, one) for one in found]}


def _delete_options(options: Options, request: Request) -> Json:
    wishes = calls.body(request, "DeleteOptions") if request.body else {}
    for name in ("propagationPolicy", "gracePeriodSeconds"):
        if options.has(name):
            wishes[name] = options.number(name) if name == "gracePeriodSeconds" else options.text(name)
    if isinstance(wishes.get("orphanDependents"), bool) and "propagationPolicy" not in wishes:
        wishes["propagationPolicy"] = "Orphan" if wishes["orphanDependents"] else "Background"
    policy = wishes.get("propagationPolicy")
    if policy not in {None, "Foreground", "Background", "Orphan"}:
        cause = failures.unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        raise failures.invalid(_DELETE_OPTIONS, "", [cause])
    return wishes


def _wished(wishes: Json) -> dict[str, Any]:
    return {
        "grace": wishes.get("gracePeriodSeconds"),
        "preconditions": wishes.get("preconditions"),
        "propagation": wishes.get("propagationPolicy"),
    }


def _media(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip()


def _object(target: Target, request: Request) -> Json:
    """The body, which must be what the URL says it is."""
    kind = target.kind
    obj = calls.body(request, kind.kind)
    said, version = obj.setdefault("kind", kind.kind), obj.setdefault("apiVersion", kind.api_version)
    if said != kind.kind or version != kind.api_version:
        short = str(version).rpartition("/")[2]
        why = f'no kind "{said}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'{said} in version "{short}" cannot be handled as a {kind.kind}: {why}')
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise failures.undecodable(kind, meta, f"{kind.kind}.metadata", "v1.ObjectMeta")
    if kind.namespaced:
        if meta.get("namespace") not in {None, "", target.namespace}:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta["namespace"] = target.namespace
    if target.name is not None and meta.setdefault("name", target.name) != target.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})")
    return obj


def _check_fields(store: Store, kind: Kind, obj: Json, options: Options) -> dict[str, str]:
    """What to say about fields that are not in the schema. Built-in kinds have none here and are not checked."""
    rules = store.rules.get(kind.storage)
    mode = options.text("fieldValidation") or "Warn"
    if not isinstance(rules, CustomRules) or mode == "Ignore":
        return {}
    unknown = sorted(rules.unknown_fields(kind, obj))
    if not unknown:
        return {}
    if mode == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise failures.cannot_handle(kind, f"strict decoding error: {listed}")
    return {"Warning": ", ".join(f'299 - "unknown field \\"{path}\\""' for path in unknown)}


def review(target: Target, obj: Json, tokens: Mapping[str, str]) -> Json:
    """Reviews: known tokens are recognised, and everything is allowed, because this server guards nothing."""
    kind = target.kind
    obj = {**obj, "kind": kind.kind, "apiVersion": kind.api_version}
    if kind.kind != "TokenReview":
        return {**obj, "status": {"allowed": True, "reason": "the embedded server allows everything"}}
    user = tokens.get((obj.get("spec") or {}).get("token", ""))
    if user is None:
        return {**obj, "status": {"user": {}, "error": "invalid bearer token"}}
    return {**obj, "status": {"authenticated": True, "user": {"username": user}}}
