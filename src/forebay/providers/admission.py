"""CEL rules that the API server checks about the providers that Forebay knows by name.

They follow from the capabilities of those providers. Of a provider that somebody else's package adds, the API server
knows nothing: `entry_problem` and `joining_problem` say the same about any provider, in a condition of the class.
"""

from typing import Final

from forebay.api.gpu_node_class import JOINS_SET, EndpointsFrom, GPUNodeClassSpec, ProviderEntry
from forebay.api.node_provisioner import NodeProvisionerSpec
from forebay.api.rules import RefusalCause, ValidationRule
from forebay.api.schema import MoreRules
from forebay.bootstrap.class_checks import join_problem
from forebay.model.sources import Capabilities, Delivery, Join
from forebay.providers.own import OWN

_TALOS_TOO: Final = frozenset(Join)
_SCRIPTED: Final = frozenset(Join) - {Join.TALOS}
_CLOUD: Final = Capabilities(deliveries=(Delivery.NODE,), joins=_SCRIPTED, needs_join=True, needs_credentials=True)
#: Talos has a platform there, and Forebay can use the identity of its own ServiceAccount.
_TALOS_CLOUD: Final = Capabilities(deliveries=(Delivery.NODE,), joins=_TALOS_TOO, needs_join=True)
_CONTAINERS: Final = Capabilities(deliveries=(Delivery.CONTAINER,), needs_credentials=True)

#: Capabilities of providers that this release does not serve, as their own documentation states them: a class that
#: could never work is refused today, and not by the release that serves it.
_NOT_SERVED: Final[dict[str, Capabilities]] = {
    "aws": _TALOS_CLOUD,
    "nebius": _CLOUD,
    "vast": _CONTAINERS,
}
_SERVED: Final[dict[str, Capabilities]] = {name: plugin.capabilities for name, plugin in OWN.items()}
#: Capabilities of every provider that Forebay knows by name.
KNOWN: Final[dict[str, Capabilities]] = dict(sorted((_NOT_SERVED | _SERVED).items()))
#: Providers whose instance groups are found by their zone or region.
_GROUPS_BY_LOCATION: Final = ("gcp",)

_ONE_OF: Final = "talosConfig, k3sConfig, kubeadmConfig or cloudInit"


def provider_rules() -> MoreRules:
    """The rules, by the type that they belong to."""
    return {
        ProviderEntry: (_credentials(), _machines()),
        GPUNodeClassSpec: (
            *(_must_join(name) for name, each in KNOWN.items() if each.needs_join),
            *(_cannot_boot_talos(name, each) for name, each in KNOWN.items() if _refuses_talos(each)),
            *map(_unused, Join),
            _must_be_script(*(name for name, each in KNOWN.items() if each.takes_script)),
        ),
        NodeProvisionerSpec: (_groups(), _rented(), *map(_location, _GROUPS_BY_LOCATION)),
    }


def entry_problem(entry: ProviderEntry, capabilities: Capabilities) -> str | None:
    """What must be corrected in the entry before a provider with these capabilities can be called."""
    name = entry.name
    of_environment = entry.endpoints_from is EndpointsFrom.ENVIRONMENT
    if capabilities.needs_credentials and entry.credentials_ref is None and not of_environment:
        return f"{name} needs an API key: set credentialsRef to the Secret and the key that hold it."
    if capabilities.lists_machines and not entry.machines:
        return f"{name} uses machines that you own: list at least one under machines."
    if entry.machines and not capabilities.lists_machines:
        return f"{name} has machines of its own: remove those under machines."
    return None


def joining_problem(entry: ProviderEntry, spec: GPUNodeClassSpec, capabilities: Capabilities) -> str | None:
    """What must be corrected in the class before machines of a provider with these capabilities can be launched. Those
    that run already can be listed and terminated without it.
    """
    name = entry.name
    chosen = next((join for join in Join if _is_set(spec, join)), None)
    if capabilities.needs_join and chosen is None:
        return f"{name} rents machines that must be told how to join the cluster: set {_ONE_OF}."
    if chosen is Join.TALOS and _refuses_talos(capabilities):
        return f"{name} cannot boot Talos: move it to another GPUNodeClass."
    if capabilities.needs_join and chosen not in capabilities.joins:
        possible = " or ".join(sorted(capabilities.joins))
        return f"Machines of {name} cannot join by {chosen}, only by {possible}: move it to another GPUNodeClass."
    return join_problem(spec, capabilities) if capabilities.joins else None


def _is_set(spec: GPUNodeClassSpec, join: Join) -> bool:
    match join:
        case Join.TALOS:
            return spec.talos_config is not None
        case Join.K3S:
            return spec.k3s_config is not None
        case Join.KUBEADM:
            return spec.kubeadm_config is not None
        case Join.CLOUD_INIT:
            return spec.cloud_init is not None


