"""Lease, Event and Namespace. Other kinds have their own modules.

Times in Lease and Event are `MicroTime`, kept as text: Go requires exactly six decimals, and Forebay compares none of
them with its own clock.
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


class Lease(Object, frozen=True):
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
    """Reference to the object that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


def reference(resource: Resource[T], of: T) -> ObjectReference:
    namespace, name = of.key
    return ObjectReference(
        api_version=resource.api_version, kind=resource.kind, namespace=namespace, name=name, uid=of.uid
    )


class EventSeries(msgspec.Struct, rename="camel", kw_only=True):
    #: Includes the first event. The API server requires at least 2.
    count: int
    last_observed_time: MicroTime


class Event(Object, frozen=True):
    """An events.k8s.io/v1 Event. Only its series may change after creation."""

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


class Namespace(Object, frozen=True):
    """A Namespace: metadata and phase."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, type=Namespace)
