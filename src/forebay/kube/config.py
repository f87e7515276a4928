"""Configuration of the connection to a cluster: found where kubectl finds it, and validated.

Order: the file the user named, the files of KUBECONFIG, `~/.kube/config`, then the pod's own service account. The
environment is an argument, so that tests need no real one.
"""

import base64
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from forebay.kube import kubeconfig
from forebay.kube.certificates import ClientCertificate, check_authority, client_certificate, pem
from forebay.kube.credentials import Credential, CredentialSource, FixedCredential, TokenFile, basic, bearer
from forebay.kube.errors import ConfigError
from forebay.kube.exec_plugin import ExecPlugin
from forebay.kube.proxies import from_environment

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Address and credentials of a cluster. Certificates are PEM, already validated."""

    server: str
    credentials: CredentialSource
    #: Where the configuration comes from, for messages: a context of a file, or the service account.
    source: str
    namespace: str = "default"
    authority: bytes | None = None
    insecure: bool = False
    server_name: str | None = None
    #: Whether this process runs in a pod of the cluster, with `namespace` the pod's own.
    in_pod: bool = False
    #: May hold the proxy's password.
    proxy: str | None = None

    def __repr__(self) -> str:
        return f"Config({self.source})"


def load_config(
    *,
    env: Mapping[str, str],
    path: Path | None = None,
    context: str | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
    interactive: bool = False,
    now: datetime | None = None,
) -> Config:
    """Configuration of the cluster that kubectl would use. Raises `ConfigError`, which names the file and the field."""
    now = now or datetime.now(UTC)
    found = _find(env, path, home)
    if found is not None:
        return _from_context(found.resolve(context), env=env, interactive=interactive, now=now)
    if context is not None:
        raise ConfigError(f'there is no kubeconfig, so no context "{context}"; name a kubeconfig with --kubeconfig')
    if "KUBERNETES_SERVICE_HOST" in env:
        return in_cluster(env, service_account)
    raise ConfigError(
        "no cluster is configured: KUBECONFIG is not set, there is no ~/.kube/config, and this is not a pod; "
        "name a file with --kubeconfig"
    )


def in_cluster(env: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Config:
    """Configuration from the service account of the pod that this process runs in."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise ConfigError("this is not a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    where = f"the service account in {service_account}"
    token, authority = service_account / "token", service_account / "ca.crt"
    if not os.path.lexists(token):
        raise ConfigError(f"{where} has no token; set automountServiceAccountToken: true for this pod")
    content = pem(data="", file=str(authority), field="ca.crt", where=where, beside=service_account)
    if content is not None:
        check_authority(content, str(authority))
    try:
        namespace = (service_account / "namespace").read_text(encoding="utf-8").strip()
    except OSError:
        namespace = ""
    return Config(
        server=server,
        credentials=TokenFile(token, where=where),
        source=where,
        namespace=namespace or "default",
        in_pod=True,
        authority=content,
        proxy=from_environment(server, env),
    )


def _find(env: Mapping[str, str], path: Path | None, home: Path | None) -> kubeconfig.Kubeconfig | None:
    if path is not None:
        return kubeconfig.from_file(path)
    if env.get("KUBECONFIG", "").strip(os.pathsep):
        return kubeconfig.from_list(env["KUBECONFIG"])
    if home is None:
        if "HOME" not in env:
            return None
        home = Path(env["HOME"])
    try:
        found = kubeconfig.from_file(home / ".kube" / "config")
    except kubeconfig.KubeconfigMissing:
        return None
    # kubectl leaves an empty file behind after the last context was deleted.
    return None if found.empty else found


