"""A pod as Kubernetes writes it, as far as a remote container needs it."""

from collections.abc import Mapping
from typing import Any

import msgspec


class _Camel(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class PodMetadata(_Camel, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class PodManifest(_Camel, frozen=True, kw_only=True):
    """A pod with its spec as it was written: fields that nobody here knows must be seen too."""

    metadata: PodMetadata
    spec: Mapping[str, Any]


class KeyRef(_Camel, frozen=True, kw_only=True):
    name: str = ""
    key: str
    optional: bool = False


class FieldRef(_Camel, frozen=True, kw_only=True):
    field_path: str


class ResourceFieldRef(_Camel, frozen=True, kw_only=True):
    container_name: str = ""
    resource: str
    divisor: str | int = 0


class ValueFrom(_Camel, frozen=True, kw_only=True):
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class EnvVar(_Camel, frozen=True, kw_only=True):
    name: str
    value: str = ""
    value_from: ValueFrom | None = None


class NamedRef(_Camel, frozen=True, kw_only=True):
    name: str = ""
    optional: bool = False


class EnvFrom(_Camel, frozen=True, kw_only=True):
    prefix: str = ""
    secret_ref: NamedRef | None = None
    config_map_ref: NamedRef | None = None


class ManifestPort(_Camel, frozen=True, kw_only=True):
    container_port: int
    protocol: str = "TCP"
    host_port: int = 0


class VolumeMount(_Camel, frozen=True, kw_only=True):
    name: str
    mount_path: str
    sub_path: str = ""
    sub_path_expr: str = ""


class ResourceAmounts(_Camel, frozen=True, kw_only=True):
    requests: Mapping[str, str | int] = {}
    limits: Mapping[str, str | int] = {}


class ManifestContainer(_Camel, frozen=True, kw_only=True):
    """One container of a pod."""

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    ports: tuple[ManifestPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    resources: ResourceAmounts = ResourceAmounts()


class ManifestSpec(_Camel, frozen=True, kw_only=True):
    """The carried part of a pod's spec."""

    containers: tuple[ManifestContainer, ...]
    volumes: tuple[Mapping[str, Any], ...] = ()
    image_pull_secrets: tuple[NamedRef, ...] = ()
    restart_policy: str = "Always"
    service_account_name: str = ""
    node_name: str = ""
