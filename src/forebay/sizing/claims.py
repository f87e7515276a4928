"""Which NodeProvisioner sizes which instance group: a group that two of them name belongs to the older one."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from forebay.api.node_provisioner import NodeProvisioner

_NOT_CREATED: Final = datetime.max.replace(tzinfo=UTC)


def groups_claimed_twice(provisioners: Iterable[NodeProvisioner]) -> dict[str, dict[str, str]]:
    """Groups that belong to another NodeProvisioner, by the one that names them too: group -> its owner."""
    owners: dict[tuple[str | None, ...], str] = {}
    found: dict[str, dict[str, str]] = {}
    for each in sorted(provisioners, key=_age):
        place = each.spec.provider
        for group in each.spec.existing_instance_group_names:
            key = (place.name, place.project, place.location, place.endpoint, group)
            owner = owners.setdefault(key, each.metadata.name)
            if owner != each.metadata.name:
                found.setdefault(each.metadata.name, {})[group] = owner
    return found


def own_groups(provisioner: NodeProvisioner, claimed: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """The groups that this NodeProvisioner sizes, by `groups_claimed_twice`."""
    others = claimed.get(provisioner.metadata.name, {})
    return tuple(each for each in provisioner.spec.existing_instance_group_names if each not in others)


def _age(provisioner: NodeProvisioner) -> tuple[datetime, str]:
    return provisioner.metadata.creation_timestamp or _NOT_CREATED, provisioner.metadata.name
