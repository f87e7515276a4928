"""Where a kind lives in the API, and what it is decoded into."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from forebay.api.meta import Object
from forebay.kube.errors import BadRequest

if TYPE_CHECKING:
    from forebay.kube.decoders import ObjectDecoder


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
#: Of those that are only told about objects.
T_contra = TypeVar("T_contra", contravariant=True)


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
    #: Makes a decoder for objects whose type is not laid out as Kubernetes lays out the kind.
    make_decoder: "Callable[[], ObjectDecoder[Any, T]] | None" = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Without a namespace: the collection of all namespaces. Names are encoded, so none can lead elsewhere."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if self.namespaced and namespace:
            root = f"{root}/namespaces/{segment(namespace)}"
        parts = [root, self.plural]
        if name is not None:
            parts.append(segment(name))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


def segment(name: str) -> str:
    """A name as one segment of a path. An empty one would turn an object's path into its collection's."""
    if name in {"", ".", ".."}:
        raise BadRequest(f'"{name}" cannot be the name of an object', status=400)
    return quote(name, safe=":")


class AnyObject(Object):
    """An object of which only the metadata matters here."""
