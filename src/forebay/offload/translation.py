"""The container that a pod becomes, or why it cannot become one: said before any money is spent."""

import math
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from forebay.model.containers import ContainerPort, ContainerSpec
from forebay.model.quantities import InvalidQuantity, Quantity
from forebay.offload.environment import (
    HeldValues,
    Holder,
    environment,
    expanded,
    holders,
    impossible_fields,
    references,
    secret_names,
)
from forebay.offload.exit_code import wrapped
from forebay.offload.field_treatment import CONTAINER, POD, SECURITY, refusals
from forebay.offload.pod_manifest import ManifestContainer, ManifestPort, ManifestSpec, PodManifest

#: Mounts that every remote container has by itself.
_ALWAYS_THERE: Final = frozenset({"/dev/shm", "/tmp"})  # noqa: S108 (paths in a container)
#: The token that admission mounts into every pod.
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 (a prefix of names)
_CLUSTER_NAMES: Final = (".svc.cluster.local", ".svc:", ".svc/")
_GIB: Final = 2**30


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """The container, or all reasons why there is none."""

    container: ContainerSpec | None = None
    problems: tuple[str, ...] = ()
    #: Whether a shell reports the exit code. Without: the provider's word is all there is.
    reports_exit_code: bool = False


def needed_holders(pod: PodManifest) -> frozenset[Holder]:
    """Secrets and ConfigMaps that `translate` must be given. Empty for a pod that cannot be carried anyway."""
    spec = _read(pod)
    if spec is None or len(spec.containers) != 1:
        return frozenset()
    return holders(spec.containers[0])


def pull_secrets(pod: PodManifest) -> tuple[str, ...]:
    """Names of the Secrets with which the image is pulled."""
    spec = _read(pod)
    return () if spec is None else tuple(each.name for each in spec.image_pull_secrets if each.name)


def obstacles(pod: PodManifest) -> tuple[str, ...]:
    """Why the pod cannot run remotely, by its spec alone: nothing needs to be read for it."""
    spec = _read(pod)
    if spec is None:
        return ("The spec of the pod cannot be read.",)
    return tuple(dict.fromkeys(_obstacles(pod.spec, spec)))


def translate(pod: PodManifest, held: HeldValues, nonce: str, *, registry_auth: str | None = None) -> Translation:
    """The container of the pod. `held` are the contents of `needed_holders`; the nonce is that of the exit code."""
    problems = obstacles(pod)
    spec = _read(pod)
    if problems or spec is None:
        return Translation(problems=problems)
    container = spec.containers[0]
    env = environment(container, pod.metadata, spec, held)
    problems = (*env.problems, *_secret_arguments(container, env.secret.keys()), *_cluster_names(container, env.plain))
    if problems:
        return Translation(problems=tuple(dict.fromkeys(problems)))
    command = tuple(expanded(each, env.plain) for each in container.command)
    args = tuple(expanded(each, env.plain) for each in container.args)
    if command:
        command, args = (
            wrapped(
                (*command, *args),
                nonce,
                restart_policy=spec.restart_policy,
                working_dir=container.working_dir,
                directories=_scratch_directories(container),
            ),
            (),
        )
    return Translation(
        container=ContainerSpec(
            image=container.image,
            command=command,
            args=args,
            env=env.plain,
            secret_env=env.secret,
            ports=tuple(ContainerPort(port=each.container_port, protocol=each.protocol) for each in container.ports),
            disk_gib=_disk(container, spec),
            registry_auth=registry_auth,
        ),
        reports_exit_code=bool(container.command),
    )


def _read(pod: PodManifest) -> ManifestSpec | None:
    try:
        return msgspec.convert(pod.spec, type=ManifestSpec, strict=False)
    except msgspec.ValidationError:
        return None


def _obstacles(written: Mapping[str, Any], spec: ManifestSpec) -> Iterator[str]:
    yield from refusals(written, POD, "spec.")
    yield from _security(written.get("securityContext") or {}, "spec.securityContext.")
    if spec.restart_policy not in {"Never", "OnFailure"}:
        yield "spec.restartPolicy must be Never or OnFailure: a remote container ends with its command."
    if len(spec.containers) != 1:
        yield f"A remote pod has one container, and this one has {len(spec.containers)}."
        return
    container = spec.containers[0]
    raw = written["containers"][0]
    yield from refusals(raw, CONTAINER, "The container's ")
    yield from _security(raw.get("securityContext") or {}, "The container's securityContext.")
    yield from (_port_obstacle(each) for each in container.ports if _port_obstacle(each))
    yield from _volumes(spec, container)
    yield from impossible_fields(container)
    # What is written in the pod itself; what its ConfigMaps and Secrets hold is looked at when they are read.
    yield from _cluster_names(container, {each.name: each.value for each in container.env if each.value_from is None})
    yield from _secret_arguments(container, secret_names(container))
    if not container.image:
        yield "The container has no image."
    if not container.command:
        if container.working_dir:
            yield "The container's workingDir needs a command: only a shell around a command can change to it."
        if spec.restart_policy == "OnFailure":
            yield "restartPolicy: OnFailure needs a command: only a shell around a command can run it again."
    try:
        _disk(container, spec)
    except InvalidQuantity as error:
        yield f"The size of its disk cannot be read: {error}."


