"""The container that a provider runs instead of a machine, as a pod's container is written."""

from collections.abc import Mapping

import msgspec

from forebay.model.secret_text import SecretText


class ContainerPort(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    protocol: str = "TCP"
    #: Served by exactly this protocol. Without, a provider may serve a port of TCP by HTTP, where that is usual.
    exactly: bool = False


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The container to run, as a pod's container is written. Its GPUs are those of the offer."""

    image: str
    #: Entry point; empty: that of the image.
    command: tuple[str, ...] = ()
    #: Arguments; empty: those of the image, unless `command` is set.
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    #: Environment variables with secret values.
    secret_env: Mapping[str, SecretText] = {}
    ports: tuple[ContainerPort, ...] = ()
    #: Size of its own disk; None: what the provider gives by default.
    disk_gib: int | None = None
    #: Id, at the provider, of the credentials with which it pulls the image.
    registry_auth: str | None = None
    #: Id, at the provider, of a template with settings that are not stated here.
    template: str | None = None
