"""Protobuf bodies, which `kubectl create namespace` and similar commands send instead of JSON.

A table of the messages that those commands send, and a decoder to JSON. A field outside the table is refused: dropping
it would store an incomplete object. Field numbers are those of Kubernetes' published `.proto` files.
"""

import base64
from collections.abc import Iterator
from typing import Any

from forebay.embedded.api.failures import ApiFailure
from forebay.embedded.api.objects import Json

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

#: Fields of each message as `number name type`. Types: s string, i integer, b boolean (capital: a pointer, whose zero
#: value is kept), map and mapy a map of strings and of bytes, q a map of quantities, ios int-or-string, - ignored, else
#: a message; `*` is repeated.
_MESSAGES = {
    "Namespace": "1 metadata Meta, 2 spec -, 3 status -",
    "ConfigMap": "1 metadata Meta, 2 data map, 3 binaryData mapy, 4 immutable B",
    "Secret": "1 metadata Meta, 2 data mapy, 3 type s, 4 stringData map, 5 immutable B",
    "ServiceAccount": "1 metadata Meta, 4 automountServiceAccountToken B",
    "Service": "1 metadata Meta, 2 spec ServiceSpec, 3 status -",
    "Pod": "1 metadata Meta, 2 spec PodSpec, 3 status -",
    "Job": "1 metadata Meta, 2 spec JobSpec, 3 status -",
    "Role": "1 metadata Meta, 2 rules *PolicyRule",
    "ClusterRole": "1 metadata Meta, 2 rules *PolicyRule",
    "RoleBinding": "1 metadata Meta, 2 subjects *Subject, 3 roleRef RoleRef",
    "ClusterRoleBinding": "1 metadata Meta, 2 subjects *Subject, 3 roleRef RoleRef",
    "PodDisruptionBudget": "1 metadata Meta, 2 spec BudgetSpec, 3 status -",
    "PriorityClass": "1 metadata Meta, 2 value i, 3 globalDefault b, 4 description s, 5 preemptionPolicy s",
    "SelfSubjectAccessReview": "1 metadata Meta, 2 spec AccessSpec, 3 status -",
    "Eviction": "1 metadata Meta, 2 deleteOptions DeleteOptions",
    "DeleteOptions": "1 gracePeriodSeconds I, 2 preconditions Preconditions, 3 orphanDependents B, "
    "4 propagationPolicy s, 5 dryRun *s",
    "Preconditions": "1 uid s, 2 resourceVersion s",
    "Meta": "1 name s, 2 generateName s, 3 namespace s, 4 selfLink s, 5 uid s, 6 resourceVersion s, 7 generation i, "
    "8 creationTimestamp -, 9 deletionTimestamp -, 11 labels map, 12 annotations map, 14 finalizers *s",
    "ServiceSpec": "1 ports *ServicePort, 2 selector map, 3 clusterIP s, 4 type s, 7 sessionAffinity s, "
    "10 externalName s, 11 externalTrafficPolicy s, 12 healthCheckNodePort i, 13 publishNotReadyAddresses b, "
    "8 loadBalancerIP s",
    "ServicePort": "1 name s, 2 protocol s, 3 port i, 4 targetPort ios, 5 nodePort i, 6 appProtocol s",
    "JobSpec": "1 parallelism I, 2 completions I, 3 activeDeadlineSeconds I, 5 manualSelector B, 6 template Template, "
    "7 backoffLimit I, 8 ttlSecondsAfterFinished I, 9 completionMode s, 10 suspend B, 14 podReplacementPolicy s",
    "Template": "1 metadata Meta, 2 spec PodSpec",
    "PodSpec": "2 containers *Container, 3 restartPolicy s, 4 terminationGracePeriodSeconds I, "
    "5 activeDeadlineSeconds I, 6 dnsPolicy s, 7 nodeSelector map, 8 serviceAccountName s, 9 serviceAccount s, "
    "10 nodeName s, 11 hostNetwork b, 12 hostPID b, 13 hostIPC b, 16 hostname s, 17 subdomain s, 19 schedulerName s, "
    "20 initContainers *Container, 24 priorityClassName s, 25 priority I",
    "Container": "1 name s, 2 image s, 3 command *s, 4 args *s, 5 workingDir s, 6 ports *Port, 7 env *Env, "
    "8 resources Resources, 13 terminationMessagePath s, 14 imagePullPolicy s, 16 stdin b, 17 stdinOnce b, 18 tty b, "
    "20 terminationMessagePolicy s",
    "Port": "1 name s, 2 hostPort i, 3 containerPort i, 4 protocol s, 5 hostIP s",
    "Env": "1 name s, 2 value s",
    "Resources": "1 limits q, 2 requests q",
    "PolicyRule": "1 verbs *s, 2 apiGroups *s, 3 resources *s, 4 resourceNames *s, 5 nonResourceURLs *s",
    "Subject": "1 kind s, 2 apiGroup s, 3 name s, 4 namespace s",
    "RoleRef": "1 apiGroup s, 2 kind s, 3 name s",
    "BudgetSpec": "1 minAvailable ios, 2 selector Selector, 3 maxUnavailable ios, 4 unhealthyPodEvictionPolicy s",
    "Selector": "1 matchLabels map, 2 matchExpressions *Requirement",
    "Requirement": "1 key s, 2 operator s, 3 values *s",
    "AccessSpec": "1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes",
    "ResourceAttributes": "1 namespace s, 2 verb s, 3 group s, 4 version s, 5 resource s, 6 subresource s, 7 name s",
    "NonResourceAttributes": "1 path s, 2 verb s",
}
#: Scalar types whose zero value means that the field is not set.
_OMITTED_WHEN_ZERO = frozenset({"s", "i", "b"})


