"""The kinds that Forebay reads and writes whole or nearly so. Pods and nodes, of which there are many, have modules of
their own.

Times inside Lease and Event are `MicroTime`: Go refuses one that does not have exactly six decimals, and nobody here
reads another machine's clock, so they stay text.
"""

from datetime import UTC, datetime

import msgspec

from forebay.api.meta import Object
from forebay.kube.resources import Resource, T

MicroTime = str


def micro_time(moment: datetime) -> MicroTime:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LeaseSpec(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(Object):
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


LEASES = Resource(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    type=Lease,
    complete=True,
)


class ObjectReference(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True, frozen=True):
    """Which object an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


def reference(resource: Resource[T], named: T) -> ObjectReference:
    namespace, name = named.key
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, namespace=namespace, name=name, uid=named.uid
    )


class EventSeries(msgspec.Struct, rename="camel", kw_only=True):
    #: The first event included; the API server takes no series of one.
    count: int
    last_observed_time: MicroTime


class Event(Object):
    """events.k8s.io/v1. Once written, only its series may change."""

    event_time: MicroTime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""


EVENTS = Resource(
    group="events.k8s.io", version="v1", plural="events", kind="Event", namespaced=True, type=Event, complete=False
)


class NamespaceStatus(msgspec.Struct, omit_defaults=True, kw_only=True):
    phase: str = ""


class Namespace(Object):
    """As much of a namespace as selectors and uninstallation look at."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, type=Namespace)
