"""Sources by configuration: the providers of every GPUNodeClass.

Machines that environment variables name have a class too (`reconcile.environment_class`); the entries with their
endpoints, which no object in the cluster shows, come from the operator.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from forebay.api.gpu_node_class import EndpointsFrom, GPUNodeClass, GPUNodeClassSpec
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.node_provisioner import NodeProvisioner, NodeProvisionerSpec
from forebay.engine.sources.environment import Environment, EnvironmentClasses
from forebay.engine.sources.secrets import TrackedSecrets
from forebay.engine.sources.sources import SourceConfig, Sources
from forebay.engine.views import Views
from forebay.model.sources import SourceKey
from forebay.providers.base import Provider
from forebay.providers.plugin import ProviderContext, ProviderNotServed
from forebay.providers.registry import build_groups, build_provider, launch_problem
from forebay.sizing.claims import groups_claimed_twice, own_groups

#: Creation time of a class that is only in a file.
_NOT_CREATED: Final = datetime.max.replace(tzinfo=UTC)


class ConfiguredSources:
    """Keeps the sources as classes and NodeProvisioners configure them. Costs nothing while none of these changes."""

    def __init__(self, sources: Sources, environment: Environment, views: Views, context: ProviderContext) -> None:
        self._sources = sources
        self._environment = environment
        self._views = views
        self._context = context
        self._last: tuple[object, ...] | None = None

    def __call__(self) -> None:
        objects, provisioners = self._environment.objects(), tuple(self._views.provisioners.values())
        if self._last is not None and self._last[0] is objects and self._last[1] == provisioners:
            return
        self._last = objects, provisioners
        of_classes = source_configs(objects.classes, self._context, self._environment.own_classes(objects))
        self._sources.configure((*of_classes, *group_configs(provisioners, self._context)))


def source_configs(
    classes: Iterable[GPUNodeClass], context: ProviderContext, environment: EnvironmentClasses | None = None
) -> Iterator[SourceConfig]:
    """Configuration of every source.

    A machine that is named twice belongs to the environment, else to the oldest class that is not being deleted: a new
    class never takes over a machine that may be running. Disabled providers, and those of a class that is being
    deleted, are included, because their running machines still have to be managed. Without `environment`, machines
    whose endpoints are in environment variables of the operator have offers, but cannot be called.
    """
    taken: set[str] = set()
    for node_class in _in_order(classes, environment):
        name = node_class.metadata.name
        of_environment = environment.entries.get(name) if environment is not None else None
        for entry in node_class.spec.providers if of_environment is None else of_environment:
            own = tuple(machine for machine in entry.machines if machine.name not in taken)
            taken.update(machine.name for machine in own)
            if entry.machines and not own:
                continue
            used = msgspec.structs.replace(entry, machines=own)
            misplaced = environment is not None and entry.endpoints_from is EndpointsFrom.ENVIRONMENT
            build = _refuse if misplaced else build_provider
            yield _source_config(name, used, node_class.spec, context, build)


def group_configs(provisioners: Iterable[NodeProvisioner], context: ProviderContext) -> Iterator[SourceConfig]:
    """Configuration of the instance groups of every NodeProvisioner, each group with one of them."""
    provisioners = tuple(provisioners)
    claimed = groups_claimed_twice(provisioners)
    for each in provisioners:
        groups = own_groups(each, claimed)
        if not groups:
            # All are another's; or it rents from a GPUNodeClass, whose source serves it.
            continue
        spec = msgspec.structs.replace(each.spec, existing_instance_group_names=groups)
        versions: dict[str, str] = {}
        yield SourceConfig(
            key=SourceKey.of_provisioner(each.metadata.name, spec.provider.name),
            digest=hashlib.sha256(msgspec.json.encode((spec.provider, spec.instance_template, groups))).hexdigest(),
            priority=0,
            enabled=True,
            build=_group_builder(spec, context, versions),
            secret_versions=versions.copy,
        )


def _group_builder(
    spec: NodeProvisionerSpec, context: ProviderContext, versions: dict[str, str]
) -> Callable[[], Provider]:
    tracked = msgspec.structs.replace(context, secrets=TrackedSecrets(context.secrets, versions))
    return lambda: build_groups(spec, tracked)


def claimed_twice(
    classes: Iterable[GPUNodeClass], environment: EnvironmentClasses | None = None
) -> dict[str, dict[str, str]]:
    """Machines that belong to another owner, by the class that names them too: name of the machine -> its owner."""
    owners: dict[str, str] = {}
    found: dict[str, dict[str, str]] = {}
    for each in _in_order(classes, environment):
        name = each.metadata.name
        of_environment = environment is not None and name in environment.entries
        owner = "the operator's environment variables" if of_environment else f"GPUNodeClass {name}"
        for machine in (machine for entry in each.spec.providers for machine in entry.machines):
            if machine.name in owners:
                found.setdefault(name, {})[machine.name] = owners[machine.name]
            else:
                owners[machine.name] = owner
    return found


def _in_order(classes: Iterable[GPUNodeClass], environment: EnvironmentClasses | None) -> list[GPUNodeClass]:
    """The classes of the environment first, then by age."""
    own = environment.entries if environment is not None else {}
    return sorted(classes, key=lambda each: (each.metadata.name not in own, _age(each)))


def _age(node_class: GPUNodeClass) -> tuple[bool, datetime, str]:
    """Sorts the oldest class first, and classes that are being deleted last: their machines may have moved on."""
    meta = node_class.metadata
    return meta.deletion_timestamp is not None, meta.creation_timestamp or _NOT_CREATED, meta.name


def _refuse(entry: Entry, _spec: GPUNodeClassSpec, _context: ProviderContext) -> Provider:
    raise ProviderNotServed(
        f"{entry.name} of this class has endpointsFrom: Environment, as only the class has that Forebay itself keeps. "
        "List the machines with their endpoints, or set credentialsRef; or delete this class."
    )


def _source_config(
    node_class: str,
    entry: Entry,
    spec: GPUNodeClassSpec,
    context: ProviderContext,
    build: Callable[[Entry, GPUNodeClassSpec, ProviderContext], Provider],
) -> SourceConfig:
    # A new priority, or disabling the provider, must not restart it.
    identity = msgspec.structs.replace(entry, priority=0, enabled=True)
    versions: dict[str, str] = {}
    return SourceConfig(
        key=SourceKey(node_class, entry.name),
        digest=hashlib.sha256(msgspec.json.encode(identity)).hexdigest(),
        priority=entry.priority,
        enabled=entry.enabled,
        build=lambda: build(
            entry, spec, msgspec.structs.replace(context, secrets=TrackedSecrets(context.secrets, versions))
        ),
        secret_versions=versions.copy,
        join_digest=_join_digest(spec),
        problem=launch_problem(entry, spec),
    )


def _join_digest(spec: GPUNodeClassSpec) -> str:
    """Version of how machines of the class join. Another one does not restart the provider."""
    how = (spec.talos_config, spec.k3s_config, spec.kubeadm_config, spec.cloud_init, spec.tailscale_config)
    return hashlib.sha256(msgspec.json.encode(how)).hexdigest()
