"""The whole embedded cluster: store, API server and controllers, started and stopped together."""

import base64
import secrets
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from types import TracebackType
from typing import Final, Self

import yaml

from forebay.embedded.api.access import Guarded
from forebay.embedded.api.bootstrap import open_store
from forebay.embedded.api.handler import ApiHandler
from forebay.embedded.api.store import Store
from forebay.embedded.controllers import Controllers
from forebay.net.clock import now

#: Name of cluster, user and context in the kubeconfigs written here, by which they are recognized.
KUBECONFIG_NAME: Final = "forebay-embedded"


class EmbeddedCluster:
    """A cluster whose controllers run inside its `async with` block; `handler` answers requests from creation on.

    `handler` asks for no credentials: it is for this process. `guarded` is for a socket, and asks for `token`.
    The default clock is the running loop's. The same seed gives the same generated names and UIDs.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], datetime] = now,
        seed: int | None = None,
        without: Collection[str] = (),
        events: bool = True,
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.store: Final[Store] = open_store(clock=clock, seed=seed)
        self.token: Final = secrets.token_urlsafe(32)
        self.handler: Final = ApiHandler(self.store, tokens={self.token: "system:admin", **(tokens or {})})
        self.guarded: Final = Guarded(self.handler, self.token)
        self._controllers = Controllers(self.store, without=without, events=events)

    async def __aenter__(self) -> Self:
        self._controllers.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._controllers.stop()


def kubeconfig_for(url: str, token: str, authority: str) -> str:
    """A kubeconfig for the server at `url`, whose certificate `authority` (PEM) proves."""
    data = base64.b64encode(authority.encode()).decode()
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": KUBECONFIG_NAME, "cluster": {"server": url, "certificate-authority-data": data}}],
            "users": [{"name": KUBECONFIG_NAME, "user": {"token": token}}],
            "contexts": [
                {
                    "name": KUBECONFIG_NAME,
                    "context": {"cluster": KUBECONFIG_NAME, "user": KUBECONFIG_NAME, "namespace": "default"},
                }
            ],
            "current-context": KUBECONFIG_NAME,
        },
        sort_keys=False,
    )


def is_embedded_kubeconfig(content: bytes) -> bool:
    """Whether `kubeconfig_for` wrote this content, so that the file may be overwritten."""
    try:
        config = yaml.safe_load(content)
    except yaml.YAMLError:
        return False
    clusters = config.get("clusters") if isinstance(config, dict) else None
    return isinstance(clusters, list) and [one.get("name") for one in clusters if isinstance(one, dict)] == [
        KUBECONFIG_NAME
    ]
