"""Discovery: the groups, versions and resources that this server has, one by one or aggregated."""

from collections.abc import Iterable

from forebay.embedded.api.kinds import ApiKind
from forebay.embedded.api.objects import Json
from forebay.embedded.api.store import Store

#: The Kubernetes release whose answers this server imitates.
SERVER_VERSION: Json = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.4+forebay.embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "python",
}

#: Group, version, kind and verbs of subresources whose kind is not that of their object.
_SUBRESOURCE_KINDS: dict[str, tuple[str, str, str, list[str]]] = {
    "binding": ("", "v1", "Binding", ["create"]),
    "eviction": ("policy", "v1", "Eviction", ["create"]),
    "scale": ("autoscaling", "v1", "Scale", ["get", "patch", "update"]),
    "token": ("authentication.k8s.io", "v1", "TokenRequest", ["create"]),
    "log": ("", "v1", "Pod", ["get"]),
    "exec": ("", "v1", "PodExecOptions", ["create", "get"]),
    "attach": ("", "v1", "PodAttachOptions", ["create", "get"]),
    "portforward": ("", "v1", "PodPortForwardOptions", ["create", "get"]),
}


def core_versions(host: str) -> Json:
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def group_list(store: Store) -> Json:
    names = dict.fromkeys(kind.group for kind in store.kinds if kind.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(store, name) for name in names]}


def group(store: Store, name: str) -> Json | None:
    if not any(kind.group == name for kind in store.kinds):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(store, name)}


def _group(store: Store, name: str) -> Json:
    versions = dict.fromkeys(kind.version for kind in store.kinds if kind.group == name)
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def serves(store: Store, group: str, version: str) -> bool:
    return any(kind.version == version and kind.group == group for kind in store.kinds)


def resource_list(store: Store, api_version: str) -> Json | None:
    kinds = [kind for kind in store.kinds if kind.api_version == api_version]
    if not kinds:
        return None
    resources = [entry for kind in kinds for entry in _resources(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _resources(kind: ApiKind) -> Iterable[Json]:
    entry: Json = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    }
    yield {**entry, **_names(kind)}
    for name in kind.subresources:
        group_name, version, response_kind, verbs = _subresource(kind, name)
        where = {"group": group_name, "version": version} if group_name not in {kind.group, ""} else {}
        shown = {"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced}
        yield {**shown, **where, "kind": response_kind, "verbs": verbs}


def _names(kind: ApiKind) -> Json:
    named = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {key: value for key, value in named.items() if value}


def _subresource(kind: ApiKind, name: str) -> tuple[str, str, str, list[str]]:
    return _SUBRESOURCE_KINDS.get(name) or (kind.group, kind.version, kind.kind, ["get", "patch", "update"])


def aggregated(store: Store, *, core: bool) -> Json:
    """`APIGroupDiscoveryList`: all groups, versions and resources in one answer."""
    groups = dict.fromkeys(kind.group for kind in store.kinds if (not kind.group) == core)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(store, name) for name in groups],
    }


def _aggregated_group(store: Store, name: str) -> Json:
    kinds = [kind for kind in store.kinds if kind.group == name]
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "resources": [_aggregated_resource(kind) for kind in kinds if kind.version == version],
                "freshness": "Current",
            }
            for version in dict.fromkeys(kind.version for kind in kinds)
        ],
    }


def _aggregated_resource(kind: ApiKind) -> Json:
    subresources = []
    for name in kind.subresources:
        group_name, version, response_kind, verbs = _subresource(kind, name)
        response = {"group": group_name, "version": version, "kind": response_kind}
        subresources.append({"subresource": name, "responseKind": response, "verbs": verbs})
    return {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
        **_names(kind),
        **({"subresources": subresources} if subresources else {}),
    }
