"""Exec credential plugins: real commands, a few lines each, that count their runs."""

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from forebay.kube import config
from forebay.kube.credentials import Credential
from forebay.kube.errors import ConfigError
from forebay.kube.exec_plugin import ExecPlugin
from forebay.kube.kubeconfig import ExecSpec
from forebay.net import clock
from tests.pki import Authority

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def plugin(folder: Path, body: str) -> Path:
    """A command that appends a line to `runs`, has the request as `info`, and then does `body`."""
    script = folder / "login"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys, time\n"
        f"open({str(folder / 'runs')!r}, 'a').write('run\\n')\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "def answer(**status):\n"
        "    print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': status}))\n"
        f"{body}\n"
    )
    script.chmod(0o755)
    return script


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def user_of(folder: Path, *, cluster=None, **fields) -> config.Config:
    spec = {"apiVersion": V1, "command": "./login", "interactiveMode": "Never", **fields}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://host:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": {"exec": {key: value for key, value in spec.items() if value is not None}}}],
    }
    (folder / "config").write_text(yaml.safe_dump(content))
    return config.load_config(env=dict(os.environ), path=folder / "config")


def with_terminal(folder: Path, mode: str) -> ExecPlugin:
    spec = ExecSpec(api_version=V1, command="./login", interactive_mode=mode)
    return ExecPlugin(spec, where='user "u"', beside=folder, env=dict(os.environ), interactive=True)


async def failing(found: config.Config) -> str:
    with pytest.raises(ConfigError) as caught:
        await found.credentials.current()
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_both_api_versions_work_and_the_credential_is_cached(tmp_path, version):
    plugin(tmp_path, "answer(token='from-' + info['apiVersion'].rpartition('/')[2])")
    found = user_of(tmp_path, apiVersion=version)
    for _ in range(3):
        credential = await found.credentials.current()
        assert credential.authorization == f"Bearer from-{version.rpartition('/')[2]}"
    assert runs(tmp_path) == 1


async def test_many_requests_at_once_run_the_command_once(tmp_path):
    plugin(tmp_path, "answer(token='t')")
    found = user_of(tmp_path)
    await asyncio.gather(*(found.credentials.current() for _ in range(20)))
    assert runs(tmp_path) == 1


async def test_the_command_runs_again_when_its_credential_has_expired(tmp_path):
    expires = (clock.now() + timedelta(minutes=14)).isoformat()
    plugin(tmp_path, f"answer(token='t', expirationTimestamp={expires!r})")
    found = user_of(tmp_path)
    await found.credentials.current()
    await asyncio.sleep(13 * 60)
    await found.credentials.current()
    assert runs(tmp_path) == 1
    await asyncio.sleep(60)
    await found.credentials.current()
    assert runs(tmp_path) == 2


async def test_after_many_401s_the_command_runs_once(tmp_path):
    plugin(tmp_path, f"answer(token='t%d' % len(open({str(tmp_path / 'runs')!r}).readlines()))")
    found = user_of(tmp_path)
    refused = await found.credentials.current()
    renewed = await asyncio.gather(*(found.credentials.renewed(refused) for _ in range(10)))
    assert {credential.authorization for credential in renewed} == {"Bearer t2"}
    assert runs(tmp_path) == 2


async def test_the_command_gets_arguments_environment_and_the_cluster_it_asked_for(tmp_path):
    authority = Authority()
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    plugin(tmp_path, "json.dump([sys.argv[1:], os.environ['REGION'], info], open(sys.argv[1], 'w')); answer(token='t')")
    seen = tmp_path / "seen"
    found = user_of(
        tmp_path,
        args=[str(seen), "--flag"],
        env=[{"name": "REGION", "value": "eu-1"}],
        provideClusterInfo=True,
        cluster={
            "certificate-authority": "ca.crt",
            "tls-server-name": "kubernetes",
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a", "depth": 3}}],
        },
    )
    await found.credentials.current()
    arguments, region, info = json.loads(seen.read_text())
    assert arguments == [str(seen), "--flag"]
    assert region == "eu-1"
    assert info["kind"] == "ExecCredential"
    assert info["spec"]["interactive"] is False
    assert info["spec"]["cluster"]["server"] == "https://host:6443"
    assert info["spec"]["cluster"]["tls-server-name"] == "kubernetes"
    assert info["spec"]["cluster"]["config"] == {"audience": "a", "depth": 3}
    assert "certificate-authority-data" in info["spec"]["cluster"]


