"""Create, replace, patch, apply and delete: checks the body against the URL, then writes to the store."""

from typing import Any

import msgspec

from forebay.embedded.api import builtin, failures, patches, request_parts, subresources
from forebay.embedded.api.apply import Managers, check_applied
from forebay.embedded.api.custom_resources import CustomRules, schema_for
from forebay.embedded.api.events import from_client, to_client
from forebay.embedded.api.failures import UNPROCESSABLE, ApiFailure, bad_request
from forebay.embedded.api.kinds import POD_KIND, ApiKind
from forebay.embedded.api.objects import Json, deep_copy
from forebay.embedded.api.reads import matcher_for
from forebay.embedded.api.request_parts import Options, Target
from forebay.embedded.api.store import Store
from forebay.net.transport import Request

#: HTTP status, the object as stored, and additional headers.
Written = tuple[int, Json, dict[str, str]]

_MERGE, _JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_DELETE_OPTIONS = ApiKind(group="meta.k8s.io", plural="", kind="DeleteOptions")


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
    warnings = _check_fields(store, kind, obj, options, request.body or b"")
    return 201, store.create(kind, from_client(kind, obj), dry_run=dry_run), warnings


def replace(store: Store, target: Target, options: Options, request: Request) -> Written:
    kind = target.kind
    obj = _object(target, request)
    dry_run = options.dry_run("UpdateOptions")
    warnings = _check_fields(store, kind, obj, options, request.body or b"")
    if kind.create_on_update and store.find(kind, target.namespace, target.name or "") is None:
        return 201, store.create(kind, from_client(kind, obj), dry_run=dry_run), warnings
    old = store.get(kind, target.namespace, target.name or "")
    if not kind.unconditional_update and not obj["metadata"].get("resourceVersion"):
        cause = failures.bad_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise failures.invalid(msgspec.structs.replace(kind, kind=kind.plural), old["metadata"]["name"], [cause])
    obj["metadata"].pop("managedFields", None)
    obj = _with_managed_fields(store, target, _manager(options, request), to_client(kind, old), obj)
    new = store.update(kind, from_client(kind, obj), subresource=target.subresource, dry_run=dry_run)
    return 200, new, warnings


def patch(store: Store, target: Target, options: Options, request: Request) -> Written:
    kind, media = target.kind, _media(request)
    dry_run = options.dry_run("PatchOptions")
    if media == _APPLY:
        return _apply(store, target, options, request_parts.from_yaml(request.body or b""), dry_run=dry_run)
    old = to_client(kind, store.get(kind, target.namespace, target.name or ""))
    # The patched document shares unchanged parts with the stored one, which must not change.
    new = deep_copy(patched(kind, old, media, request.body or b"", schema_for(store, kind)))
    meta = new.get("metadata")
    if not isinstance(meta, dict):
        raise _invalid_patch(new, "metadata is not an object")
    if meta.get("name") != target.name:
        raise bad_request(
            f"the name of the object ({meta.get('name', '')}) does not match the name on the URL ({target.name})"
        )
    if (new.get("kind"), new.get("apiVersion")) != (old.get("kind"), old.get("apiVersion")):
        raise _invalid_patch(new, f'no kind "{new.get("kind")}" is registered for version "{new.get("apiVersion")}"')
    if meta.get("uid") is not None and meta["uid"] != old["metadata"]["uid"]:
        raise failures.invalid(
            kind, meta["name"], [failures.bad_value("metadata.uid", meta["uid"], "field is immutable")]
        )
    shown = dict(new)
    try:
        warnings = _check_fields(store, kind, new, options)
    except ApiFailure as failure:
        raise _invalid_patch(shown, failure.message.partition(": ")[2]) from None
    new = _with_managed_fields(store, target, _manager(options, request), old, new)
    written = store.update(kind, from_client(kind, new), subresource=target.subresource, dry_run=dry_run)
    return 200, written, warnings


