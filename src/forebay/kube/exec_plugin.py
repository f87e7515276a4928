"""Exec credential plugins (such as `aws eks get-token`), by `client.authentication.k8s.io` v1 and v1beta1.

The command gets an ExecCredential in KUBERNETES_EXEC_INFO and prints one with a token, a client certificate or both.
The credential is used until its expirationTimestamp, or until the server answers 401.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from forebay.kube.certificates import ClientCertificate, client_certificate
from forebay.kube.credentials import Credential, bearer
from forebay.kube.errors import ConfigError
from forebay.kube.kubeconfig import ExecSpec
from forebay.net import clock
from forebay.net.redaction import HIDDEN, Redactor

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")
_MAX_QUOTE = 200


class _Status(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that are null count as absent, as in Go."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str | None = None
    kind: str | None = None
    status: _Status | None = None


class ExecPlugin:
    """A `CredentialSource` that runs a command. `env` is the command's environment, without KUBERNETES_EXEC_INFO."""

    def __init__(
        self,
        spec: ExecSpec,
        *,
        where: str,
        beside: Path,
        env: Mapping[str, str],
        cluster: Mapping[str, Any] | None = None,
        certificate: ClientCertificate | None = None,
        interactive: bool = False,
        timeout: float = 60.0,
    ) -> None:
        _check(spec, where)
        self._spec = spec
        self._where = where
        self._beside = beside
        self._env = env
        self._cluster = cluster
        self._certificate = certificate
        self._interactive = interactive and spec.interactive_mode != "Never"
        # No timeout for an interactive login: the user can interrupt the command.
        self._timeout = None if self._interactive else timeout
        self._credential: Credential | None = None
        self._expires: datetime | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> Credential:
        async with self._lock:
            expired = self._expires is not None and clock.now() >= self._expires
            if self._credential is None or expired:
                return await self._run()
            return self._credential

    async def renewed(self, rejected: Credential) -> Credential:
        async with self._lock:
            # When many requests get a 401 at once, the first runs the command and the others use its result.
            if self._credential is None or self._credential == rejected:
                return await self._run()
            return self._credential

    async def _run(self) -> Credential:
        output = await asyncio.to_thread(self._output)
        status = self._decode(output)
        certificate = self._certificate
        if status.client_certificate_data and status.client_key_data:
            certificate = client_certificate(
                status.client_certificate_data.encode(),
                status.client_key_data.encode(),
                where=f"the output of {self._description}",
                now=clock.now(),
            )
        authorization = bearer(status.token or "", f"the output of {self._description}")
        self._credential = Credential(authorization=authorization, certificate=certificate)
        self._expires = status.expiration_timestamp
        return self._credential

    @property
    def _description(self) -> str:
        return f'exec command "{self._spec.command}" of {self._where}'

    def _output(self) -> bytes:
        if self._spec.interactive_mode == "Always" and not self._interactive:
            raise ConfigError(
                f"{self._description} needs a terminal for input (interactiveMode Always), and there is none"
            )
        info: dict[str, Any] = {"interactive": self._interactive}
        if self._spec.provide_cluster_info and self._cluster is not None:
            info["cluster"] = self._cluster
        request = {"apiVersion": self._spec.api_version, "kind": "ExecCredential", "spec": info}
        env = {
            **self._env,
            **{item.name: item.value for item in self._spec.env},
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(request).decode(),
        }
        command = self._find(env)
        try:
            process = subprocess.Popen(  # noqa: S603 (the user's own kubeconfig says so)
                [command, *self._spec.args],
                env=env,
                stdin=None if self._interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # Login prompts go to stderr, where the user must see them.
                stderr=None if self._interactive else subprocess.PIPE,
                start_new_session=not self._interactive,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"{self._description} cannot be run: {why}{self._hint}") from None
        with process:
            try:
                output, stderr = process.communicate(timeout=self._timeout)
            except subprocess.TimeoutExpired:
                # The whole process group: a child would live on. An interactive login has no timeout.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise ConfigError(
                    f"{self._description} did not finish within {self._timeout:g} s; "
                    "run the command by hand to see what it waits for"
                ) from None
        if process.returncode != 0:
            raise ConfigError(
                f"{self._description} failed with exit code {process.returncode}{_last_line(stderr, _secrets(env))}"
            )
        return output

    def _find(self, env: Mapping[str, str]) -> str:
        command = self._spec.command
        if os.sep in command:
            return str(self._beside / command)
        found = shutil.which(command, path=env.get("PATH"))
        if found is None:
            raise ConfigError(f"{self._description} was not found in PATH{self._hint or '; install the command'}")
        return found

    @property
    def _hint(self) -> str:
        hint = " ".join(self._spec.install_hint.split())
        return f"; {hint}" if hint else ""

    def _decode(self, output: bytes) -> _Status:
        try:
            printed = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The output may hold a secret: the message never quotes it.
            why = "nothing" if not output.strip() else f"{len(output)} bytes that are not an ExecCredential ({error})"
            raise ConfigError(f"{self._description} printed {why}") from None
        if printed.kind != "ExecCredential" or printed.api_version != self._spec.api_version:
            raise ConfigError(
                f'{self._description} printed kind "{printed.kind or ""}" of apiVersion "{printed.api_version or ""}"; '
                f'"ExecCredential" of "{self._spec.api_version}" is expected'
            )
        status = printed.status
        if status is None or not (status.token or status.client_certificate_data):
            raise ConfigError(f"{self._description} printed an ExecCredential without a token or a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise ConfigError(
                f"{self._description} printed a client certificate without its key, or a key without certificate"
            )
        return status


def _check(spec: ExecSpec, where: str) -> None:
    if not spec.command:
        raise ConfigError(f"{where} has an exec section without a command")
    if spec.api_version not in _VERSIONS:
        said = f'apiVersion "{spec.api_version}"' if spec.api_version else "no apiVersion"
        raise ConfigError(f"{where} has an exec section with {said}; supported are {' and '.join(_VERSIONS)}")
    if spec.interactive_mode and spec.interactive_mode not in _MODES:
        raise ConfigError(
            f'{where} has exec interactiveMode "{spec.interactive_mode}"; allowed are {", ".join(_MODES)}'
        )
    if not spec.interactive_mode and spec.api_version == _VERSIONS[0]:
        raise ConfigError(
            f"{where} has an exec section of {_VERSIONS[0]} without interactiveMode, which that version requires"
        )


def _secrets(env: Mapping[str, str]) -> Redactor:
    """Redacts the values of variables whose names say that they are secret: the command may quote them."""
    by_name = Redactor()
    return Redactor(value for name, value in env.items() if by_name.data({name: value})[name] == HIDDEN)


def _last_line(stderr: bytes | None, redactor: Redactor) -> str:
    """The last line that the command printed, redacted before it is cut: half a secret is one, too."""
    lines = (stderr or b"").decode("utf-8", "replace").strip().splitlines()
    return f": {redactor.text(lines[-1].strip())[:_MAX_QUOTE]}" if lines else ""
