"""kubeconfig files: read, merged by kubectl's rules, and resolved for one context. Certificates are not read here.

The rules: `KUBECONFIG` may name several files, and missing ones are skipped. For every name, and for `current-context`,
the first file that has it wins. Relative paths are relative to the file that contains them.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from forebay.kube.errors import ConfigError

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


class ExecEnv(msgspec.Struct, frozen=True):
    name: str
    value: str = ""

    def __repr__(self) -> str:
        return f"ExecEnv({self.name})"


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `exec` section of a user: a command that prints credentials."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[ExecEnv, ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""

    def __repr__(self) -> str:
        return f"ExecSpec({self.command})"


class KubeconfigCluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    #: May hold the proxy's password.
    proxy_url: str = ""
    #: The cluster's `extensions` entry for exec plugins, passed to them unchanged.
    exec_config: Any = None

    def __repr__(self) -> str:
        return f"KubeconfigCluster({self.server})"


class KubeconfigUser(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec_: ExecSpec | None = msgspec.field(default=None, name="exec")
    auth_provider: dict[str, Any] | None = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    impersonate_extra: dict[str, Any] | None = msgspec.field(default=None, name="as-user-extra")

    def __repr__(self) -> str:
        return f"KubeconfigUser({', '.join(f for f in self.__struct_fields__ if getattr(self, f))})"


class KubeconfigContext(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: KubeconfigCluster = KubeconfigCluster()


class _NamedUser(msgspec.Struct):
    name: str
    user: KubeconfigUser = KubeconfigUser()


class _NamedContext(msgspec.Struct):
    name: str
    context: KubeconfigContext = KubeconfigContext()


class _File(msgspec.Struct, kw_only=True, rename="kebab"):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


class _Extension(msgspec.Struct):
    name: str = ""
    extension: Any = None


class _Extended(msgspec.Struct):
    extensions: list[_Extension] | None = None


class _NamedExtended(msgspec.Struct):
    cluster: _Extended | None = None


class _Extensions(msgspec.Struct):
    """The extensions of a file, decoded with their YAML types: exec plugins get numbers as numbers."""

    clusters: list[_NamedExtended]


_N = TypeVar("_N", _NamedCluster, _NamedUser, _NamedContext)


class KubeconfigMissing(ConfigError):
    """The file does not exist: an error only if the user named the file."""


class Kubeconfig:
    """Merged files. Every entry comes with its file, for messages and for relative paths."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.current_context = ""
        self.clusters: dict[str, tuple[KubeconfigCluster, Path]] = {}
        self.users: dict[str, tuple[KubeconfigUser, Path]] = {}
        self.contexts: dict[str, tuple[KubeconfigContext, Path]] = {}

    @property
    def empty(self) -> bool:
        return not (self.clusters or self.users or self.contexts or self.current_context)

    def add(self, path: Path) -> None:
        """Merges a file with lower precedence than the files before it."""
        content = _read(path)
        self.files.append(path)
        self.current_context = self.current_context or content.current_context
        for name, cluster in _by_name(content.clusters, "clusters", path).items():
            self.clusters.setdefault(name, (cluster.cluster, path))
        for name, user in _by_name(content.users, "users", path).items():
            self.users.setdefault(name, (user.user, path))
        for name, context in _by_name(content.contexts, "contexts", path).items():
            self.contexts.setdefault(name, (context.context, path))

    def resolve(self, name: str | None) -> "ResolvedContext":
        """The context of that name, or the current context, with its cluster and user."""
        where = ", ".join(map(str, self.files))
        known = f"its contexts are {_listed(self.contexts)}" if self.contexts else "it has no contexts"
        wanted = name or self.current_context
        if not wanted:
            raise ConfigError(f"{where} has no current-context; name one of its contexts with --context ({known})")
        if wanted not in self.contexts:
            said = "" if name else ", its current-context"
            raise ConfigError(f'{where} has no context "{wanted}"{said}; {known}')
        context, path = self.contexts[wanted]
        if context.cluster not in self.clusters:
            raise ConfigError(
                f'context "{wanted}" in {path} names cluster "{context.cluster}", which is not defined; '
                f"known clusters: {_listed(self.clusters)}"
            )
        # As for kubectl, a context without a user is anonymous; an undefined user is an error.
        if context.user and context.user not in self.users:
            raise ConfigError(
                f'context "{wanted}" in {path} names user "{context.user}", which is not defined; '
                f"known users: {_listed(self.users)}"
            )
        cluster, cluster_file = self.clusters[context.cluster]
        user, user_file = self.users.get(context.user, (KubeconfigUser(), path))
        return ResolvedContext(
            name=wanted,
            namespace=context.namespace or "default",
            cluster=cluster,
            cluster_name=context.cluster,
            cluster_file=cluster_file,
            user=user,
            user_name=context.user,
            user_file=user_file,
        )