def _from_context(
    context: kubeconfig.ResolvedContext, *, env: Mapping[str, str], interactive: bool, now: datetime
) -> Config:
    cluster = context.cluster
    where = f'cluster "{context.cluster_name}" in {context.cluster_file}'
    server = cluster.server.rstrip("/")
    _check_url(server, ("https", "http"), where, "server")
    if "@" in server or "?" in server or "#" in server:
        raise ConfigError(
            f"{where} has a server URL with credentials, a query or a fragment; credentials belong to the user entry"
        )
    proxy = cluster.proxy_url or None
    if proxy is not None:
        _check_url(proxy, ("http", "https"), where, "proxy-url")
    authority = pem(
        data=cluster.certificate_authority_data,
        file=cluster.certificate_authority,
        field="certificate-authority",
        where=where,
        beside=context.cluster_file.parent,
    )
    if authority is not None:
        check_authority(authority, f"the certificate-authority of {where}")
        if cluster.insecure_skip_tls_verify:
            raise ConfigError(f"{where} has both a certificate-authority and insecure-skip-tls-verify; remove one")
    return Config(
        server=server,
        credentials=_credentials(
            context, env=env, interactive=interactive, now=now, info=_cluster_info(cluster, server, authority)
        ),
        source=f'context "{context.name}" of {context.cluster_file}',
        namespace=context.namespace,
        authority=authority,
        insecure=cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or None,
        proxy=proxy or from_environment(server, env),
    )


def _credentials(
    context: kubeconfig.ResolvedContext,
    *,
    env: Mapping[str, str],
    interactive: bool,
    now: datetime,
    info: Mapping[str, Any],
) -> CredentialSource:
    user, beside = context.user, context.user_file.parent
    where = f'user "{context.user_name}" in {context.user_file}'
    if user.auth_provider is not None:
        name = user.auth_provider.get("name", "")
        raise ConfigError(f'{where} uses auth-provider "{name}", which Kubernetes removed; use an exec section instead')
    if user.impersonate or user.impersonate_uid or user.impersonate_groups or user.impersonate_extra:
        raise ConfigError(f"{where} impersonates another user (as, as-groups), which Forebay does not do; remove it")
    if (user.token or user.token_file) and user.username:
        raise ConfigError(f"{where} has both a token and a username; only one is allowed")
    certificate = _certificate(user, where, beside, now)
    if user.token_file:
        return TokenFile(beside / user.token_file, where=where, certificate=certificate, until_readable=user.token)
    # As for kubectl, a token in the file takes precedence over an exec command.
    if user.token:
        return FixedCredential(Credential(authorization=bearer(user.token, where), certificate=certificate))
    if user.username:
        return FixedCredential(Credential(authorization=basic(user.username, user.password), certificate=certificate))
    if user.exec_ is not None:
        return ExecPlugin(
            user.exec_,
            where=where,
            beside=beside,
            env=env,
            cluster=info,
            certificate=certificate,
            interactive=interactive,
        )
    return FixedCredential(Credential(certificate=certificate))


def _certificate(user: kubeconfig.KubeconfigUser, where: str, beside: Path, now: datetime) -> ClientCertificate | None:
    chain = pem(
        data=user.client_certificate_data,
        file=user.client_certificate,
        field="client-certificate",
        where=where,
        beside=beside,
    )
    key = pem(data=user.client_key_data, file=user.client_key, field="client-key", where=where, beside=beside)
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        there, missing = ("client-certificate", "client-key") if key is None else ("client-key", "client-certificate")
        raise ConfigError(f"{where} has a {there} but no {missing}; both are needed")
    return client_certificate(chain, key, where=where, now=now)


def _cluster_info(cluster: kubeconfig.KubeconfigCluster, server: str, authority: bytes | None) -> Mapping[str, Any]:
    """The cluster as an exec plugin with `provideClusterInfo` receives it."""
    info = {
        "server": server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority or b"").decode("ascii"),
        "proxy-url": cluster.proxy_url,
        "config": cluster.exec_config,
    }
    return {name: value for name, value in info.items() if value}


def _check_url(url: str, schemes: tuple[str, ...], where: str, field: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        # A proxy URL may hold a password: such a value is not shown.
        said = f'{field} "{url}"' if "@" not in url else f"an unusable {field}"
        expected = f"a URL such as {schemes[0]}://host:port is expected"
        raise ConfigError(f"{where} has {said}; {expected}" if url else f"{where} has no {field}; {expected}")
