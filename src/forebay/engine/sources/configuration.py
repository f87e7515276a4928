"""Which sources there should be: the providers of every class, and the machines that the environment names."""

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

#: The class of machines that the environment names.
ENVIRONMENT = ""
#: Of a class that is only in a file.
_NOT_YET: Final = datetime.max.replace(tzinfo=UTC)


def source_configs(
    classes: Iterable[GPUNodeClass], machines: tuple[Machine, ...], context: ProviderContext
) -> Iterator[SourceConfig]:
    """A machine that two name is the first one's: the environment's, then that of the oldest class. So a new class
    never takes one away that is perhaps running.

    A provider that is not enabled still looks after what it runs. One of a class that is being deleted does too.
    """
    taken: set[str] = set()
    entries = [(ENVIRONMENT, environment_entry(machines))] if machines else []
    entries += [(each.metadata.name, entry) for each in sorted(classes, key=_age) for entry in each.spec.providers]
    for node_class, entry in entries:
        own = tuple(machine for machine in entry.machines if machine.name not in taken)
        taken.update(machine.name for machine in own)
        if entry.machines and not own:
            continue
        yield _configured(node_class, msgspec.structs.replace(entry, machines=own), context)


def claimed_twice(classes: Iterable[GPUNodeClass], machines: tuple[Machine, ...]) -> dict[str, dict[str, str]]:
    """By class, the machines that it names in vain, and who has them."""
    owner = dict.fromkeys((machine.name for machine in machines), "the environment of the operator")
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
    return meta.creation_timestamp or _NOT_YET, meta.name


def _configured(node_class: str, entry: Entry, context: ProviderContext) -> SourceConfig:
    # What only changes how it is ranked must not restart it.
    identity = msgspec.structs.replace(entry, priority=0, enabled=True)
    return SourceConfig(
        key=SourceKey(node_class, entry.name),
        digest=hashlib.sha256(msgspec.json.encode(identity)).hexdigest(),
        priority=entry.priority,
        enabled=entry.enabled,
        build=lambda: build_provider(entry, context),
    )