def _names(*names: str) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _enabled(*names: str) -> str:
    return f"self.providers.exists(p, p.enabled && p.name in {_names(*names)})"


def _credentials() -> ValidationRule:
    needing = _names(*(name for name, each in KNOWN.items() if each.needs_credentials))
    return ValidationRule(
        f"!(self.name in {needing}) || has(self.credentialsRef) || self.endpointsFrom == 'Environment'",
        "this provider needs an API key: set credentialsRef to the Secret and the key that hold it",
        reason=RefusalCause.REQUIRED,
        field_path=".credentialsRef",
    )


def _machines() -> ValidationRule:
    listing = [name for name, each in KNOWN.items() if each.lists_machines]
    others = [name for name, each in KNOWN.items() if not each.lists_machines]
    has_machines = "(has(self.machines) && size(self.machines) > 0)"
    return ValidationRule(
        f"self.name in {_names(*listing)} ? {has_machines} : !(self.name in {_names(*others)} && {has_machines})",
        f"machines belong to the provider {' or '.join(listing)}: list at least one there, and none under other "
        "providers",
        field_path=".machines",
    )


def _must_join(name: str) -> ValidationRule:
    return ValidationRule(
        f"{JOINS_SET} >= 1 || !{_enabled(name)}",
        f"{name} rents machines that must be told how to join the cluster: set {_ONE_OF}",
        reason=RefusalCause.REQUIRED,
    )


def _refuses_talos(capabilities: Capabilities) -> bool:
    """Whether Talos beside the provider is a mistake. What an owned machine boots was decided when it was installed."""
    return Join.TALOS not in capabilities.joins and not capabilities.lists_machines


def _cannot_boot_talos(name: str, capabilities: Capabilities) -> ValidationRule:
    instead = (
        "it runs containers, so move it to a GPUNodeClass that needs no such config"
        if not all(each.has_node for each in capabilities.deliveries)
        else "use k3sConfig, kubeadmConfig or cloudInit, or move it to another GPUNodeClass"
    )
    return ValidationRule(
        f"!has(self.talosConfig) || !{_enabled(name)}",
        f"{name} cannot boot Talos: {instead}",
        reason=RefusalCause.FORBIDDEN,
        field_path=".talosConfig",
    )


def _unused(join: Join) -> ValidationRule:
    users = [name for name, each in KNOWN.items() if join in each.joins]
    # A provider that cannot boot Talos is refused with a message of its own; one is enough. And a provider that
    # Forebay does not know may be able to.
    useless = [
        name
        for name, each in KNOWN.items()
        if join not in each.joins and not (join is Join.TALOS and _refuses_talos(each))
    ]
    return ValidationRule(
        f"!has(self.{join}) || !self.providers.all(p, !p.enabled || p.name in {_names(*useless)})",
        f"no enabled provider can use {join}: it is for {', '.join(users)}; remove it or add such a provider",
        reason=RefusalCause.FORBIDDEN,
        field_path=f".{join}",
    )


def _must_be_script(*names: str) -> ValidationRule:
    return ValidationRule(
        f"!has(self.cloudInit) || self.cloudInit.template.startsWith('#!') || !{_enabled(*names)}",
        f"machines of {' and '.join(names)} run a script at boot and do not read cloud-init's own format: begin the "
        "template with #!/bin/sh, or move the provider to another GPUNodeClass",
        field_path=".cloudInit",
    )


def _groups() -> ValidationRule:
    having = [name for name, each in KNOWN.items() if each.has_groups]
    others = [name for name, each in KNOWN.items() if not each.has_groups]
    return ValidationRule(
        f"has(self.nodeClassRef) || !(self.provider.name in {_names(*others)})",
        f"this provider has no instance groups: name one that has, such as {' or '.join(having)}, or set nodeClassRef "
        "in place of existingInstanceGroupNames",
        field_path=".provider.name",
    )


def _rented() -> ValidationRule:
    others = [name for name, each in KNOWN.items() if Delivery.NODE not in each.deliveries]
    return ValidationRule(
        f"!has(self.nodeClassRef) || !(self.provider.name in {_names(*others)})",
        "this provider rents no machines that could be kept as a group: name one that does",
        field_path=".provider.name",
    )


def _location(name: str) -> ValidationRule:
    return ValidationRule(
        f"has(self.nodeClassRef) || self.provider.name != '{name}' || has(self.provider.location)",
        f"{name} needs the zone or region of the instance groups, such as us-central1-a",
        reason=RefusalCause.REQUIRED,
        field_path=".provider.location",
    )
