"""Sources by configuration: the providers of every GPUNodeClass, and the machines named by environment variables."""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.gpu_node_class import ProviderEntry as Entry
from forebay.api.machines import Machine
from forebay.engine.sources.sources import SourceConfig
from forebay.model.sources import SourceKey
from forebay.providers.registry import ProviderContext, build_provider, environment_entry

#: Stands for the GPUNodeClass of machines that are named by environment variables.
ENVIRONMENT = ""
#: Creation time of a class that is only in a file.
_NOT_CREATED: Final = datetime.max.replace(tzinfo=UTC)


def source_configs(
    classes: Iterable[GPUNodeClass], machines: tuple[Machine, ...], context: ProviderContext
) -> Iterator[SourceConfig]:
    """Configuration of every source.

    A machine that is named twice belongs to the environment, else to the oldest class: so a new class never takes
    over a machine that may be running. Disabled providers, and those of a class that is being deleted, are included,
    because their running machines still have to be managed.
    """
    taken: set[str] = set()
    entries = [(ENVIRONMENT, environment_entry(machines))] if machines else []
    entries += [(each.metadata.name, entry) for each in sorted(classes, key=_age) for entry in each.spec.providers]
    for node_class, entry in entries:
        own = tuple(machine for machine in entry.machines if machine.name not in taken)
        taken.update(machine.name for machine in own)
        if entry.machines and not own:
            continue
        yield _source_config(node_class, msgspec.structs.replace(entry, machines=own), context)


def claimed_twice(classes: Iterable[GPUNodeClass], machines: tuple[Machine, ...]) -> dict[str, dict[str, str]]:
    """Machines that belong to another owner, by the class that names them too: name of the machine -> its owner."""
    owner = dict.fromkeys((machine.name for machine in machines), "the operator's environment variables")
    found: dict[str, dict[str, str]] = {}
    for each in sorted(classes, key=_age):
        for machine in (machine for entry in each.spec.providers for machine in entry.machines):
            if machine.name in owner:
                found.setdefault(each.metadata.name, {})[machine.name] = owner[machine.name]
            else:
                owner[machine.name] = f"GPUNodeClass {each.metadata.name}"
    return found


def _age(node_class: GPUNodeClass) -> tuple[datetime, str]:
    meta = node_class.metadata
    return meta.creation_timestamp or _NOT_CREATED, meta.name


def _source_config(node_class: str, entry: Entry, context: ProviderContext) -> SourceConfig:
    # A new priority, or disabling the provider, must not restart it.
    identity = msgspec.structs.replace(entry, priority=0, enabled=True)
    return SourceConfig(
        key=SourceKey(node_class, entry.name),
        digest=hashlib.sha256(msgspec.json.encode(identity)).hexdigest(),
        priority=entry.priority,
        enabled=entry.enabled,
        build=lambda: build_provider(entry, context),
    )
