"""The provider `gcp` as it is registered."""

from datetime import timedelta
from typing import Final

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.values import duration
from forebay.providers.base import GroupsProvider, Provider
from forebay.providers.gcp.auth import GoogleIdentity
from forebay.providers.gcp.calls import GoogleCalls
from forebay.providers.gcp.groups import GcpGroups
from forebay.providers.gcp.provider import CAPABILITIES, GcpProvider
from forebay.providers.pacing import cloud_transport
from forebay.providers.plugin import ProviderContext, ProviderNotServed, ProviderPlugin
from forebay.providers.secrets import Secrets

#: Google's bounds of a resize request.
_SHORTEST_RUN: Final = timedelta(minutes=10)
_LONGEST_RUN: Final = timedelta(days=7)


def _build(entry: Entry, context: ProviderContext) -> Provider:
    transport = cloud_transport(context.make_transport(None), CAPABILITIES)
    secrets = Secrets(context.secrets, context.namespace, context.redactor)
    identity = GoogleIdentity(transport, secrets, entry.credentials_ref, context.clock)
    calls = GoogleCalls(transport, identity, context.redactor, context.clock, entry.endpoint)
    return GcpProvider(calls, context.cluster, context.clock, entry.regions)


def _build_groups(spec: NodeProvisionerSpec, context: ProviderContext) -> GroupsProvider:
    groups = spec.provider
    if groups.location is None:
        raise ProviderNotServed("gcp needs the zone or region of the instance groups: set provider.location.")
    run = None if groups.run_duration is None else duration(groups.run_duration)
    if run is not None and not _SHORTEST_RUN <= run <= _LONGEST_RUN:
        raise ProviderNotServed(f"provider.runDuration is {groups.run_duration}: Google takes 10m to 168h. Correct it.")
    transport = cloud_transport(context.make_transport(None), CAPABILITIES)
    secrets = Secrets(context.secrets, context.namespace, context.redactor)
    identity = GoogleIdentity(transport, secrets, groups.credentials_ref, context.clock, groups.project)
    calls = GoogleCalls(transport, identity, context.redactor, context.clock, groups.endpoint)
    return GcpGroups(calls, context.cluster, context.clock, groups.location, run, template=spec.instance_template)


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build, build_groups=_build_groups)