def _apply(store: Store, target: Target, options: Options, sent: Any, *, dry_run: bool) -> Written:
    kind, manager = target.kind, options.text("fieldManager")
    applied = check_applied(sent, manager)
    _match_url(target, applied)
    warnings = _check_fields(store, kind, applied, options)
    live = store.find(kind, target.namespace, target.name or "")
    if live is None and target.subresource:
        raise failures.not_found(kind, target.name or "")
    expected_version = applied["metadata"].get("resourceVersion")
    if expected_version and (live is None or expected_version != live["metadata"]["resourceVersion"]):
        raise failures.modified(kind, target.name or "")
    shown = None if live is None else to_client(kind, live)
    managers = Managers(kind, schema_for(store, kind), shown)
    who = (manager, target.subresource or "")
    new = managers.apply(shown, applied, who, force=options.flag("force"))
    new = {**new, "metadata": {**new["metadata"], "managedFields": managers.entries(store.timestamp())}}
    if live is None:
        return 201, store.create(kind, from_client(kind, new), dry_run=dry_run), warnings
    return 200, store.update(kind, from_client(kind, new), subresource=target.subresource, dry_run=dry_run), warnings


def _manager(options: Options, request: Request) -> str:
    return options.text("fieldManager") or request.headers.get("User-Agent", "unknown").partition("/")[0]


def _with_managed_fields(store: Store, target: Target, manager: str, old: Json, new: Json) -> Json:
    """The object with its managedFields brought up to date, if it has any; they exist from the first apply on."""
    if not old["metadata"].get("managedFields"):
        return new
    managers = Managers(target.kind, schema_for(store, target.kind), old)
    managers.update(old, new, (manager, target.subresource or ""))
    return {**new, "metadata": {**new["metadata"], "managedFields": managers.entries(store.timestamp())}}


def patched(kind: ApiKind, old: Json, media: str, content: bytes, schema: Json) -> Json:
    """The object after a JSON patch, a JSON merge patch or a strategic merge patch."""
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
        return patches.apply_json_patch(old, sent)
    if not isinstance(sent, dict):
        raise bad_request("error decoding patch: a merge patch is an object")
    if media == _STRATEGIC:
        return patches.apply_strategic_patch(old, sent, schema)
    merged: Json = patches.apply_merge_patch(old, sent)
    return merged


def _invalid_patch(obj: Json, why: str) -> ApiFailure:
    cause = failures.bad_value("patch", msgspec.json.encode(obj).decode(), why)
    causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    message = f' "" is invalid: {cause}'
    return ApiFailure(UNPROCESSABLE, "Invalid", message, details={"causes": causes})


def write_scale(store: Store, target: Target, options: Options, request: Request) -> Json:
    kind = target.kind
    obj = store.get(kind, target.namespace, target.name or "")
    if request.method == "PUT":
        wanted = request_parts.body(request, "Scale")
    else:
        shown = subresources.scale_of(store, kind, obj)
        scales = ApiKind(plural="scales", kind="Scale")
        wanted = builtin.decode_unstored("Scale", patched(scales, shown, _media(request), request.body or b"", {}))
    new = subresources.scaled(store, kind, obj, wanted)
    return subresources.scale_of(store, kind, store.update(kind, new, dry_run=options.dry_run("UpdateOptions")))


def delete(store: Store, target: Target, options: Options, request: Request) -> Json:
    delete_options = _delete_options(options, request)
    dry_run = request_parts.is_dry_run("DeleteOptions", delete_options.get("dryRun"))
    obj, gone = store.delete(
        target.kind, target.namespace, target.name or "", dry_run=dry_run, **_delete_arguments(delete_options)
    )
    if not gone or target.kind.storage == POD_KIND.storage:
        return to_client(target.kind, obj)
    kind, meta = target.kind, obj["metadata"]
    named = {"name": meta["name"], **({"group": kind.group} if kind.group else {}), "kind": kind.plural}
    details = {**named, "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete_all(store: Store, target: Target, options: Options, request: Request) -> Json:
    kind = target.kind
    delete_options = _delete_options(options, request)
    dry_run = request_parts.is_dry_run("DeleteOptions", delete_options.get("dryRun"))
    matches = matcher_for(store, kind, options)
    found = [obj for obj in store.list(kind, target.namespace) if matches(obj)]
    for obj in found:
        meta = obj["metadata"]
        # An earlier deletion of this loop may have deleted this one too, by garbage collection.
        if store.find(kind, meta.get("namespace"), meta["name"]) is not None:
            store.delete(
                kind, meta.get("namespace"), meta["name"], dry_run=dry_run, **_delete_arguments(delete_options)
            )
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version}
    return {
        **head,
        "metadata": {"resourceVersion": str(store.version)},
        "items": [to_client(kind, one) for one in found],
    }


