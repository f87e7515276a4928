"""The provider `simulated` as it is registered."""

from typing import Final

from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.providers.base import GroupsProvider, Provider
from forebay.providers.plugin import ProviderContext, ProviderNotServed, ProviderPlugin
from forebay.providers.secrets import Secrets
from forebay.providers.simulated.provider import CAPABILITIES, NAME, SimulatedProvider


def _build(entry: Entry, context: ProviderContext) -> Provider:
    if entry.endpoint is None:
        raise ProviderNotServed(
            f"{NAME} rents from a simulated market: set endpoint to its URL. forebay demo --scenario burst "
            "shows two such markets."
        )
    return SimulatedProvider(
        entry.endpoint,
        context.cluster,
        context.make_transport(None),
        Secrets(context.secrets, context.namespace, context.redactor),
        context.clock,
        key=entry.credentials_ref,
        regions=entry.regions,
    )


def _build_groups(spec: NodeProvisionerSpec, context: ProviderContext) -> GroupsProvider:
    groups = spec.provider
    if spec.instance_template is not None:
        raise ProviderNotServed(f"{NAME} creates no instance groups: remove instanceTemplate.")
    if groups.endpoint is None:
        raise ProviderNotServed(f"{NAME} has the instance groups of a simulated market: set endpoint to its URL.")
    if groups.project is not None or groups.location is not None:
        raise ProviderNotServed(f"{NAME} has neither projects nor locations: remove provider.project and .location.")
    if groups.run_duration is not None:
        raise ProviderNotServed(f"{NAME} has no members that end by themselves: remove provider.runDuration.")
    return SimulatedProvider(
        groups.endpoint,
        context.cluster,
        context.make_transport(None),
        Secrets(context.secrets, context.namespace, context.redactor),
        context.clock,
        key=groups.credentials_ref,
    )


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build, build_groups=_build_groups)
