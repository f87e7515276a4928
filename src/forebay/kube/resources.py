"""Where a kind lives in the API, and what it is decoded into."""

from typing import Generic, Protocol, TypeVar

import msgspec

from forebay.api.meta import Object


class Tracked(Protocol):
    """What the client and the informers need to know about any object."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster kinds) and name."""
        ...

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> int: ...


T = TypeVar("T", bound=Tracked)


class Resource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One resource of the API server and the type its objects become here."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    #: The type holds every field of the kind, so that a whole object may be written back. A slim type may not:
    #: `update` would erase what it does not know. Such kinds are changed by patches.
    complete: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root = f"{root}/namespaces/{namespace}"
        parts = [root, self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/".join(parts)


class AnyObject(Object):
    """An object of which only the metadata matters here."""