def _security(written: Mapping[str, Any], prefix: str) -> Iterator[str]:
    yield from refusals(written, SECURITY, prefix)
    if (written.get("capabilities") or {}).get("add"):
        yield f"{prefix}capabilities.add cannot be carried: A remote container has the usual capabilities. Remove it."


def _port_obstacle(port: ManifestPort) -> str:
    if port.host_port:
        return f"Port {port.container_port} has a hostPort, and there is no host. Remove it."
    if port.protocol != "TCP":
        return f"Port {port.container_port} is {port.protocol}, and a remote container is reached by TCP only."
    return ""


def _volumes(spec: ManifestSpec, container: ManifestContainer) -> Iterator[str]:
    kinds: dict[str, str] = {}
    for volume in spec.volumes:
        name = str(volume.get("name", ""))
        kind = next((key for key, value in volume.items() if key != "name" and value is not None), "emptyDir")
        kinds[name] = kind
        if kind != "emptyDir" and not (kind == "projected" and name.startswith(_TOKEN_VOLUME)):
            instead = {
                "configMap": "Use env or envFrom with configMapRef instead.",
                "secret": "Use env or envFrom with secretRef instead.",
                "downwardAPI": "Use env with fieldRef instead.",
            }.get(kind, "Read and write what it holds over the network instead.")
            yield f"Volume {name} is a {kind}, which does not exist outside the cluster. {instead}"
    places: dict[str, str] = {}
    for mount in container.volume_mounts:
        if kinds.get(mount.name) != "emptyDir":
            continue
        if (other := places.setdefault(mount.name, mount.mount_path)) != mount.mount_path:
            yield (
                f"The emptyDir {mount.name} is mounted at {other} and {mount.mount_path}, which are two directories in "
                "a remote container. Mount it once."
            )
        if mount.sub_path or mount.sub_path_expr:
            yield f"The mount at {mount.mount_path} has a subPath, which a remote container cannot have. Remove it."
        elif not container.command and mount.mount_path not in _ALWAYS_THERE:
            yield f"The emptyDir at {mount.mount_path} needs a command: only a shell around a command can make it."


def _scratch_directories(container: ManifestContainer) -> tuple[str, ...]:
    """Where emptyDirs are mounted: directories on the disk of the container. The token is mounted nowhere."""
    return tuple(
        each.mount_path
        for each in container.volume_mounts
        if not each.name.startswith(_TOKEN_VOLUME) and each.mount_path not in _ALWAYS_THERE
    )


def _secret_arguments(container: ManifestContainer, secret: AbstractSet[str]) -> Iterator[str]:
    for each in (*container.command, *container.args):
        for name in sorted(references(each) & secret):
            yield (
                f"The command refers to $({name}), which is secret, and a provider shows commands. "
                f"Have the program read {name} from its environment."
            )


def _cluster_names(container: ManifestContainer, variables: Mapping[str, str]) -> Iterator[str]:
    texts = {f"variable {name}": value for name, value in variables.items()}
    texts["the command"] = " ".join((*container.command, *container.args))
    for where, text in texts.items():
        if any(each in f"{text}/" for each in _CLUSTER_NAMES):
            shown = where[0].upper() + where[1:]
            yield f"{shown} names a Service of the cluster, out of reach for a remote container. Use a public address."


def _disk(container: ManifestContainer, spec: ManifestSpec) -> int | None:
    """GiB of disk: ephemeral-storage of the container, and at least what its emptyDirs may hold."""
    stated = [
        Quantity.parse(amounts["ephemeral-storage"]).value
        for amounts in (container.resources.requests, container.resources.limits)
        if "ephemeral-storage" in amounts
    ]
    mounted = {each.name for each in container.volume_mounts}
    limits = [
        Quantity.parse(limit).value
        for volume in spec.volumes
        if volume.get("name") in mounted
        for source in [volume.get("emptyDir") or {}]
        if source.get("medium") != "Memory" and (limit := source.get("sizeLimit"))
    ]
    most = max([*stated, sum(limits)])
    return math.ceil(most / _GIB) if most else None