async def test_without_provide_cluster_info_the_command_does_not_get_the_cluster(tmp_path):
    seen = tmp_path / "seen"
    plugin(tmp_path, f"json.dump(info, open({str(seen)!r}, 'w')); answer(token='t')")
    await user_of(tmp_path).credentials.current()
    assert "cluster" not in json.loads(seen.read_text())["spec"]


async def test_a_command_may_print_a_client_certificate(tmp_path):
    pair = Authority().client("ada", not_after=clock.now() + timedelta(days=1))
    pair.write(tmp_path, "me")
    plugin(
        tmp_path,
        f"read = lambda name: open(os.path.join({str(tmp_path)!r}, name)).read()\n"
        "answer(clientCertificateData=read('me.crt'), clientKeyData=read('me.key'))",
    )
    credential = await user_of(tmp_path).credentials.current()
    assert credential.authorization is None
    assert credential.certificate is not None
    assert credential.certificate.chain == pair.certificate


FAILURES = {
    "prints nothing": ("", "printed nothing"),
    "prints garbage": ("print('planted-secret, not JSON')", "not an ExecCredential"),
    "prints another kind": ('print(\'{"kind": "Pod"}\')', 'kind "Pod"'),
    "prints another kind of that version": (
        """print('{"kind": "Pod", "apiVersion": "client.authentication.k8s.io/v1", "status": {"token": "t"}}')""",
        'kind "Pod"',
    ),
    "prints another version": (
        "info['apiVersion'] = 'client.authentication.k8s.io/v1beta1'; answer(token='planted-secret')",
        "v1beta1",
    ),
    "prints no token": ("answer()", "without a token"),
    "prints no status": (
        """print('{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1"}')""",
        "without a token",
    ),
    "prints half a pair": ("answer(clientCertificateData='x')", "without its key"),
    "prints a broken certificate": ("answer(clientCertificateData='x', clientKeyData='planted-secret')", "not PEM"),
    "prints a time of no zone": ("answer(token='t', expirationTimestamp='2030-01-01T00:00:00')", "expirationTimestamp"),
    "fails": ("print('first', file=sys.stderr); sys.exit('Session expired, log in again')", "log in again"),
    "dies silently": ("os._exit(7)", "exit code 7"),
}


@pytest.mark.parametrize(("body", "says"), FAILURES.values(), ids=FAILURES)
async def test_a_command_that_fails_is_named_with_what_it_did(tmp_path, body, says):
    plugin(tmp_path, body)
    said = await failing(user_of(tmp_path))
    assert says in said
    assert '"./login"' in said
    assert 'user "u"' in said
    assert "planted-secret" not in said


@pytest.mark.parametrize(
    "body",
    [
        "sys.exit('login with --token planted-secret failed')",
        "sys.exit('POST https://me:planted-secret@sso.example.com: 403')",
        "sys.exit('rejected: ' + os.environ['SSO_API_KEY'])",
        "sys.exit('x' * 194 + ' ' + os.environ['SSO_API_KEY'])",
    ],
)
async def test_the_last_line_of_a_command_is_redacted_before_it_is_shown(tmp_path, body):
    plugin(tmp_path, body)
    said = await failing(user_of(tmp_path, env=[{"name": "SSO_API_KEY", "value": "planted-secret"}]))
    assert "failed with exit code 1" in said
    assert "plant" not in said


