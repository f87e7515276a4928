"""Access tokens for Google's APIs: from a key or a federation config in a Secret, or from the metadata server.

`google-auth` makes the tokens of the first two. Its code is synchronous and would send its own HTTP requests. Here it
runs in a thread and sends nothing: where it needs a response that is not there yet it is stopped, the request goes
through the `Transport`, and it runs again with the responses so far. So tokens, too, are subject to our timeouts,
redaction and faults. The metadata server's token is one GET, which google-auth does only with the package `requests`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from forebay.api.parts import SecretKeyRef, SecretRef
from forebay.net.json_body import decode_body
from forebay.net.redaction import Redactor
from forebay.net.transport import Headers, Request, Timeouts, Transport, TransportError
from forebay.providers.base import BadCredentials, ProviderError, RateLimited, Unavailable
from forebay.providers.gcp.wire import TokenAnswer
from forebay.providers.secrets import Secrets, SecretsUnavailable, UnusableSecret

SCOPES: Final = ("https://www.googleapis.com/auth/compute", "https://www.googleapis.com/auth/cloud-billing.readonly")
METADATA: Final = "http://metadata.google.internal/computeMetadata/v1"
#: Key of the Secret that names the project, beside the key with the credentials.
PROJECT_KEY: Final = "project"
_KEY_FILE: Final = "service_account"
_KINDS: Final = frozenset({_KEY_FILE, "external_account"})
_TIMEOUTS: Final = Timeouts(connect=5.0, read=10.0, total=10.0)
#: A token is renewed so long before its end: a call that begins with it must not outlive it.
_MARGIN: Final = timedelta(minutes=4)
#: Requests of one refresh: a subject token, its exchange, an impersonation, and room.
_MOST_REQUESTS: Final = 6
_MAX_BODY: Final = 1024 * 1024
_LONGEST_QUOTE: Final = 200
_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500


class _GoogleCredentials(Protocol):
    token: str | None
    #: Naive, in UTC.
    expiry: datetime | None

    def refresh(self, request: Callable[..., object]) -> None: ...


class _HttpAnswer(msgspec.Struct, frozen=True):
    """A response as google-auth reads it."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class _RequestNeeded(Exception):
    def __init__(self, request: Request) -> None:
        super().__init__()
        self.request = request


class _Replay:
    """What google-auth takes for an HTTP client: returns the responses so far, then stops for the next request."""

    def __init__(self, answers: list[_HttpAnswer]) -> None:
        self._answers = iter(answers)

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ARG002 (ours hold)
        **_options: object,
    ) -> _HttpAnswer:
        answer = next(self._answers, None)
        if answer is not None:
            return answer
        data = body.encode() if isinstance(body, str) else body
        raise _RequestNeeded(
            Request(method=method, url=url, headers=Headers(headers or {}), body=data, timeouts=_TIMEOUTS, safe=True)
        )


