"""Resources of the API: their paths, and the types their objects decode into."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from forebay.api.meta import Object
from forebay.kube.errors import BadRequest

if TYPE_CHECKING:
    from forebay.kube.decoders import ObjectDecoder


class Tracked(Protocol):
    """What clients and informers need of any object."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace (empty for cluster-scoped kinds) and name."""
        ...

    @property
    def uid(self) -> str: ...

    @property
    def resource_version(self) -> int: ...


T = TypeVar("T", bound=Tracked)
#: For handlers, which only receive objects.
T_contra = TypeVar("T_contra", contravariant=True)


class Resource(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A resource of the API server, and the type its objects decode into."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]
    #: Whether the type has every field of the kind, so that `update` may write a whole object. With any other type,
    #: `update` would erase the missing fields: such kinds are changed by patches.
    complete: bool = False
    #: Makes a decoder for a type whose fields differ from the JSON of the kind.
    make_decoder: "Callable[[], ObjectDecoder[Any, T]] | None" = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """URL path. Without a namespace: across all namespaces. Names are percent-encoded."""
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
    """A name as one segment of a path. Raises `BadRequest` for a name that would change the path."""
    if name in {"", ".", ".."}:
        raise BadRequest(f'"{name}" is not a valid object name', status=400)
    return quote(name, safe=":")


class AnyObject(Object, frozen=True):
    """An object of which only the metadata is decoded."""
