"""Metadata that every Kubernetes object has."""

from datetime import datetime

import msgspec


class OwnerReference(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """`metadata`, complete enough that decoding and encoding an object loses nothing that Forebay may change."""

    name: str = ""
    generate_name: str | None = None
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []
    managed_fields: list[msgspec.Raw] = []


class Object(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """Base of kinds with the layout of Kubernetes objects. `apiVersion` and `kind` come from the Resource."""

    metadata: ObjectMeta

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace or "", self.metadata.name)

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def resource_version(self) -> int:
        return int(self.metadata.resource_version or 0)
