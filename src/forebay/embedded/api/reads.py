"""Lists: selectors, resource versions and consistent paging."""

import base64
from collections.abc import Callable, Sequence

import msgspec

from forebay.embedded.api import failures
from forebay.embedded.api.custom_resources import custom_version
from forebay.embedded.api.failures import ApiFailure, bad_request
from forebay.embedded.api.forms import Form, PartialForm
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json, object_key
from forebay.embedded.api.request_parts import Options, Target
from forebay.embedded.api.selectors import field_selector, label_selector
from forebay.embedded.api.store import Store
from forebay.embedded.kubectl.tables import TableForm

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class _ContinueToken(msgspec.Struct):
    """Continue token: resource version of all pages (0: the current one), and the last key of the page before."""

    rv: int
    start: tuple[str, str]

    def encode(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @staticmethod
    def decode(text: str) -> "_ContinueToken":
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_ContinueToken)
        except (ValueError, msgspec.DecodeError) as error:
            raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None


def form_for(store: Store, kind: ApiKind, accepted: str, options: Options) -> Form:
    if accepted == "Table":
        return TableForm(store, kind, options.text("includeObject") or "Metadata")
    return PartialForm(kind) if accepted.startswith("PartialObjectMetadata") else Form(kind)


def matcher_for(store: Store, kind: ApiKind, options: Options) -> Callable[[Json], bool]:
    custom = custom_version(store, kind)
    labels = label_selector(options.text("labelSelector"))
    fields = field_selector(kind, options.text("fieldSelector"), custom.selectable if custom else ())
    tests = [test for test in (labels, fields) if test is not None]
    if not tests:
        return lambda _: True
    return lambda obj: all(test(obj) for test in tests)


def list_page(store: Store, target: Target, options: Options, shown: Form) -> Json:
    limit, token = options.number("limit") or 0, options.text("continue")
    selected = any(options.text(name) for name in ("labelSelector", "fieldSelector"))
    matches = matcher_for(store, target.kind, options)
    objects, version, start = _objects(store, target, options, token, limit)
    if start is not None:
        objects = [obj for obj in objects if object_key(obj) > start]
    found: list[Json] = []
    rest = 0
    for index, obj in enumerate(objects):
        if matches(obj):
            if limit and len(found) == limit:
                rest = len(objects) - index
                break
            found.append(obj)
    meta: Json = {"resourceVersion": str(version)}
    if rest:
        meta["continue"] = _ContinueToken(version, object_key(found[-1])).encode()
        if not selected:
            meta["remainingItemCount"] = rest
    return shown.many(found, meta)


def _objects(
    store: Store, target: Target, options: Options, token: str, limit: int
) -> tuple[Sequence[Json], int, tuple[str, str] | None]:
    """All objects in scope, their resource version, and the key after which the page starts."""
    kind, namespace = target.kind, target.namespace
    version, match = options.version(), options.text("resourceVersionMatch")
    if token:
        if version:
            raise bad_request("specifying resource version is not allowed when using continue")
        page = _ContinueToken.decode(token)
        try:
            return store.list_at(kind, namespace, page.rv or store.version), page.rv or store.version, page.start
        except ApiFailure:
            # The answer carries a token with which the client can go on, at the cost of consistency.
            inconsistent = {"continue": _ContinueToken(0, page.start).encode()}
            raise ApiFailure(410, "Expired", _TOO_OLD, metadata=inconsistent) from None
    if match and version is None:
        cause = failures.not_allowed(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
        raise failures.invalid(_LIST_OPTIONS, "", [cause])
    not_from_the_future(store, version)
    if version and (match == "Exact" or (limit and not match)):
        try:
            return store.list_at(kind, namespace, version), version, None
        except ApiFailure:
            raise failures.gone("The resourceVersion for the provided list is too old.") from None
    return store.list(kind, namespace), store.version, None


_LIST_OPTIONS = ApiKind(group="meta.k8s.io", plural="", kind="ListOptions")


def check_watch(options: Options) -> None:
    match, initial = options.text("resourceVersionMatch"), options.has("sendInitialEvents")
    causes = []
    if initial and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(failures.not_allowed("resourceVersionMatch", why))
    if match and not initial:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(failures.not_allowed("resourceVersionMatch", why))
    if causes:
        raise failures.invalid(_LIST_OPTIONS, "", causes)


def not_from_the_future(store: Store, version: int | None) -> None:
    if version and version > store.version:
        message = f"Timeout: Too large resource version: {version}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise ApiFailure(504, "Timeout", message, details={"causes": causes}, retry_after=1)
