"""The provider `webhook` as it is registered: machines that the user owns, from a class or from the environment."""

from collections.abc import Mapping
from typing import Final

import msgspec

from forebay.api.gpu_node_class import EndpointsFrom
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.providers.base import Provider
from forebay.providers.plugin import EnvironmentEntry, ProviderContext, ProviderPlugin
from forebay.providers.secrets import Secrets
from forebay.providers.webhook.groups import read_groups, shown
from forebay.providers.webhook.offers import NAME
from forebay.providers.webhook.provider import CAPABILITIES, WebhookProvider


def _build(entry: Entry, context: ProviderContext) -> Provider:
    return WebhookProvider(
        entry.machines,
        make_transport=context.make_transport,
        secrets=Secrets(context.secrets, context.namespace, context.redactor),
        clock=context.clock,
    )


def _from_environment(environment: Mapping[str, str]) -> EnvironmentEntry:
    groups = read_groups(environment)
    if not groups.machines:
        return EnvironmentEntry(problems=groups.problems)
    entry = Entry(name=NAME, machines=groups.machines)
    public = msgspec.structs.replace(
        entry, machines=tuple(map(shown, groups.machines)), endpoints_from=EndpointsFrom.ENVIRONMENT
    )
    return EnvironmentEntry(
        entry=entry, shown=public, gpu_count_variables=groups.gpu_count_variables, problems=groups.problems
    )


PLUGIN: Final = ProviderPlugin(capabilities=CAPABILITIES, build=_build, from_environment=_from_environment)
