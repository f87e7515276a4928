"""Rules of `metadata` that hold for every kind: names, UIDs, labels, finalizers, owners, preconditions."""

import random
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from forebay.embedded.api import failures
from forebay.embedded.api.failures import FieldCause, bad_value
from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json

_PLAIN_FINALIZERS = frozenset({"foregroundDeletion", "orphan", "kubernetes"})
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
IS_LABEL = re.compile(_LABEL)
_IS_SUBDOMAIN = re.compile(_SUBDOMAIN)
_IS_LABEL_KEY = re.compile(rf"({_SUBDOMAIN}/)?([A-Za-z0-9][-A-Za-z0-9_.]{{0,61}})?[A-Za-z0-9]")
_IS_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?")
#: Kubernetes' alphabet for generated names: no vowels, no characters that look alike.
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 58
_MAX_NAME = 253
_MAX_LABEL = 63

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def timestamp(moment: datetime) -> str:
    # strftime takes five times as long, and every write needs one.
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def new_uid(source: random.Random) -> str:
    return str(uuid.UUID(int=source.getrandbits(128), version=4))


def set_generated_name(kind: ApiKind, meta: Json, source: random.Random, taken: Callable[[str], bool]) -> None:
    """Sets a name from `generateName` where there is none."""
    if meta.get("name"):
        return
    base = meta.get("generateName")
    if not base:
        cause = failures.required("metadata.name", "name or generateName is required")
        raise failures.invalid(kind, "", [cause])
    while True:
        suffix = "".join(source.choices(_SUFFIX, k=5))
        meta["name"] = base[:_MAX_GENERATED] + suffix
        if not taken(meta["name"]):
            return


def set_system_fields(meta: Json, moment: str, uid: str) -> None:
    """Sets uid and creationTimestamp of a new object, and removes other fields that a client cannot set."""
    for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "resourceVersion"):
        meta.pop(field, None)
    meta["uid"] = uid
    meta["creationTimestamp"] = moment
    _drop_empty(meta)


def check_metadata(kind: ApiKind, meta: Json, old: Json | None = None, *, causes: Sequence[FieldCause] = ()) -> None:
    """Raises a 422 for invalid names, labels, annotations, finalizers and owners, together with the given causes."""
    found = [*_metadata_causes(kind, meta, old), *causes]
    if found:
        raise failures.invalid(kind, meta["name"], found)


def _metadata_causes(kind: ApiKind, meta: Json, old: Json | None) -> list[FieldCause]:
    causes = [] if old is not None else _name_causes(kind, meta["name"])
    # Fields that an update leaves unchanged have been validated before.
    new = {field: value for field, value in meta.items() if old is None or old.get(field) != value}
    for label, value in (new.get("labels") or {}).items():
        if not _IS_LABEL_KEY.fullmatch(label):
            causes.append(bad_value("metadata.labels", label, _LABEL_KEY_RULE))
        if not isinstance(value, str):
            raise failures.undecodable(kind, value, "ObjectMeta.metadata.labels", "string")
        if len(value) > _MAX_LABEL:
            causes.append(
                FieldCause(
                    "metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": must be no more than 63 bytes'
                )
            )
        elif not _IS_LABEL_VALUE.fullmatch(value):
            causes.append(bad_value("metadata.labels", value, _LABEL_VALUE_RULE))
    for annotation, value in (new.get("annotations") or {}).items():
        if not _IS_LABEL_KEY.fullmatch(annotation.lower()):
            causes.append(bad_value("metadata.annotations", annotation, _LABEL_KEY_RULE))
        if not isinstance(value, str):
            raise failures.undecodable(kind, value, "ObjectMeta.metadata.annotations", "string")
    for index, finalizer in enumerate(new.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in _PLAIN_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(bad_value(f"metadata.finalizers[{index}]", finalizer, why))
    causes += _owner_causes(new.get("ownerReferences") or ())
    if old is not None and old.get("deletionTimestamp"):
        added = [one for one in new.get("finalizers") or () if one not in (old.get("finalizers") or ())]
        if added:
            found = ", ".join(f'"{one}"' for one in added)
            why = (
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{" + found
            )
            causes.append(failures.not_allowed("metadata.finalizers", why + "}"))
    return causes


def _owner_causes(owners: Sequence[Json]) -> list[FieldCause]:
    causes = [
        failures.required(f"metadata.ownerReferences[{index}].{field}", f"{field} must not be empty")
        for index, owner in enumerate(owners)
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    controllers = [f"{owner.get('kind')} {owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        why = "Only one reference can have Controller set to true. Found "
        listed = " and ".join(f'"true" in references for {owner}' for owner in controllers[:2])
        causes.append(bad_value("metadata.ownerReferences", owners, why + listed))
    return causes


def _name_causes(kind: ApiKind, name: str) -> list[FieldCause]:
    if kind.group == "rbac.authorization.k8s.io":
        bad = name in {".", ".."} or "/" in name or "%" in name
        return [bad_value("metadata.name", name, "may not contain '/' or '%'")] if bad else []
    label = kind.plural in {"namespaces", "services"} and not kind.group
    longest = _MAX_LABEL if label else _MAX_NAME
    causes = []
    if len(name) > longest:
        causes.append(bad_value("metadata.name", name, f"must be no more than {longest} bytes"))
    if not (IS_LABEL if label else _IS_SUBDOMAIN).fullmatch(name):
        causes.append(bad_value("metadata.name", name, LABEL_RULE if label else _SUBDOMAIN_RULE))
    return causes


def keep_system_fields(kind: ApiKind, old: Json, meta: Json) -> Json:
    """The metadata of an update, changed in place: fields that an update cannot change are as before."""
    uid = meta.get("uid")
    if uid and uid != old["uid"]:
        raise failures.conflict(
            kind, meta["name"], f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        )
    marked = meta.get("deletionTimestamp")
    if marked and marked != old.get("deletionTimestamp"):
        cause = bad_value("metadata.deletionTimestamp", marked, "field is immutable")
        raise failures.invalid(kind, meta["name"], [cause])
    for field in (
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
    ):
        if field in old:
            meta[field] = old[field]
        else:
            meta.pop(field, None)
    _drop_empty(meta)
    return meta


def _drop_empty(meta: Json) -> None:
    """Removes empty lists and maps, as a real server does."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences", "managedFields"):
        if field in meta and not meta[field]:
            del meta[field]


def check_preconditions(kind: ApiKind, meta: Json, preconditions: Mapping[str, str]) -> None:
    uid, version = preconditions.get("uid"), preconditions.get("resourceVersion")
    if uid and uid != meta["uid"]:
        raise failures.uid_mismatch(kind, meta, uid)
    if version and version != meta["resourceVersion"]:
        shown = msgspec.structs.replace(kind, plural=kind.kind, group="")
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record "
        again = f"({meta['resourceVersion']}). The object might have been modified"
        raise failures.conflict(shown, meta["name"], why + again)


def set_propagation(meta: Json, propagation: str | None) -> None:
    """Adds the finalizer of a Foreground or Orphan deletion, which the garbage collector removes when it is done."""
    if propagation is None:
        return
    finalizers = [one for one in meta.get("finalizers") or () if one not in {FOREGROUND, ORPHAN}]
    if propagation == "Foreground":
        finalizers.append(FOREGROUND)
    elif propagation == "Orphan":
        finalizers.append(ORPHAN)
    elif propagation != "Background":
        raise failures.bad_request(f'invalid propagation policy "{propagation}"')
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