def _delete_options(options: Options, request: Request) -> Json:
    """DeleteOptions from the body; from the query only where there is no body."""
    if request.body:
        delete_options = request_parts.body(request, "DeleteOptions")
    else:
        delete_options = {
            "propagationPolicy": options.text("propagationPolicy") or None,
            "gracePeriodSeconds": options.number("gracePeriodSeconds"),
            "dryRun": options.listed("dryRun"),
        }
    if isinstance(delete_options.get("orphanDependents"), bool) and not delete_options.get("propagationPolicy"):
        delete_options["propagationPolicy"] = "Orphan" if delete_options["orphanDependents"] else "Background"
    policy = delete_options.get("propagationPolicy")
    if policy not in {None, "Foreground", "Background", "Orphan"}:
        cause = failures.unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        raise failures.invalid(_DELETE_OPTIONS, "", [cause])
    return delete_options


def _delete_arguments(delete_options: Json) -> dict[str, Any]:
    return {
        "grace": delete_options.get("gracePeriodSeconds"),
        "preconditions": delete_options.get("preconditions"),
        "propagation": delete_options.get("propagationPolicy"),
    }


def _media(request: Request) -> str:
    return request.headers.get("Content-Type", "").partition(";")[0].strip()


def _object(target: Target, request: Request) -> Json:
    """The object in the body; 400 where its kind, namespace or name is not that of the URL."""
    kind = target.kind
    obj = request_parts.body(request, kind.kind)
    if kind.custom and not obj.get("kind"):
        why = f"Object 'Kind' is missing in '{(request.body or b'').decode()}'"
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind}): {why}")
    _match_url(target, obj)
    return obj


def _match_url(target: Target, obj: Json) -> None:
    kind = target.kind
    kind_name, version = obj.setdefault("kind", kind.kind), obj.setdefault("apiVersion", kind.api_version)
    if kind_name != kind.kind or version != kind.api_version:
        short = str(version).rpartition("/")[2]
        why = f'no kind "{kind_name}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f'{kind_name} in version "{short}" cannot be handled as a {kind.kind}: {why}')
    meta = obj.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise failures.undecodable(kind, meta, f"{kind.kind}.metadata", "v1.ObjectMeta")
    if kind.namespaced:
        if meta.get("namespace") not in {None, "", target.namespace}:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        meta["namespace"] = target.namespace
    if target.name is not None and meta.setdefault("name", target.name) != target.name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({target.name})")


def _check_fields(store: Store, kind: ApiKind, obj: Json, options: Options, content: bytes = b"") -> dict[str, str]:
    """Drops fields that the kind does not have, and returns Warning headers.

    With `fieldValidation=Strict` such a field is a 400 instead; with `Ignore` there are no warnings.
    """
    schema = builtin.built_in_schema(kind)
    mode = options.text("fieldValidation") or "Warn"
    if schema is not None:
        unknown = list(builtin.decode_built_in(kind, schema, obj))
    else:
        unknown = list(builtin.decode_built_in(kind, builtin.object_meta(), obj["metadata"], "metadata"))
        rules = store.rules.get(kind.storage)
        unknown += rules.unknown_fields(kind, obj) if isinstance(rules, CustomRules) else []
    problems = [f'unknown field "{path}"' for path in sorted(unknown)]
    if mode == "Strict":
        problems = [*(f'duplicate field "{path}"' for path in request_parts.duplicates(content)), *problems]
    if not problems or mode == "Ignore":
        return {}
    if mode == "Strict":
        raise failures.cannot_handle(kind, f"strict decoding error: {', '.join(problems)}")
    return {"Warning": ", ".join(f"299 - {msgspec.json.encode(problem).decode()}" for problem in problems)}
