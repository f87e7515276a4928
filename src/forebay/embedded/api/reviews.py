"""TokenReviews, access reviews from the RBAC objects in the store, and tokens of service accounts.

The API itself asks for no credentials. The reviews serve clients that do, such as a metrics endpoint.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from forebay.embedded.api import metadata
from forebay.embedded.api.kinds import (
    CLUSTER_ROLE_BINDING_KIND,
    CLUSTER_ROLE_KIND,
    ROLE_BINDING_KIND,
    ROLE_KIND,
    SERVICE_ACCOUNT_KIND,
    ApiKind,
)
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

_ADMINS = "system:masters"
_DEFAULT_EXPIRATION = 3600


class Reviews:
    """Answers reviews. `tokens` are bearer tokens known from the start, with their users, who are administrators."""

    def __init__(self, store: Store, tokens: Mapping[str, str]) -> None:
        self._store = store
        self._users: dict[str, Json] = {
            token: {"username": user, "groups": [_ADMINS, "system:authenticated"]} for token, user in tokens.items()
        }

    def answer(self, kind: ApiKind, namespace: str | None, review: Json) -> Json:
        review = {**review, "kind": kind.kind, "apiVersion": kind.api_version}
        spec = review.get("spec") or {}
        if kind.kind == "TokenReview":
            user = self._users.get(spec.get("token", ""))
            if user is None:
                return {**review, "status": {"user": {}, "error": "invalid bearer token"}}
            return {**review, "status": {"authenticated": True, "user": user}}
        if kind.kind == "SelfSubjectAccessReview":
            spec = {**spec, "user": "system:admin", "groups": [_ADMINS]}
        return {**review, "status": {"allowed": self._allowed(spec, namespace)}}

    def issue(self, namespace: str, name: str, request: Json) -> Json:
        """Answers a TokenRequest with a new token of the service account."""
        account = self._store.get(SERVICE_ACCOUNT_KIND, namespace, name)
        token = f"embedded.{metadata.new_uid(self._store.random)}"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        user = {"username": f"system:serviceaccount:{namespace}:{name}", "uid": account["metadata"]["uid"]}
        self._users[token] = {**user, "groups": groups}
        spec = request.get("spec") or {}
        end = self._store.clock() + timedelta(seconds=spec.get("expirationSeconds") or _DEFAULT_EXPIRATION)
        status = {"token": token, "expirationTimestamp": metadata.timestamp(end)}
        head = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": name}}
        return {**head, "spec": spec, "status": status}

    def _allowed(self, spec: Json, namespace: str | None) -> bool:
        groups = spec.get("groups") or ()
        if _ADMINS in groups:
            return True
        wanted = spec.get("resourceAttributes") or {}
        scope = wanted.get("namespace") or namespace or ""
        return any(_permits(rule, spec) for rule in self._rules(spec.get("user", ""), groups, scope))

    def _rules(self, user: str, groups: object, namespace: str) -> Iterator[Json]:
        bindings = [*self._store.list(CLUSTER_ROLE_BINDING_KIND)]
        bindings += self._store.list(ROLE_BINDING_KIND, namespace) if namespace else []
        for binding in bindings:
            own_namespace = binding["metadata"].get("namespace", "")
            if not any(_is_subject(subject, user, groups, own_namespace) for subject in binding.get("subjects") or ()):
                continue
            reference = binding["roleRef"]
            kind = CLUSTER_ROLE_KIND if reference["kind"] == "ClusterRole" else ROLE_KIND
            role = self._store.find(kind, own_namespace, reference["name"])
            yield from (role or {}).get("rules") or ()


def _is_subject(subject: Json, user: str, groups: object, namespace: str) -> bool:
    match subject.get("kind"):
        case "User":
            return bool(subject["name"] == user)
        case "Group":
            return subject["name"] in (groups if isinstance(groups, list) else ())
        case _:
            own_namespace = subject.get("namespace") or namespace
            return user == f"system:serviceaccount:{own_namespace}:{subject.get('name')}"


def _permits(rule: Json, spec: Json) -> bool:
    path, wanted = spec.get("nonResourceAttributes"), spec.get("resourceAttributes") or {}
    if path is not None:
        return _allows(rule, "verbs", path.get("verb")) and any(
            url in {"*", path.get("path")} or (url.endswith("*") and str(path.get("path")).startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    resource = "/".join(filter(None, (wanted.get("resource"), wanted.get("subresource"))))
    names = rule.get("resourceNames")
    return (
        _allows(rule, "verbs", wanted.get("verb"))
        and _allows(rule, "apiGroups", wanted.get("group", ""))
        and _allows(rule, "resources", resource)
        and (not names or wanted.get("name") in names)
    )


def _allows(rule: Json, field: str, value: object) -> bool:
    return bool({"*", value} & set(rule.get(field) or ()))
