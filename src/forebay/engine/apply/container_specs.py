"""Where a launch gets the container of a GPUInstance from: its record, with secrets that exist in memory only.

`ContainerSpecs` is the seam for whoever runs pods in remote containers. It is asked once for each launch call, before
the attempt is recorded (`container_preparation`). After a crash it is asked again, by another process.
"""

from collections.abc import Mapping
from typing import Protocol

from forebay.api.gpu_instance import GPUInstance
from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.secret_text import SecretText


class ContainerNotReady(Exception):
    """What the container needs is missing or could not be read. Nothing was launched; asked again after a while.

    The text is for people, and holds no secret. `passing`: nobody need mend anything, so it is not asked much later.
    """

    def __init__(self, text: str, *, passing: bool = False) -> None:
        super().__init__(text)
        self.passing = passing


class PodLost(Exception):
    """The pod is gone, has ended, or is bound to another node: there is nothing to launch for it."""


class ContainerSpecs(Protocol):
    async def resolve(self, record: GPUInstance) -> ContainerSpec:
        """The container of the record, with the secret values of its environment as they are now.

        Whatever must be so before the container may run is made so here, such as the binding of its pod to the virtual
        node. Safe to repeat. Raises `ContainerNotReady`, as which errors of the API server count too, or `PodLost`.
        """
        ...


class RecordedContainers:
    """Containers as their records describe them, without secrets."""

    async def resolve(self, record: GPUInstance) -> ContainerSpec:
        return container_spec(record)


def container_spec(record: GPUInstance, secret_env: Mapping[str, SecretText] | None = None) -> ContainerSpec:
    """The recorded container with these secret values. Raises `ContainerNotReady` where the record has none."""
    container = record.spec.container
    if container is None:
        raise ContainerNotReady(f"GPUInstance {record.metadata.name} does not say which container to run.")
    return ContainerSpec(
        image=container.image,
        command=container.command,
        args=container.args,
        env=container.env,
        secret_env=secret_env or {},
        ports=tuple(ContainerPort(port=each.port, protocol=each.protocol) for each in container.ports),
        disk_gib=container.disk_gib,
        registry_auth=container.registry_auth,
        template=container.template,
    )