class ResolvedContext(msgspec.Struct, frozen=True, kw_only=True):
    """A context with its cluster and user."""

    name: str
    namespace: str
    cluster: KubeconfigCluster
    cluster_name: str
    cluster_file: Path
    user: KubeconfigUser
    user_name: str
    user_file: Path


def from_file(path: Path) -> Kubeconfig:
    """The file that the user named. Raises `KubeconfigMissing`."""
    merged = Kubeconfig()
    merged.add(path)
    return merged


def from_list(value: str) -> Kubeconfig:
    """The files of a `KUBECONFIG` variable."""
    paths = [Path(entry) for entry in value.split(os.pathsep) if entry]
    merged = Kubeconfig()
    for path in paths:
        with suppress(KubeconfigMissing):
            merged.add(path)
    if not merged.files:
        raise ConfigError(
            f"KUBECONFIG names {_listed(map(str, paths))}, which does not exist; correct KUBECONFIG or unset it"
        )
    return merged


def _read(path: Path) -> _File:
    import yaml  # noqa: PLC0415 (slow; not needed in a pod)

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise KubeconfigMissing(f"kubeconfig {path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"kubeconfig {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"kubeconfig {path} is not UTF-8 text") from None

    class TextScalars(yaml.SafeLoader):
        """Keeps every scalar but null as text: a token of digits stays a token. `strict=False` converts booleans."""

    TextScalars.yaml_implicit_resolvers = {
        first: kept
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        if (kept := [item for item in resolvers if item[0] in {"tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"}])
    }
    try:
        tree = yaml.load(text, TextScalars)  # noqa: S506 (a SafeLoader with fewer types)
        typed = yaml.safe_load(text) if _EXEC_EXTENSION in text else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ConfigError(f"kubeconfig {path} is not valid YAML: {error.problem}{place}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ConfigError(f"kubeconfig {path} is not valid YAML") from None
    if tree is None:
        return _File()
    if not isinstance(tree, dict):
        raise ConfigError(
            f"kubeconfig {path} is not a kubeconfig: a mapping with clusters, users and contexts is expected"
        )
    try:
        content = msgspec.convert(_without_nulls(tree), _File, strict=False)
        if typed is not None and content.clusters:
            content.clusters = _with_exec_config(content.clusters, msgspec.convert(typed, _Extensions))
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {path} has an invalid field: {error}") from None
    return content


def _without_nulls(value: Any) -> Any:
    """The value without null fields, which count as absent, as in Go."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _with_exec_config(clusters: Sequence[_NamedCluster], typed: _Extensions) -> list[_NamedCluster]:
    configured = []
    for entry, extended in zip(clusters, typed.clusters, strict=True):
        extensions = (extended.cluster.extensions if extended.cluster is not None else None) or []
        held = [item.extension for item in extensions if item.name == _EXEC_EXTENSION]
        cluster = msgspec.structs.replace(entry.cluster, exec_config=held[0]) if held else entry.cluster
        configured.append(_NamedCluster(entry.name, cluster))
    return configured


def _by_name(entries: Sequence[_N], section: str, path: Path) -> dict[str, _N]:
    named: dict[str, _N] = {}
    for entry in entries:
        if entry.name in named:
            raise ConfigError(f'kubeconfig {path} has two entries named "{entry.name}" in {section}; remove one')
        named[entry.name] = entry
    return named


def _listed(names: Iterable[str]) -> str:
    names = [f'"{name}"' for name in names]
    return ", ".join(names) if names else "none"
