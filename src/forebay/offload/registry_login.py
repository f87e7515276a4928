"""The login with which a remote container pulls its image, from the imagePullSecrets of its pod."""

import base64
import binascii
import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from forebay.model.secret_text import SecretText

#: Keys of Secrets of the types kubernetes.io/dockerconfigjson and, older, kubernetes.io/dockercfg.
_CONFIG: Final = ".dockerconfigjson"
_OLD_CONFIG: Final = ".dockercfg"
_DOCKER_HUB: Final = "docker.io"
#: Other names of it, in images and in Secrets.
_DOCKER_HUB_NAMES: Final = frozenset(
    {"index.docker.io", "registry-1.docker.io", "docker.io", "registry.hub.docker.com"}
)


class InvalidLogin(ValueError):
    """A Secret that cannot be used to pull images. The text names it and says what to do; it holds nothing of it."""


class RegistryLogin(NamedTuple):
    #: The Secret that holds it.
    secret: str
    #: The registry, and the path below it, that the Secret states it for.
    registry: str
    username: str
    password: SecretText


def registry_login(image: str, secrets: Mapping[str, Mapping[str, bytes]]) -> RegistryLogin | None:
    """The login for the image in these Secrets, by name: of several the one whose path is longest, then the first.

    None: none is for the registry of the image, which is pulled without, as on any node. Raises `InvalidLogin`.
    """
    host, path = _host_and_path(image)
    best: tuple[int, RegistryLogin] | None = None
    for name, data in secrets.items():
        for registry, entry in _entries(name, data):
            prefix = _matching_prefix(registry, host, path)
            if prefix is not None and (best is None or len(prefix) > best[0]):
                best = len(prefix), _login(name, registry, entry)
    return None if best is None else best[1]


def _host_and_path(image: str) -> tuple[str, str]:
    """`docker.io`, `library/busybox` for `busybox:1`."""
    first, slash, rest = image.partition("@")[0].partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host = first
    else:
        host, rest = _DOCKER_HUB, image if slash else f"library/{image}"
    return _DOCKER_HUB if host in _DOCKER_HUB_NAMES else host.lower(), rest.partition(":")[0]


def _matching_prefix(registry: str, host: str, path: str) -> str | None:
    """The path that the entry is limited to, where it is for this image; None where it is not."""
    bare = registry.partition("://")[2] or registry
    entry_host, _, entry_path = bare.partition("/")
    entry_path = entry_path.strip("/")
    if entry_host in _DOCKER_HUB_NAMES:
        # `https://index.docker.io/v1/` is how docker login writes it.
        return "" if host == _DOCKER_HUB else None
    if not _same_host(entry_host.lower(), host):
        return None
    if entry_path in {"v1", "v2"} or not entry_path:
        return ""
    return entry_path if path == entry_path or path.startswith(f"{entry_path}/") else None


def _same_host(pattern: str, host: str) -> bool:
    # As a kubelet does: a star stands for one part of the name.
    parts, words = pattern.split("."), host.split(".")
    return len(parts) == len(words) and all(map(fnmatch.fnmatchcase, words, parts))


def _entries(name: str, data: Mapping[str, bytes]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    key = _CONFIG if _CONFIG in data else _OLD_CONFIG
    if key not in data:
        raise InvalidLogin(
            f"Secret {name} of imagePullSecrets has no key {_CONFIG}: make it with kubectl create secret "
            "docker-registry, or remove it from the pod."
        )
    try:
        found = msgspec.json.decode(data[key], type=dict[str, Any])
        entries = found.get("auths", {}) if key == _CONFIG else found
        yield from msgspec.convert(entries, dict[str, dict[str, Any]]).items()
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        raise InvalidLogin(f"Secret {name} of imagePullSecrets is not a Docker configuration: make it anew.") from None


def _login(name: str, registry: str, entry: Mapping[str, Any]) -> RegistryLogin:
    username, password = entry.get("username"), entry.get("password")
    if not (username and password) and entry.get("auth"):
        try:
            username, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except (binascii.Error, ValueError):
            raise InvalidLogin(f"The login for {registry} in Secret {name} cannot be read: make it anew.") from None
    if not (isinstance(username, str) and isinstance(password, str) and username and password):
        raise InvalidLogin(
            f"Secret {name} has no user name and password for {registry}, and remote containers take no other login."
        )
    return RegistryLogin(name, registry, username, SecretText(password))
