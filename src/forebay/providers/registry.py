"""The providers there are, by name: those of this release, and those that other packages add.

A package adds a provider through an entry point of the group `forebay.providers`: its name is the provider's, its value
a `ProviderPlugin`. docs/providers/README.md shows one.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, get_args

import msgspec
import structlog

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.providers import ProviderName
from forebay.model.secret_text import SecretText
from forebay.model.sources import Delivery
from forebay.providers.admission import KNOWN, entry_problem, joining_problem
from forebay.providers.base import Provider
from forebay.providers.instance_groups import InstanceGroups
from forebay.providers.own import OWN
from forebay.providers.plugin import ProviderContext, ProviderNotServed, ProviderPlugin

log = structlog.get_logger(__name__)

ENTRY_POINTS: Final = "forebay.providers"


class EnvironmentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's environment variables configure, of all providers."""

    #: With what is secret in them: they do not leave the process.
    entries: tuple[Entry, ...] = ()
    #: The same as everybody may see them.
    shown: tuple[Entry, ...] = ()
    #: Variables that hold secrets which entries refer to.
    secrets: Mapping[str, SecretText] = {}
    #: The variable that states the number of GPUs of each machine, by its name.
    gpu_count_variables: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()

    @property
    def accounts(self) -> frozenset[str]:
        """Providers of which the variables hold the credentials of an account."""
        return frozenset(each.name for each in self.entries if each.credentials_ref is not None)


def build_provider(entry: Entry, _spec: GPUNodeClassSpec, context: ProviderContext) -> Provider:
    """The provider of an entry of a class. Raises `ProviderNotServed`."""
    plugin = providers().get(entry.name)
    if plugin is None:
        raise ProviderNotServed(_not_served(entry.name))
    if (problem := entry_problem(entry, plugin.capabilities)) is not None:
        raise ProviderNotServed(problem)
    return plugin.build(entry, context)


def launch_problem(entry: Entry, spec: GPUNodeClassSpec) -> str | None:
    """Why machines of the entry could not join as the class says; None: they could. The provider is built all the same,
    for what was rented before.
    """
    plugin = providers().get(entry.name)
    return None if plugin is None else joining_problem(entry, spec, plugin.capabilities)


def build_groups(groups: NodeProvisionerSpec, context: ProviderContext) -> Provider:
    """The instance groups of a NodeProvisioner as a source of members. Raises `ProviderNotServed`."""
    name = groups.provider.name
    plugin = providers().get(name)
    if plugin is None:
        raise ProviderNotServed(_not_served(name))
    if plugin.build_groups is None:
        having = ", ".join(sorted(each for each, found in providers().items() if found.build_groups is not None))
        raise ProviderNotServed(
            f"Provider {name} has no instance groups; these have: {having}. Correct provider.name; or set nodeClassRef "
            "and provider.instanceType in place of existingInstanceGroupNames, and Forebay keeps machines as a group."
        )
    return InstanceGroups(plugin.build_groups(groups, context), groups.existing_instance_group_names)


def deliveries() -> Mapping[str, Delivery]:
    """What each provider delivers, by its name, including those that this release knows but does not serve."""
    served = {name: plugin.capabilities.deliveries[0] for name, plugin in providers().items()}
    return {name: each.deliveries[0] for name, each in KNOWN.items()} | served


def read_environment(environment: Mapping[str, str]) -> EnvironmentConfig:
    """The configuration in environment variables, as far as providers can read it."""
    read = [each.from_environment(environment) for each in providers().values() if each.from_environment is not None]
    return EnvironmentConfig(
        entries=tuple(each.entry for each in read if each.entry is not None),
        shown=tuple(each.shown for each in read if each.shown is not None),
        secrets={name: value for each in read for name, value in each.secrets.items()},
        gpu_count_variables={name: variable for each in read for name, variable in each.gpu_count_variables.items()},
        problems=tuple(problem for each in read for problem in each.problems),
    )


@cache
def providers() -> Mapping[str, ProviderPlugin]:
    """All providers. Entry points are loaded once, when they are first needed."""
    return dict(OWN) | dict(_plugins(entry_points(group=ENTRY_POINTS)))


def _plugins(found: Iterable[EntryPoint]) -> Iterable[tuple[str, ProviderPlugin]]:
    """Plugins of other packages. One that cannot be used is logged, and costs only itself."""
    taken = set(OWN)
    for each in sorted(found, key=lambda point: (point.name, point.value)):
        try:
            plugin = _load(each, taken)
        except Exception:  # code of somebody else, which may raise anything
            package = each.dist.name if each.dist is not None else "unknown"
            log.exception("provider not loaded", provider=each.name, package=package)
            continue
        taken.add(each.name)
        yield each.name, plugin


def _load(point: EntryPoint, taken: set[str]) -> ProviderPlugin:
    if not re.fullmatch(_NAME_PATTERN, point.name):
        raise ValueError(f"its name is not a provider's: it must match {_NAME_PATTERN}")
    if point.name in taken:
        raise ValueError("there is a provider of this name already")
    plugin = point.load()
    if not isinstance(plugin, ProviderPlugin):
        raise TypeError(f"{point.value} is not a {ProviderPlugin.__qualname__} of {ProviderPlugin.__module__}")
    return plugin


def _not_served(name: str) -> str:
    available = ", ".join(sorted(providers()))
    if name in KNOWN:
        return (
            f"This release of Forebay does not serve the provider {name}; there are: {available}. "
            f"Upgrade Forebay, or set enabled: false on {name}."
        )
    return (
        f"There is no provider {name}; there are: {available}. Correct the name, or install the package that provides "
        f"{name} beside Forebay."
    )


_NAME_PATTERN: Final[str] = get_args(ProviderName)[1].pattern
