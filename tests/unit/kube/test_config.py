"""Where the configuration of a cluster is found, and the errors if it is missing or wrong."""

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from forebay.kube import config
from forebay.kube import kubeconfig as kubeconfig_files
from forebay.kube.credentials import TOKEN_MAX_AGE
from forebay.kube.errors import ConfigError
from tests.pki import Authority


def kubeconfig(path: Path, *, name="prod", cluster=None, user=None, context=None, **top) -> Path:
    """One cluster, user and context of the same name."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}.example:6443", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {"token": f"token-of-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        **top,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def sentence(**arguments) -> str:
    """The one sentence a bad input gives."""
    with pytest.raises(ConfigError) as caught:
        config.load_config(**{"env": {}, **arguments})
    text = str(caught.value)
    assert "\n" not in text
    return text


async def authorization(found: config.Config) -> str | None:
    return (await found.credentials.current()).authorization


async def test_the_named_file_wins_over_the_variable_and_the_variable_over_the_home_directory(tmp_path):
    named = kubeconfig(tmp_path / "named", name="named")
    listed = kubeconfig(tmp_path / "listed", name="listed")
    kubeconfig(tmp_path / ".kube" / "config", name="usual")
    env = {"HOME": str(tmp_path), "KUBECONFIG": str(listed)}

    assert config.load_config(env=env, path=named).server == "https://named.example:6443"
    assert config.load_config(env=env).server == "https://listed.example:6443"
    found = config.load_config(env={"HOME": str(tmp_path)})
    assert found.server == "https://usual.example:6443"
    assert await authorization(found) == "Bearer token-of-usual"


def test_a_context_can_be_chosen_and_brings_its_namespace(tmp_path):
    path = kubeconfig(
        tmp_path / "config",
        contexts=[
            {"name": "prod", "context": {"cluster": "prod", "user": "prod"}},
            {"name": "lab", "context": {"cluster": "prod", "user": "prod", "namespace": "gpu-lab"}},
        ],
    )
    assert config.load_config(env={}, path=path).namespace == "default"
    assert config.load_config(env={}, path=path, context="lab").namespace == "gpu-lab"


async def test_of_several_files_the_first_that_has_a_name_wins_and_missing_files_are_skipped(tmp_path):
    first = kubeconfig(
        tmp_path / "a" / "first",
        name="shared",
        user={"tokenFile": "token"},
        **{"current-context": ""},
    )
    (tmp_path / "a" / "token").write_text("from-the-first-folder\n")
    second = kubeconfig(tmp_path / "b" / "second", name="shared", user={"token": "from-the-second"})
    env = {"KUBECONFIG": os.pathsep.join([str(tmp_path / "nowhere"), "", str(first), str(second)])}

    found = config.load_config(env=env)

    assert await authorization(found) == "Bearer from-the-first-folder"
    assert str(first) in found.source


async def test_of_several_files_the_first_current_context_counts(tmp_path):
    files = [kubeconfig(tmp_path / name, name=name) for name in ("prod", "test")]

    found = config.load_config(env={"KUBECONFIG": os.pathsep.join(map(str, files))})

    assert await authorization(found) == "Bearer token-of-prod"


def test_a_kubeconfig_variable_without_any_existing_file_is_an_error(tmp_path):
    kubeconfig(tmp_path / ".kube" / "config")
    text = sentence(env={"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "nowhere")})
    assert "KUBECONFIG" in text
    assert str(tmp_path / "nowhere") in text


def test_without_any_configuration_the_error_names_every_place_that_was_searched(tmp_path):
    assert "--kubeconfig" in sentence(env={"HOME": str(tmp_path)})


def test_a_context_without_any_kubeconfig_is_an_error(tmp_path):
    assert '"lab"' in sentence(env={"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, context="lab")


BROKEN = {
    "not YAML": ("clusters: [", ["not valid YAML", "line"]),
    "a tab": ("clusters:\n\t- a", ["not valid YAML", "at line 2, column 1"]),
    "not a mapping": ("just words", ["mapping with clusters"]),
    "clusters of the wrong type": ("clusters: 7", ["invalid field", "$.clusters"]),
    "no context at all": ("{}", ["no current-context", "no contexts"]),
    "empty": ("", ["no current-context"]),
    "unknown current context": ("current-context: gone", ['no context "gone"', "its current-context"]),
    "unknown cluster": (
        "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]",
        ['context "a"', 'names cluster "c"', "known clusters: none"],
    ),
    "unknown user": (
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: c, user: u}}]\n"
            "clusters: [{name: c, cluster: {server: 'https://x'}}]\nusers: [{name: v, user: {}}]"
        ),
        ['names user "u"', 'known users: "v"'],
    ),
    "the same name twice": (
        "clusters: [{name: c, cluster: {server: 'https://x'}}, {name: c, cluster: {server: 'https://y'}}]",
        ['two entries named "c"', "clusters"],
    ),
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_gives_one_sentence_that_names_it(tmp_path, text, says):
    path = tmp_path / "config"
    path.write_text(text)
    said = sentence(path=path)
    assert str(path) in said
    for part in says:
        assert part in said


def test_an_unknown_context_lists_the_known_ones(tmp_path):
    said = sentence(path=kubeconfig(tmp_path / "config"), context="staging")
    assert 'no context "staging"' in said
    assert '"prod"' in said


def test_a_file_that_is_missing_a_directory_or_not_text_is_told_apart(tmp_path):
    assert "does not exist" in sentence(path=tmp_path / "nowhere")
    assert "cannot be read" in sentence(path=tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in sentence(path=tmp_path / "binary")


BAD_CLUSTERS = {
    "no server": ({"server": ""}, "has no server"),
    "no scheme": ({"server": "10.0.0.1:6443"}, '"10.0.0.1:6443"'),
    "bad port": ({"server": "https://host:port"}, "https://host:port is expected"),
    "password in the server's address": (
        {"server": "https://me:planted-secret@host:6443"},
        "credentials belong to the user entry",
    ),
    "extensions of another shape": (
        {"extensions": {"client.authentication.k8s.io/exec": 1}},
        "$.clusters[0].cluster.extensions",
    ),
    "socks": ({"proxy-url": "socks5://host:1080"}, "proxy-url"),
    "authority missing": ({"certificate-authority": "ca.crt"}, "ca.crt, which does not exist"),
    "authority not base64": ({"certificate-authority-data": "%%%"}, "certificate-authority-data that is not base64"),
    "authority not PEM": (
        {"certificate-authority-data": base64.b64encode(b"hello").decode()},
        "holds no PEM certificate",
    ),
}


@pytest.mark.parametrize(("cluster", "says"), BAD_CLUSTERS.values(), ids=BAD_CLUSTERS)
def test_a_bad_cluster_names_file_and_field(tmp_path, cluster, says):
    path = kubeconfig(tmp_path / "config", cluster=cluster)
    said = sentence(path=path)
    assert says in said
    assert 'cluster "prod"' in said or "clusters[0]" in said
    assert str(path) in said
    assert "planted-secret" not in said


BAD_USERS = {
    "removed plugin": ({"auth-provider": {"name": "gcp"}}, ['auth-provider "gcp"', "exec"]),
    "impersonation": ({"token": "t", "as": "root"}, ["impersonates"]),
    "two methods": ({"token": "t", "username": "u"}, ["both a token and a username"]),
    "certificate without key": ({"client-certificate-data": "aGVsbG8="}, ["but no client-key"]),
    "certificate not base64": ({"client-certificate-data": "!", "client-key-data": "!"}, ["not base64"]),
    "certificate missing": ({"client-certificate": "me.crt", "client-key": "me.key"}, ["me.crt, which does not exist"]),
    "token with a line break": ({"token": "abc\ndef"}, ["control characters"]),
}


@pytest.mark.parametrize(("user", "says"), BAD_USERS.values(), ids=BAD_USERS)
def test_a_bad_user_names_file_and_field(tmp_path, user, says):
    path = kubeconfig(tmp_path / "config", user=user)
    said = sentence(path=path)
    assert 'user "prod"' in said
    assert str(path) in said
    for part in says:
        assert part in said


async def test_a_password_goes_into_basic_authentication(tmp_path):
    path = kubeconfig(tmp_path / "config", user={"username": "ada", "password": "s3cret"})
    value = await authorization(config.load_config(env={}, path=path))
    assert value == "Basic " + base64.b64encode(b"ada:s3cret").decode()


async def test_a_token_of_digits_is_still_a_token(tmp_path):
    path = kubeconfig(tmp_path / "config")
    path.write_text(path.read_text().replace("token: token-of-prod", "token: 0123"))
    assert await authorization(config.load_config(env={}, path=path)) == "Bearer 0123"


async def test_null_fields_count_as_absent(tmp_path):
    path = kubeconfig(tmp_path / "config", user={"token": "t", "exec": None, "as-groups": None}, preferences=None)
    assert await authorization(config.load_config(env={}, path=path)) == "Bearer t"


def test_certificates_are_read_from_data_or_from_files_beside_the_kubeconfig(tmp_path):
    authority = Authority()
    pair = authority.client("ada", groups=("system:masters",))
    pair.write(tmp_path, "me")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    from_files = kubeconfig(
        tmp_path / "files",
        cluster={"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
        user={"client-certificate": "me.crt", "client-key": "me.key"},
    )
    from_data = kubeconfig(
        tmp_path / "data",
        cluster={"certificate-authority-data": base64.b64encode(authority.certificate).decode()},
        user={
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        },
    )
    first, second = config.load_config(env={}, path=from_files), config.load_config(env={}, path=from_data)
    assert first.authority == second.authority == authority.certificate
    assert first.server_name == "kubernetes"


def user_with(pair) -> dict[str, str]:
    return {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }


def test_an_expired_client_certificate_is_found_before_the_first_request(tmp_path):
    long_ago = datetime(2024, 2, 3, tzinfo=UTC)
    pair = Authority().client("ada", not_before=long_ago - timedelta(days=1), not_after=long_ago)
    said = sentence(path=kubeconfig(tmp_path / "config", user=user_with(pair)))
    assert "expired on 2024-02-03" in said
    assert 'user "prod"' in said


def test_a_client_certificate_from_the_future_hints_at_the_clock(tmp_path):
    soon = datetime.now(UTC) + timedelta(hours=2)
    pair = Authority().client("ada", not_before=soon)
    assert "clock" in sentence(path=kubeconfig(tmp_path / "config", user=user_with(pair)))


def test_a_key_of_another_certificate_is_refused(tmp_path):
    authority = Authority()
    mixed = authority.client("ada")._replace(key=authority.client("bob").key)
    assert "does not belong" in sentence(path=kubeconfig(tmp_path / "config", user=user_with(mixed)))


def test_a_key_with_a_password_or_no_key_at_all_is_told_apart(tmp_path):
    from cryptography.hazmat.primitives import serialization

    pair = Authority().client("ada")
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"planted-secret"),
    )
    assert "encrypted" in sentence(path=kubeconfig(tmp_path / "a", user=user_with(pair._replace(key=locked))))
    assert "not a PEM private key" in sentence(path=kubeconfig(tmp_path / "b", user=user_with(pair._replace(key=b"x"))))


def test_an_authority_and_the_insecure_flag_exclude_each_other(tmp_path):
    data = base64.b64encode(Authority().certificate).decode()
    path = kubeconfig(
        tmp_path / "config", cluster={"certificate-authority-data": data, "insecure-skip-tls-verify": True}
    )
    assert "insecure-skip-tls-verify" in sentence(path=path)


def test_no_secret_shows_in_a_representation(tmp_path):
    pair = Authority().client("ada")
    path = kubeconfig(tmp_path / "config", user={"token": "planted-secret", **user_with(pair)})
    found = config.load_config(env={}, path=path)
    assert "planted-secret" not in repr(found)
    assert "PRIVATE" not in repr(found)

    login = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "login", "args": ["planted-secret"]}
    path = kubeconfig(
        tmp_path / "config",
        cluster={"proxy-url": "http://me:planted-secret@proxy:3128"},
        user={"exec": {**login, "env": [{"name": "SECRET", "value": "planted-secret"}]}},
    )
    assert "planted-secret" not in repr(config.load_config(env={}, path=path))
    assert "planted-secret" not in repr(kubeconfig_files.from_file(path).resolve(None))


def service_account(folder: Path, token: str = "first") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(Authority().certificate)
    (folder / "namespace").write_text("forebay-system")
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


async def test_a_pod_uses_its_service_account_and_reads_the_token_again_every_minute(tmp_path):
    import asyncio

    account = service_account(tmp_path / "account")
    found = config.load_config(env={**POD, "HOME": str(tmp_path)}, service_account=account)
    assert (found.server, found.namespace) == ("https://10.96.0.1:443", "forebay-system")
    assert await authorization(found) == "Bearer first"

    (account / "token").write_text("second\n")
    assert await authorization(found) == "Bearer first"
    await asyncio.sleep(TOKEN_MAX_AGE)
    assert await authorization(found) == "Bearer second"


async def test_a_rejected_token_is_read_again_at_once(tmp_path):
    account = service_account(tmp_path / "account")
    found = config.in_cluster(POD, account)
    rejected = await found.credentials.current()
    (account / "token").write_text("second")
    assert (await found.credentials.renewed(rejected)).authorization == "Bearer second"


async def test_a_token_file_that_vanishes_for_a_moment_does_not_take_the_last_token_away(tmp_path):
    account = service_account(tmp_path / "account")
    found = config.in_cluster(POD, account)
    first = await found.credentials.current()
    (account / "token").write_text("")
    assert await found.credentials.renewed(first) == first
    (account / "token").unlink()
    assert await found.credentials.renewed(first) == first


async def test_a_missing_token_file_is_named(tmp_path):
    path = kubeconfig(tmp_path / "config", user={"tokenFile": "token"})
    found = config.load_config(env={}, path=path)
    with pytest.raises(ConfigError, match=r"token file .*/token, which cannot be read"):
        await found.credentials.current()


def test_without_a_service_account_token_the_error_says_what_to_set(tmp_path):
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        config.in_cluster(POD, tmp_path)


@pytest.mark.parametrize("missing", POD)
def test_outside_of_a_pod_the_error_names_both_variables(tmp_path, missing):
    account = service_account(tmp_path / "account")
    for env in ({**POD, missing: ""}, {name: value for name, value in POD.items() if name != missing}):
        with pytest.raises(ConfigError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set"):
            config.in_cluster(env, account)


def test_an_ipv6_address_is_put_in_brackets(tmp_path):
    found = config.in_cluster({**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account(tmp_path / "a"))
    assert found.server == "https://[fd00::1]:443"


def test_an_emptied_kubeconfig_at_home_does_not_hide_the_service_account(tmp_path):
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("apiVersion: v1\nkind: Config\nclusters: null\ncurrent-context: ''\n")
    account = service_account(tmp_path / "account")
    found = config.load_config(env={**POD, "HOME": str(tmp_path)}, service_account=account)
    assert "service account" in found.source


NO_PROXY = {
    "nothing": ("", True),
    "everything": ("*", False),
    "the host": ("prod.example", False),
    "its domain": (".example", False),
    "its domain, starred": ("*.example", False),
    "another port": ("prod.example:443", True),
    "its port": ("prod.example:6443", False),
    "a name it merely ends with": ("od.example", True),
}


@pytest.mark.parametrize(("exceptions", "proxied"), NO_PROXY.values(), ids=NO_PROXY)
def test_the_proxy_of_the_environment_is_used_unless_excepted(tmp_path, exceptions, proxied):
    env = {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": exceptions}
    found = config.load_config(env=env, path=kubeconfig(tmp_path / "config"))
    assert found.proxy == ("http://proxy.example:3128" if proxied else None)


def test_a_service_address_inside_an_excepted_network_is_reached_directly(tmp_path):
    env = {**POD, "HTTPS_PROXY": "http://proxy.example:3128"}
    account = service_account(tmp_path / "account")
    assert config.in_cluster({**env, "NO_PROXY": "10.0.0.0/8"}, account).proxy is None
    assert config.in_cluster({**env, "NO_PROXY": "192.168.0.0/16"}, account).proxy == "http://proxy.example:3128"


def test_the_clusters_own_proxy_wins_over_the_environment(tmp_path):
    path = kubeconfig(tmp_path / "config", cluster={"proxy-url": "http://own.example:8080"})
    assert config.load_config(env={"HTTPS_PROXY": "http://other.example"}, path=path).proxy == "http://own.example:8080"
