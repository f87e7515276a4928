"""What environment variables of the operator configure, as a GPUNodeClass and a GPUNodePool."""

from datetime import timedelta

import msgspec

from forebay.api.gpu_node_class import ProviderEntry
from forebay.engine.views import Views
from forebay.providers.registry import EnvironmentConfig
from forebay.reconcile.environment_class import EnvironmentObjects, with_environment


class EnvironmentClass(msgspec.Struct, frozen=True, kw_only=True):
    """The class of the environment: its name, and the entries with what stays in this process."""

    #: None where no environment variable configures anything.
    name: str | None
    entries: tuple[ProviderEntry, ...]


class Environment:
    """Classes and pools as the operator sees them: those of the cluster, and those of its environment variables."""

    def __init__(self, config: EnvironmentConfig, views: Views, namespace: str, idle_delay: timedelta) -> None:
        self._config = config
        self._views = views
        self._namespace = namespace
        self._idle_delay = idle_delay

    def objects(self) -> EnvironmentObjects:
        return with_environment(
            self._config.shown,
            self._namespace,
            self._idle_delay,
            self._views.classes.values(),
            self._views.pools.values(),
        )

    def node_class(self, objects: EnvironmentObjects) -> EnvironmentClass:
        return EnvironmentClass(name=objects.node_class, entries=self._config.entries)
