"""What a migration is told about the cluster and the release that it writes for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from forebay.api.names import OPERATOR_NAMESPACE
from forebay.model.sources import Capabilities

#: Stands for the address that nobody has told. It resolves nowhere, so that no machine joins a stranger's cluster.
UNKNOWN_ENDPOINT = "control-plane.invalid:6443"


class MachineGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Machines of environment variables as a GPUNodeClass has them, and a sentence for each that is not complete."""

    machines: list[dict[str, Any]]
    problems: tuple[str, ...] = ()


def _no_groups(_variables: Mapping[str, str]) -> MachineGroups:
    return MachineGroups(machines=[])


def _no_rules(_manifest: Mapping[str, Any]) -> Sequence[str]:
    return ()


class MigrationTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Where the manifests will be applied."""

    #: By provider name.
    capabilities: Mapping[str, Capabilities]
    namespace: str = OPERATOR_NAMESPACE
    #: Host and port of the API server as rented machines reach it.
    control_plane: str | None = None
    #: Provider of instance groups, and their zone or region.
    group_provider: str | None = None
    group_location: str | None = None
    #: Reads machines of environment variables.
    machine_groups: Callable[[Mapping[str, str]], MachineGroups] = _no_groups
    #: What the validation rules of its kind say against a manifest whose fields have the right types.
    broken_rules: Callable[[Mapping[str, Any]], Sequence[str]] = _no_rules
