"""Names of the machines that a NodeProvisioner adds: the same for every replica that sees the same cluster."""

import hashlib
import re
from collections.abc import Collection
from typing import Final

from forebay.api.node_provisioner import NodeProvisioner

#: A DNS label of 63 characters, less a hyphen and the digest.
_LONGEST_PREFIX: Final = 50
#: No group has more machines than this, nor so many of them at one time that names are found further on.
_MOST_SLOTS: Final = 4096


def new_member_name(provisioner: NodeProvisioner, slot: int, taken: Collection[str]) -> str:
    """Name of the next member, from this slot on: only one of two replicas creates it."""
    while (name := _name(provisioner, slot)) in taken:
        slot += 1
    return name


def is_member_name(provisioner: NodeProvisioner, name: str) -> bool:
    """Whether the NodeProvisioner gave this name: nobody else knows its UID and so the digest."""
    return name.startswith(f"{_prefix(provisioner)}-") and any(
        name == _name(provisioner, slot) for slot in range(_MOST_SLOTS)
    )


def _name(provisioner: NodeProvisioner, slot: int) -> str:
    digest = hashlib.sha256(f"{provisioner.uid}\n{slot}".encode()).hexdigest()[:10]
    return f"{_prefix(provisioner)}-{digest}"


def _prefix(provisioner: NodeProvisioner) -> str:
    prefix = re.sub(r"[^a-z0-9-]", "-", provisioner.metadata.name)[:_LONGEST_PREFIX].strip("-")
    # Clouds want names to begin with a letter.
    return prefix if prefix[:1].isalpha() else f"n{prefix}"