async def test_a_command_that_hangs_is_ended_together_with_its_children(tmp_path):
    plugin(tmp_path, "import subprocess; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])")
    spec = ExecSpec(api_version=V1, command="./login", interactive_mode="IfAvailable")
    hanging = ExecPlugin(spec, where='user "u"', beside=tmp_path, env=dict(os.environ), timeout=0.3)
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"did not finish within 0\.3 s"):
        await hanging.current()
    assert time.monotonic() - began < 40, "nobody waits for the child"


async def test_a_command_that_is_not_installed_gives_the_hint_of_its_vendor(tmp_path):
    found = user_of(tmp_path, command="no-such-login-tool", installHint="Install it\nwith your package manager.")
    said = await failing(found)
    assert "was not found in PATH" in said
    assert "Install it with your package manager." in said


async def test_a_command_that_cannot_be_executed_says_why(tmp_path):
    (tmp_path / "login").write_text("not executable")
    assert "cannot be run: Permission denied" in await failing(user_of(tmp_path))


async def test_a_command_that_must_ask_the_user_needs_a_terminal(tmp_path):
    plugin(tmp_path, "answer(token='t')")
    assert "needs a terminal" in await failing(user_of(tmp_path, interactiveMode="Always"))
    assert (await with_terminal(tmp_path, "Always").current()).authorization == "Bearer t"


SECTIONS = {
    "no command": ({"command": None}, "without a command"),
    "no version": ({"apiVersion": None}, "no apiVersion"),
    "an old version": ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1"),
    "no mode": ({"interactiveMode": None}, "without interactiveMode"),
    "an unknown mode": ({"interactiveMode": "Maybe"}, '"Maybe"'),
}


@pytest.mark.parametrize(("fields", "says"), SECTIONS.values(), ids=SECTIONS)
def test_an_incomplete_section_is_found_at_load(tmp_path, fields, says):
    with pytest.raises(ConfigError) as caught:
        user_of(tmp_path, **fields)
    assert says in str(caught.value)


async def test_what_the_command_is_told_of_the_terminal_and_of_a_cluster_that_is_not_known(tmp_path):
    seen = tmp_path / "seen"
    plugin(tmp_path, f"json.dump(info, open({str(seen)!r}, 'w')); answer(token='t')")
    for mode, interactive in (("Never", False), ("IfAvailable", True)):
        spec = ExecSpec(api_version=V1, command="./login", interactive_mode=mode, provide_cluster_info=True)
        told = ExecPlugin(spec, where='user "u"', beside=tmp_path, env=dict(os.environ), interactive=True)
        await told.current()
        assert json.loads(seen.read_text())["spec"] == {"interactive": interactive}


async def test_a_command_that_asks_the_user_stays_in_the_session_of_the_terminal(tmp_path):
    plugin(tmp_path, "answer(token=str(os.getsid(0)))")
    ours = f"Bearer {os.getsid(0)}"
    assert (await with_terminal(tmp_path, "IfAvailable").current()).authorization == ours
    assert (await user_of(tmp_path).credentials.current()).authorization != ours


async def test_whoever_was_refused_before_the_first_credential_gets_one(tmp_path):
    plugin(tmp_path, "answer(token='t')")
    found = user_of(tmp_path).credentials
    stale = Credential(authorization="Bearer of-an-earlier-process")
    assert (await found.renewed(stale)).authorization == "Bearer t"
    assert (await found.renewed(stale)).authorization == "Bearer t"
    assert runs(tmp_path) == 1


async def test_null_fields_of_the_output_count_as_absent(tmp_path):
    plugin(tmp_path, "answer(token='t', clientCertificateData=None, clientKeyData=None, expirationTimestamp=None)")
    assert (await user_of(tmp_path).credentials.current()).authorization == "Bearer t"


async def test_the_older_version_needs_no_mode(tmp_path):
    plugin(tmp_path, "answer(token='t')")
    found = user_of(tmp_path, apiVersion=V1BETA1, interactiveMode=None)
    assert (await found.credentials.current()).authorization == "Bearer t"
