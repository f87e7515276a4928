"""CustomResourceDefinitions: their validation, and the kinds and rules that each adds to the server."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from forebay.embedded.api import builtin, cel
from forebay.embedded.api import schema as schemas
from forebay.embedded.api.collection import StoredChange
from forebay.embedded.api.failures import FieldCause, bad_value, required, unsupported
from forebay.embedded.api.kinds import CRD_KIND, ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.rules import KindRules
from forebay.embedded.api.store import Store
from forebay.embedded.kubectl.json_path import JsonPath
from forebay.kube.decoders import ADDED, DELETED

_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"


class CustomVersion(msgspec.Struct, frozen=True):
    """Schema, printer columns, selectable fields and scale paths of one version of a CRD."""

    schema: Json
    columns: tuple[Json, ...]
    selectable: tuple[str, ...]
    #: JSON paths of the scale subresource; None without one.
    scale: Mapping[str, str] | None


class CustomRules(KindRules):
    def __init__(self, versions: Mapping[str, CustomVersion]) -> None:
        self.versions = versions

    def unknown_fields(self, kind: ApiKind, obj: Json) -> list[str]:
        """Prunes the object; returns the paths of the removed fields."""
        return list(schemas.prune(self.versions[kind.version].schema, obj))

    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:
        super().create(store, kind, obj)
        return self._prune_default_validate(kind, obj, None)

    def update(
        self,
        store: Store,  # noqa: ARG002
        kind: ApiKind,
        old: Json,
        new: Json,
        subresource: str | None,  # noqa: ARG002
    ) -> Sequence[FieldCause]:
        return self._prune_default_validate(kind, new, old)

    def _prune_default_validate(self, kind: ApiKind, obj: Json, old: Json | None) -> Sequence[FieldCause]:
        schema = self.versions[kind.version].schema
        self.unknown_fields(kind, obj)
        schemas.default(schema, obj)
        return schemas.validate(schema, obj, old)


def custom_version(store: Store, kind: ApiKind) -> CustomVersion | None:
    rules = store.rules.get(kind.storage)
    return rules.versions.get(kind.version) if isinstance(rules, CustomRules) else None


def schema_for(store: Store, kind: ApiKind) -> Json:
    """The schema by which patches and server-side apply merge objects of the kind."""
    custom = custom_version(store, kind)
    if custom is None:
        return builtin.built_in_schema(kind) or {}
    properties = {**(custom.schema.get("properties") or {}), "metadata": builtin.object_meta()}
    return {**custom.schema, "properties": properties}


class CrdRules(KindRules):
    def create(self, store: Store, kind: ApiKind, obj: Json) -> Sequence[FieldCause]:
        causes = super().create(store, kind, obj)
        if not causes:
            obj["status"] = _accepted_status(store, obj)
        return causes

    def update(
        self, store: Store, kind: ApiKind, old: Json, new: Json, subresource: str | None
    ) -> Sequence[FieldCause]:
        causes = super().update(store, kind, old, new, subresource)
        if not causes and subresource != "status":
            stored = {one["name"] for one in new["spec"]["versions"] if one.get("storage")}
            status = new["status"]
            versions = [*status["storedVersions"], *(stored - set(status["storedVersions"]))]
            new["status"] = {**status, "acceptedNames": new["spec"]["names"], "storedVersions": versions}
        return causes

    def deleting(self, store: Store, obj: Json) -> None:
        meta, status = obj["metadata"], obj["status"]
        meta["finalizers"] = [*(meta.get("finalizers") or ()), _CLEANUP]
        message = "CustomResource deletion is in progress"
        terminating = _condition(store, "Terminating", "InstanceDeletionInProgress", message)
        obj["status"] = {**status, "conditions": [*status["conditions"], terminating]}

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def causes(self, obj: Json, old: Json | None) -> Iterator[FieldCause]:
        yield from _crd_causes(obj["metadata"]["name"], obj["spec"])
        for field in ("group", "scope"):
            if old is not None and obj["spec"].get(field) != old["spec"][field]:
                yield bad_value(f"spec.{field}", obj["spec"].get(field), "field is immutable")


def _crd_causes(name: str, spec: Json) -> Iterator[FieldCause]:
    names = spec["names"]
    for field, value in (
        ("group", spec.get("group")),
        ("names.plural", names.get("plural")),
        ("names.kind", names.get("kind")),
    ):
        if not value:
            yield required(f"spec.{field}")
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if name != expected:
        yield bad_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        yield unsupported("spec.scope", spec.get("scope", ""), ["Cluster", "Namespaced"])
    if spec["conversion"].get("strategy") != "None":
        yield unsupported("spec.conversion.strategy", spec["conversion"].get("strategy"), ["None"])
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        yield bad_value("spec.versions", [version.get("name") for version in versions], why)
    for index, version in enumerate(versions):
        where = f"spec.versions[{index}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            yield required(where, "schemas are required")
        else:
            yield from _kept_schema_causes(msgspec.json.encode(schema), where)
        for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
            try:
                JsonPath(column["jsonPath"])
            except ValueError as error:
                where = f"spec.versions[{index}].additionalPrinterColumns[{number}].jsonPath"
                yield bad_value(where, column["jsonPath"], str(error))


@lru_cache(maxsize=64)
def _kept_schema_causes(schema: bytes, where: str) -> tuple[FieldCause, ...]:
    return tuple(_schema_causes(msgspec.json.decode(schema), where))


def _schema_causes(schema: Json, path: str) -> Iterator[FieldCause]:
    """Checks that the schema is structural (a type everywhere) and that all its CEL rules compile."""
    if not schema.get("type") and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE):
        yield required(f"{path}.type", "must not be empty for specified object fields")
    try:
        cel.compiled_rules(schema)
    except cel.BadRule as error:
        rules = schema.get("x-kubernetes-validations")
        yield bad_value(f"{path}.x-kubernetes-validations[0].rule", rules, str(error))
    for key, inner in (schema.get("properties") or {}).items():
        yield from _schema_causes(inner, f"{path}.properties[{key}]")
    inner = schema.get("additionalProperties")
    if isinstance(inner, dict):
        # A schema or a boolean: the published types do not say which, so its content has not been decoded yet.
        list(builtin.decode_built_in(CRD_KIND, builtin.json_schema(), inner))
        yield from _schema_causes(inner, f"{path}.additionalProperties")
    elif inner is not None and not isinstance(inner, bool):
        yield bad_value(f"{path}.additionalProperties", inner, "must be a schema or a boolean")
    if schema.get("items"):
        yield from _schema_causes(schema["items"], f"{path}.items")


def _condition(store: Store, kind: str, reason: str, message: str) -> Json:
    return {
        "type": kind,
        "status": "True",
        "lastTransitionTime": store.timestamp(),
        "reason": reason,
        "message": message,
    }


def _accepted_status(store: Store, obj: Json) -> Json:
    spec = obj["spec"]
    return {
        "conditions": [
            _condition(store, "NamesAccepted", "NoConflicts", "no conflicts found"),
            _condition(store, "Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": spec["names"],
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
    }


class CrdLifecycle:
    """Serves the kinds of every CRD, and deletes all objects of a CRD before the CRD itself."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._served: dict[str, list[ApiKind]] = {}
        self._terminating: set[str] = set()
        store.subscribe(None, self._on_change)

    def _on_change(self, change: StoredChange) -> None:
        if change.kind.storage in self._terminating and change.type == DELETED:
            self._finish(change.kind)
        if change.kind.storage != CRD_KIND.storage:
            return
        name = change.new["metadata"]["name"]
        if change.type == DELETED:
            self._stop_serving(name)
            return
        if change.type == ADDED or change.old is None or change.old["spec"] != change.new["spec"]:
            self._serve(name, change.new["spec"])
        if "deletionTimestamp" in change.new["metadata"] and name not in self._terminating:
            self._terminating.add(name)
            # Objects exist even when no version is served.
            kind = _kind(change.new["spec"], change.new["spec"]["versions"][0])
            for obj in self._store.list(kind):
                meta = obj["metadata"]
                self._store.delete(kind, meta.get("namespace"), meta["name"])
            self._finish(kind)

    def _serve(self, name: str, spec: Json) -> None:
        for kind in self._served.get(name, ()):
            self._store.kinds.remove(kind)
        self._store.rules[name] = CustomRules({version["name"]: _version(version) for version in spec["versions"]})
        self._served[name] = [_kind(spec, version) for version in spec["versions"] if version.get("served")]
        for kind in self._served[name]:
            self._store.kinds.add(kind)

    def _stop_serving(self, name: str) -> None:
        self._terminating.discard(name)
        self._store.rules.pop(name, None)
        for kind in self._served.pop(name, ()):
            self._store.kinds.remove(kind)

    def _finish(self, kind: ApiKind) -> None:
        crd = self._store.find(CRD_KIND, None, kind.storage)
        if crd is not None and self._store.is_empty(kind):
            self._store.remove_finalizer(CRD_KIND, crd, _CLEANUP)


@lru_cache(maxsize=64)
def _decoded(schema: bytes) -> Json:
    """The schema, one and the same object for all clusters of this process: what is derived from it is kept by it."""
    decoded: Json = msgspec.json.decode(schema)
    return decoded


def _version(version: Json) -> CustomVersion:
    subresources = version.get("subresources") or {}
    fields = version.get("selectableFields") or ()
    return CustomVersion(
        schema=_decoded(msgspec.json.encode(version["schema"]["openAPIV3Schema"])),
        columns=tuple(version.get("additionalPrinterColumns") or ()),
        selectable=tuple(field["jsonPath"].removeprefix(".") for field in fields),
        scale=subresources.get("scale"),
    )


def _kind(spec: Json, version: Json) -> ApiKind:
    names = spec["names"]
    return ApiKind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(name for name in ("status", "scale") if name in (version.get("subresources") or {})),
        generation=True,
        unconditional_update=False,
        custom=True,
        singular_name=names["singular"],
        list_name=names["listKind"],
    )
