"""HTTPS_PROXY, HTTP_PROXY and NO_PROXY, with Go's rules: kubectl on the same machine uses the same proxy."""

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from forebay.kube.errors import ConfigError

_DEFAULT_PORTS = {"http": 80, "https": 443}


def from_environment(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy for `url`; None for a direct connection."""
    parts = urlsplit(url)
    name = f"{parts.scheme.upper()}_PROXY"
    proxy = env.get(name) or env.get(name.lower())
    host = parts.hostname or ""
    if not proxy or _bypasses(host, parts.port or _DEFAULT_PORTS[parts.scheme], env):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    if urlsplit(proxy).scheme not in _DEFAULT_PORTS:
        raise ConfigError(
            f"{name} is not an http or https URL, and Forebay supports no other kind of proxy; change or unset {name}"
        )
    return proxy


def _bypasses(host: str, port: int, env: Mapping[str, str]) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    exceptions = env.get("NO_PROXY") or env.get("no_proxy") or ""
    return any(_matches(entry.strip().lower(), host.lower(), port) for entry in exceptions.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int) -> bool:
    """Whether a NO_PROXY entry matches the host.

    A name matches itself and its subdomains, `.name` only the subdomains, a CIDR its addresses, `*` everything.
    """
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    if entry.count(":") == 1 or "]:" in entry:
        entry, _, only = entry.rpartition(":")
        if only != str(port):
            return False
    entry = entry.strip("[]")
    if address is not None:
        return address == _address(entry)
    entry = entry.removeprefix("*")
    return host == entry or host.endswith(entry if entry.startswith(".") else f".{entry}")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
