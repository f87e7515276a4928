"""The HTTP API of the store: a `Handler` that answers requests as an API server does."""

from collections.abc import Mapping
from datetime import datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import Any

import msgspec

from forebay.embedded.api import discovery, reads, request_parts, subresources, writes
from forebay.embedded.api.failures import ApiFailure, bad_request
from forebay.embedded.api.forms import Form
from forebay.embedded.api.objects import Json
from forebay.embedded.api.request_parts import Options, Target
from forebay.embedded.api.reviews import Reviews
from forebay.embedded.api.store import Store
from forebay.embedded.api.watch import Watch
from forebay.embedded.kubectl.openapi import openapi_document
from forebay.net.transport import Headers, Request, Response

_JSON = {"Content-Type": "application/json"}
_DISCOVERY = {"Content-Type": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
_HEALTH = frozenset({"healthz", "livez", "readyz"})
#: Seconds after which a watch ends whose client gives no timeout.
_DEFAULT_WATCH_TIMEOUT = 1800


class ApiHandler:
    """Answers requests, which need no credentials. `tokens` are the bearer tokens of TokenReviews, with their users."""

    def __init__(self, store: Store, *, tokens: Mapping[str, str] | None = None) -> None:
        self._store = store
        self._reviews = Reviews(store, tokens or {})

    async def __call__(self, request: Request) -> Response:
        try:
            response = self._answer(request)
        except ApiFailure as failure:
            retry = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
            response = _json_response(failure.code, failure.status(), {**_JSON, **retry})
        response.headers = Headers({**response.headers, "Date": _date(self._store.clock().replace(microsecond=0))})
        return response

    def _answer(self, request: Request) -> Response:
        path, options = request_parts.split(request)
        if path and path[0] in _HEALTH:
            return Response(200, {"Content-Type": "text/plain; charset=utf-8"}, b"ok")
        if path == ["version"]:
            return _json_response(200, discovery.SERVER_VERSION)
        if path and path[0] == "openapi":
            return self._openapi(request, path[1:])
        if not path or path[0] not in {"api", "apis"}:
            return _path_not_found()
        rest = path[1:] if path[0] == "api" else path[2:]
        if len(rest) < (1 if path[0] == "apis" else 2):
            return self._discover(request, path)
        if path[0] == "apis" and len(path) == 3:  # noqa: PLR2004 (/apis/group/version)
            return self._discover(request, path)
        if path[0] == "apis" and not discovery.serves(self._store, path[1], path[2]):
            return _path_not_found()
        return self._call(request, request_parts.parse_target(self._store.kinds, path), options)

    def _discover(self, request: Request, path: list[str]) -> Response:
        if request.method != "GET":
            raise _not_allowed()
        if len(path) == 1 and request_parts.accepted(request) == "APIGroupDiscoveryList":
            return _json_response(200, discovery.aggregated(self._store, core=path[0] == "api"), _DISCOVERY)
        found: Json | None
        match path:
            case ["api"]:
                found = discovery.core_versions(request.headers.get("Host", ""))
            case ["apis"]:
                found = discovery.group_list(self._store)
            case ["apis", name]:
                found = discovery.group(self._store, name)
            case _:
                found = discovery.resource_list(self._store, "/".join(path[1:]))
        return _path_not_found() if found is None else _json_response(200, found)

    def _openapi(self, request: Request, path: list[str]) -> Response:
        found = openapi_document(self._store, path, request.headers.get("Accept", ""))
        return _path_not_found() if found is None else Response(200, {"Content-Type": found[0]}, found[1])

    def _call(self, request: Request, target: Target, options: Options) -> Response:
        form = reads.form_for(self._store, target.kind, request_parts.accepted(request), options)
        if target.kind.virtual:
            if request.method != "POST" or target.name is not None:
                raise _not_allowed()
            sent = request_parts.body(request, target.kind.kind)
            return _json_response(201, self._reviews.answer(target.kind, target.namespace, sent))
        if target.subresource == "approval":
            # The conditions of a CertificateSigningRequest: a part of the status, under a permission of its own.
            target = msgspec.structs.replace(target, subresource="status")
        if target.subresource not in {None, "status", "finalize"}:
            return self._subresource(request, target, options)
        match request.method, target.name:
            case "GET", None:
                return self._list(target, options, form)
            case "GET", str(name):
                if options.flag("watch"):
                    raise bad_request(
                        "a watch of a single path is not supported: list with the field selector metadata.name instead"
                    )
                return _json_response(200, form.one(self._store.get(target.kind, target.namespace, name)))
            case "POST", None:
                code, created, warnings = writes.create(self._store, target, options, request)
                return _json_response(code, form.one(created), {**_JSON, **warnings})
            case "PUT", str():
                code, updated, warnings = writes.replace(self._store, target, options, request)
                return _json_response(code, form.one(updated), {**_JSON, **warnings})
            case "PATCH", str():
                code, patched, warnings = writes.patch(self._store, target, options, request)
                return _json_response(code, form.one(patched), {**_JSON, **warnings})
            case "DELETE", str() if target.subresource is None:
                return _json_response(200, writes.delete(self._store, target, options, request))
            case "DELETE", None if target.kind.namespaced == (target.namespace is not None) and "deletecollection" in (
                target.kind.verbs
            ):
                return _json_response(200, writes.delete_all(self._store, target, options, request))
        raise _not_allowed()

    def _list(self, target: Target, options: Options, form: Form) -> Response:
        if not options.flag("watch"):
            return _json_response(200, reads.list_page(self._store, target, options, form))
        reads.check_watch(options)
        timeout = options.number("timeoutSeconds")
        version = options.version()
        initial = not version or options.flag("sendInitialEvents")
        if options.flag("sendInitialEvents"):
            reads.not_from_the_future(self._store, version)
        watch = Watch(
            self._store,
            target.kind,
            namespace=target.namespace,
            matches=reads.matcher_for(self._store, target.kind, options),
            form=form,
            since=None if initial else version,
            bookmarks=options.flag("allowWatchBookmarks"),
            end_of_list=options.flag("allowWatchBookmarks") and options.flag("sendInitialEvents"),
            timeout=timeout or _DEFAULT_WATCH_TIMEOUT,
        )
        return Response(200, _JSON, watch.lines(), on_close=watch.close)

    def _subresource(self, request: Request, target: Target, options: Options) -> Response:
        name, namespace, store = target.name or "", target.namespace or "", self._store
        match request.method, target.subresource:
            case "POST", "token":
                return _json_response(
                    201, self._reviews.issue(namespace, name, request_parts.body(request, "TokenRequest"))
                )
            case "POST", "binding":
                sent = request_parts.body(request, "Binding")
                _check_name(sent, "Binding", name)
                subresources.bind_pod(store, namespace, name, sent, dry_run=options.dry_run("CreateOptions", sent))
                return _json_response(201, _success(201))
            case "POST", "eviction":
                sent = request_parts.body(request, "Eviction")
                _check_name(sent, "Eviction", name)
                wanted = sent.get("deleteOptions") or {}
                subresources.evict_pod(store, namespace, name, wanted, dry_run=options.dry_run("CreateOptions", wanted))
                return _json_response(201, _success(201))
            case "GET", "scale":
                return _json_response(
                    200, subresources.scale_of(store, target.kind, store.get(target.kind, namespace, name))
                )
            case "PUT" | "PATCH", "scale":
                return _json_response(200, writes.write_scale(store, target, options, request))
            case _, "log" | "exec" | "attach" | "portforward":
                store.get(target.kind, namespace, name)
                what = {"log": "logs", "portforward": "port-forward"}.get(str(target.subresource), target.subresource)
                message = f"the embedded cluster does not support {what}: its pods are timers without containers"
                raise ApiFailure(501, "NotImplemented", message)
        raise _not_allowed()


@lru_cache(maxsize=16)
def _date(at: datetime) -> str:
    return format_datetime(at, usegmt=True)


def _json_response(status: int, content: Any, headers: Mapping[str, str] = _JSON) -> Response:
    return Response(status, headers, msgspec.json.encode(content) + b"\n")


def _success(code: int) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _check_name(sent: Json, kind: str, name: str) -> None:
    if (sent.get("metadata") or {}).get("name") != name:
        raise bad_request(f"name in URL does not match name in {kind} object")


def _path_not_found() -> Response:
    return Response(404, {"Content-Type": "text/plain; charset=utf-8"}, b"404 page not found\n")


def _not_allowed() -> ApiFailure:
    message = "the server does not allow this method on the requested resource"
    return ApiFailure(405, "MethodNotAllowed", message, details={})