def decode_protobuf(content: bytes) -> Json:
    """The object in a Kubernetes protobuf envelope, as JSON."""
    if not content.startswith(_MAGIC):
        raise _refused("it has no Kubernetes protobuf header")
    try:
        envelope = dict(_fields(content[len(_MAGIC) :]))
        names = dict(_fields(envelope[1]))
        api_version, kind = _text(names.get(1)), _text(names.get(2))
        if kind not in _MESSAGES:
            raise _refused(f"kind {kind} is not supported in protobuf")
        return {"apiVersion": api_version, "kind": kind, **_message(kind, envelope.get(2, b""))}
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise _refused(f"its content is damaged ({error})") from None


def _message(name: str, content: bytes) -> Json:
    table = {int(number): (field, form) for number, field, form in (row.split() for row in _MESSAGES[name].split(","))}
    found: Json = {}
    for number, value in _fields(content):
        if number not in table:
            raise _refused(f"field {number} of {name} is not supported")
        field, form = table[number]
        if form.startswith("*"):
            found.setdefault(field, []).append(_value(form[1:], value))
        elif form in {"map", "mapy", "q"}:
            entry = dict(_fields(value))
            found.setdefault(field, {})[_text(entry.get(1))] = _entry(form, entry.get(2, b""))
        elif form != "-":
            read = _value(form, value)
            if read or form not in _OMITTED_WHEN_ZERO:
                found[field] = read
    return found


def _entry(form: str, value: Any) -> str:
    if form == "mapy":
        return base64.b64encode(value).decode()
    return _text(dict(_fields(value)).get(1)) if form == "q" else _text(value)


def _value(form: str, value: Any) -> Any:
    match form:
        case "s":
            return _text(value)
        case "i" | "I":
            return value - 2**64 if value >= 2**63 else value
        case "b" | "B":
            return bool(value)
        case "ios":
            parts = dict(_fields(value))
            return _text(parts.get(3)) if parts.get(1) else parts.get(2, 0)
        case _:
            return _message(form, value)


def _text(value: Any) -> str:
    return bytes(value or b"").decode()


def _fields(content: Any) -> Iterator[tuple[int, Any]]:
    """Fields in protobuf's wire format: number and undecoded value."""
    view = memoryview(content)
    position = 0
    while position < len(view):
        key, position = _varint(view, position)
        if key & 7 == _VARINT:
            value, position = _varint(view, position)
            yield key >> 3, value
            continue
        if key & 7 == _BYTES:
            size, position = _varint(view, position)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}[key & 7]
        if position + size > len(view):
            raise ValueError("unexpected end")
        yield key >> 3, view[position : position + size]
        position += size


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = view[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 (the continuation bit)
            return number, position


def _refused(why: str) -> ApiFailure:
    message = (
        f"the embedded cluster cannot read this protobuf object: {why}. Send it as JSON or YAML "
        "(kubectl ... --dry-run=client -o yaml | kubectl create -f -)"
    )
    return ApiFailure(415, "UnsupportedMediaType", message)