class GoogleIdentity:
    """Who Forebay is at Google: tokens, renewed before they end, and the project.

    `key` names the Secret; None: the identity of the machine or, on GKE, of Forebay's ServiceAccount.
    """

    def __init__(
        self,
        transport: Transport,
        secrets: Secrets,
        key: SecretKeyRef | None,
        clock: Callable[[], datetime],
        project: str | None = None,
    ) -> None:
        self._transport = transport
        self._secrets = secrets
        self._key = key
        self._configured_project = project
        self._clock = clock
        self._lock = asyncio.Lock()
        self._credentials: _GoogleCredentials | None = None
        self._token: str | None = None
        self._renew_at: datetime | None = None
        self._project: str | None = None

    @property
    def described(self) -> str:
        """For sentences: where the identity comes from."""
        return self._secrets.describe(self._key) if self._key is not None else "the metadata server"

    async def token(self) -> str:
        """A valid token. Raises `BadCredentials`, `RateLimited` or `Unavailable`."""
        async with self._lock:
            if self._token is None or self._renew_at is None or self._clock() >= self._renew_at:
                await (self._refresh() if self._key is not None else self._refresh_by_metadata())
            if self._token is None:
                raise Unavailable(f"{self.described} gave no access token.")
            return self._token

    async def project(self) -> str:
        """Id of the project to rent in: the configured one, else that of the credentials."""
        if self._configured_project is not None:
            return self._configured_project
        if self._project is None:
            if self._key is None:
                self._project = (await self._metadata("project/project-id")).decode().strip()
            else:
                self._project = await self._stated_project(self._key)
        return self._project

    def reject(self, token: str) -> None:
        """Google refused this token: it ended early, or the Secret has changed. The next one is made anew."""
        if self._token == token:
            self._token = None
            self._credentials = None
            self._project = None
            self._secrets.invalidate(self._key)

    async def _stated_project(self, key: SecretKeyRef) -> str:
        try:
            held = await self._secrets.read(SecretRef(name=key.name, namespace=key.namespace))
        except UnusableSecret as error:
            raise BadCredentials(f"The Google credentials cannot be read: {error}.") from None
        except SecretsUnavailable as error:
            raise Unavailable(f"The Google credentials cannot be read: {error}.") from None
        stated = held.get(PROJECT_KEY, b"").decode("utf-8", "replace").strip()
        project = stated or str((await self._config(key)).get("project_id") or "")
        if not project:
            raise BadCredentials(
                f"{self.described} does not name a project. Add the key {PROJECT_KEY} with the project's id."
            )
        return project

    async def _config(self, key: SecretKeyRef) -> Mapping[str, Any]:
        try:
            text = await self._secrets.value(key)
            found = decode_body(text, dict[str, Any])
        except UnusableSecret as error:
            raise BadCredentials(f"The Google credentials cannot be read: {error}.") from None
        except SecretsUnavailable as error:
            raise Unavailable(f"The Google credentials cannot be read: {error}.") from None
        except msgspec.DecodeError:
            raise BadCredentials(
                f"Key {key.key} of {self.described} is not JSON. Write the service account's key file, or a workload "
                "identity federation config, into it."
            ) from None
        if (kind := found.get("type")) not in _KINDS:
            raise BadCredentials(
                f'Key {key.key} of {self.described} has the type "{kind}". Write a service account\'s key file '
                "(service_account) or a workload identity federation config (external_account) into it."
            )
        # The Secret's value is registered as a whole; an error may quote a part of it.
        for part in ("private_key", "private_key_id", "client_secret"):
            self._secrets.redactor.register(str(found.get(part, "")))
        return found

    async def _refresh(self) -> None:
        if self._key is None:
            return
        if self._credentials is None:
            self._credentials = self._parsed(await self._config(self._key), self._key)
        credentials = self._credentials
        answers: list[_HttpAnswer] = []
        for _ in range(_MOST_REQUESTS):
            try:
                with self._google_errors(f"Google gave no access token for {self.described}"):
                    await asyncio.to_thread(credentials.refresh, _Replay(answers))
            except _RequestNeeded as needed:
                answers.append(await self._send(needed.request))
            except BadCredentials:
                self._credentials = None
                self._secrets.invalidate(self._key)
                raise
            else:
                expiry = credentials.expiry
                lifetime = expiry.replace(tzinfo=UTC) - datetime.now(UTC) if expiry is not None else _MARGIN
                self._keep(credentials.token, lifetime)
                return
        raise Unavailable(f"Google gave no access token for {self.described} after {_MOST_REQUESTS} requests.")

    @contextmanager
    def _google_errors(self, what: str) -> Iterator[None]:
        """Whatever google-auth raises, as BadCredentials that say what it said."""
        try:
            yield
        except _RequestNeeded:
            raise
        except Exception as error:  # noqa: BLE001 (it raises several kinds, and those of Python for a bad key)
            raise BadCredentials(f'{what} ("{self._said(error)}"). Correct it.') from None

    def _said(self, error: Exception) -> str:
        """What google-auth says in one line: its errors have details after the message."""
        text = str(error.args[0]) if error.args else type(error).__name__
        return self._secrets.redactor.text(text.partition("\n")[0])[:_LONGEST_QUOTE].rstrip(".")

    def _keep(self, token: str | None, lifetime: timedelta) -> None:
        if token:
            self._secrets.redactor.register(token)
        self._token = token
        self._renew_at = self._clock() + max(lifetime - _MARGIN, lifetime / 2)

    def _parsed(self, config: Mapping[str, Any], key: SecretKeyRef) -> _GoogleCredentials:
        # Imported here: google-auth costs every command tens of milliseconds.
        from google.auth import identity_pool  # noqa: PLC0415
        from google.oauth2 import service_account  # noqa: PLC0415

        with self._google_errors(f"Key {key.key} of {self.described} cannot be used"):
            if config["type"] == _KEY_FILE:
                return _of_key(service_account.Credentials, config)
            return _federated(identity_pool.Credentials, config)

    async def _refresh_by_metadata(self) -> None:
        scopes = ",".join(SCOPES)
        body = await self._metadata(f"instance/service-accounts/default/token?scopes={scopes}")
        try:
            found = decode_body(body, TokenAnswer)
        except msgspec.DecodeError:
            raise Unavailable("The token of the metadata server cannot be read.") from None
        self._keep(found.access_token, timedelta(seconds=found.expires_in))

    async def _metadata(self, path: str) -> bytes:
        request = Request(
            method="GET",
            url=f"{METADATA}/{path}",
            headers=Headers({"Metadata-Flavor": "Google"}),
            timeouts=_TIMEOUTS,
        )
        answer = await self._send(request, "Forebay does not run on Google Cloud? Then set credentialsRef.")
        if answer.status != _OK:
            raise BadCredentials(
                f"The metadata server answered {answer.status}: this machine or ServiceAccount has no Google identity. "
                "Give it one (Workload Identity), or set credentialsRef."
            )
        return answer.data

    async def _send(self, request: Request, remedy: str = "") -> _HttpAnswer:
        try:
            async with await self._transport.request(request) as response:
                body = bytearray()
                async for chunk in response.chunks():
                    body += chunk
                    if len(body) > _MAX_BODY:
                        raise Unavailable("The answer to a request for an access token is too long.")
                answer = _HttpAnswer(response.status, dict(response.headers), bytes(body))
        except TransportError as error:
            text = _redacted(self._secrets.redactor, error)
            raise Unavailable(f"Google gave no access token, because {text}.{f' {remedy}' if remedy else ''}") from None
        if (failure := _not_now(answer.status)) is not None:
            # Not shown to google-auth, which would sleep and try again.
            raise failure
        return answer


def _of_key(kind: Any, config: Mapping[str, Any]) -> _GoogleCredentials:
    made: _GoogleCredentials = kind.from_service_account_info(dict(config), scopes=SCOPES)
    return made


def _federated(kind: Any, config: Mapping[str, Any]) -> _GoogleCredentials:
    made: _GoogleCredentials = kind.from_info(dict(config), scopes=SCOPES)
    return made


def _not_now(status: int) -> ProviderError | None:
    if status == _TOO_MANY:
        return RateLimited(
            "Google answered 429 to a request for an access token. Forebay retries later.",
            retry_after=timedelta(minutes=1),
        )
    if status >= _SERVER_ERROR:
        return Unavailable(f"Google answered {status} to a request for an access token. Forebay retries later.")
    return None


def _redacted(redactor: Redactor, error: TransportError) -> str:
    return redactor.text(str(error))
