"""The provider `gcp` as it is registered."""

from typing import Final

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import GroupProvider
from forebay.providers.base import GroupsProvider, Provider
from forebay.providers.gcp.auth import GoogleIdentity
from forebay.providers.gcp.calls import GoogleCalls
from forebay.providers.gcp.groups import GcpGroups
from forebay.providers.gcp.provider import CAPABILITIES, GcpProvider
from forebay.providers.pacing import paced
from forebay.providers.plugin import ProviderContext, ProviderNotServed, ProviderPlugin
from forebay.providers.secrets import Secrets


def _build(entry: Entry, context: ProviderContext) -> Provider:
    transport = paced(context.make_transport(None), CAPABILITIES)
    secrets = Secrets(context.secrets, context.namespace, context.redactor)
    identity = GoogleIdentity(transport, secrets, entry.credentials_ref, context.clock)
    calls = GoogleCalls(transport, identity, context.redactor, context.clock, entry.endpoint)
    return GcpProvider(calls, context.cluster, context.clock, entry.regions)


def _build_groups(groups: GroupProvider, context: ProviderContext) -> GroupsProvider:
    if groups.location is None:
        raise ProviderNotServed("gcp needs the zone or region of the instance groups: set provider.location.")
    transport = paced(context.make_transport(None), CAPABILITIES)
    secrets = Secrets(context.secrets, context.namespace, context.redactor)
    identity = GoogleIdentity(transport, secrets, groups.credentials_ref, context.clock, groups.project)
    calls = GoogleCalls(transport, identity, context.redactor, context.clock, groups.endpoint)
    return GcpGroups(calls, context.cluster, context.clock, groups.location)


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build, build_groups=_build_groups)
