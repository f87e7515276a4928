"""What environment variables of the operator configure, as a GPUNodeClass and a GPUNodePool."""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta

import msgspec
from msgspec.structs import replace

from forebay.api.gpu_node_class import ProviderEntry
from forebay.engine.views import Views
from forebay.providers.registry import EnvironmentConfig
from forebay.reconcile.environment_class import EnvironmentObjects, with_environment


class EnvironmentClasses(msgspec.Struct, frozen=True, kw_only=True):
    """The classes of the environment, by name: the entries of each with what stays in this process."""

    entries: Mapping[str, tuple[ProviderEntry, ...]] = {}


class Environment:
    """Classes and pools as the operator sees them: those of the cluster, and those of its environment variables."""

    def __init__(self, config: EnvironmentConfig, views: Views, namespace: str, idle_delay: timedelta) -> None:
        self._config = config
        self._views = views
        self._namespace = namespace
        self._idle_delay = idle_delay
        self._last: tuple[tuple[object, ...], EnvironmentObjects] | None = None

    def objects(self) -> EnvironmentObjects:
        """The same object as before, where no class and no pool has changed."""
        classes, pools = tuple(self._views.classes.values()), tuple(self._views.pools.values())
        if self._last is None or self._last[0] != (classes, pools):
            found = with_environment(self._config.shown, self._namespace, self._idle_delay, classes, pools)
            self._last = (classes, pools), found
        return self._last[1]

    def own_classes(self, objects: EnvironmentObjects) -> EnvironmentClasses:
        return EnvironmentClasses(
            entries={
                name: tuple(self._entries(machines, first=position == 0))
                for position, (name, machines) in enumerate(objects.machines.items())
            }
        )

    def _entries(self, machines: Collection[str], *, first: bool) -> Iterator[ProviderEntry]:
        for entry in self._config.entries:
            own = tuple(machine for machine in entry.machines if machine.name in machines)
            if own or (first and not entry.machines):
                yield replace(entry, machines=own)
