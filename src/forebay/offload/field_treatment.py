"""What becomes of each field of a pod that runs as a remote container.

Every field that Kubernetes publishes is in a table here; a field in none of them is refused by name, because nobody has
decided what it means for a container without a node.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec


class NotCarried(msgspec.Struct, frozen=True):
    """A field that cannot be carried where it is set: why, or what to do instead."""

    why: str


#: Read by the translation.
CARRIED: Final = "carried"
#: Concerns the choice of a node; read by whoever plans, and meaningless once the pod is bound.
SCHEDULING: Final = "scheduling"
#: Without meaning, or without effect, outside a node of the cluster.
DROPPED: Final = "dropped"

Treatment = str | NotCarried
_PROBES: Final = NotCarried("Nobody can probe a remote container. Remove the probe.")
_HOST: Final = NotCarried("There is no host to share. Remove it.")
_IDENTITY: Final = NotCarried("A remote container runs as the user of its image. Set USER in the image instead.")

POD: Final[Mapping[str, Treatment]] = {
    "activeDeadlineSeconds": NotCarried("Set activeDeadlineSeconds on the Job instead of on its pods."),
    "affinity": SCHEDULING,
    "automountServiceAccountToken": DROPPED,
    "containers": CARRIED,
    "dnsConfig": NotCarried("A remote container uses the DNS of its provider. Remove it."),
    "dnsPolicy": DROPPED,
    "enableServiceLinks": DROPPED,
    "ephemeralContainers": NotCarried("A remote pod has one container."),
    "hostAliases": NotCarried("A remote container has the hosts file of its provider. Remove it."),
    "hostIPC": _HOST,
    "hostNetwork": _HOST,
    "hostPID": _HOST,
    "hostUsers": DROPPED,
    "hostname": DROPPED,
    "hostnameOverride": DROPPED,
    "imagePullSecrets": CARRIED,
    "initContainers": NotCarried("A remote pod has one container. Do that work at the start of its command."),
    "nodeName": CARRIED,
    "nodeSelector": SCHEDULING,
    "os": DROPPED,
    "overhead": DROPPED,
    "preemptionPolicy": SCHEDULING,
    "priority": SCHEDULING,
    "priorityClassName": SCHEDULING,
    "readinessGates": NotCarried("Nothing routes traffic to a remote pod. Remove the gates."),
    "resourceClaims": NotCarried("A remote container has no claimed devices. Request nvidia.com/gpu instead."),
    "resources": SCHEDULING,
    "restartPolicy": CARRIED,
    "runtimeClassName": DROPPED,
    "schedulerName": SCHEDULING,
    "schedulingGates": SCHEDULING,
    "schedulingGroup": SCHEDULING,
    "securityContext": CARRIED,
    "serviceAccount": DROPPED,
    "serviceAccountName": CARRIED,
    "setHostnameAsFQDN": DROPPED,
    "shareProcessNamespace": DROPPED,
    "subdomain": NotCarried("Cluster DNS does not reach a remote container. Remove it."),
    "terminationGracePeriodSeconds": DROPPED,
    "tolerations": SCHEDULING,
    "topologySpreadConstraints": SCHEDULING,
    "volumes": CARRIED,
}

CONTAINER: Final[Mapping[str, Treatment]] = {
    "args": CARRIED,
    "command": CARRIED,
    "env": CARRIED,
    "envFrom": CARRIED,
    "image": CARRIED,
    "imagePullPolicy": DROPPED,
    "lifecycle": NotCarried("Hooks cannot run in a remote container. Do their work in its command."),
    "livenessProbe": _PROBES,
    "name": CARRIED,
    "ports": CARRIED,
    "readinessProbe": _PROBES,
    "resizePolicy": DROPPED,
    "resources": CARRIED,
    "restartPolicy": NotCarried("Set restartPolicy on the pod instead of on its container."),
    "restartPolicyRules": NotCarried("Set restartPolicy on the pod instead of on its container."),
    "securityContext": CARRIED,
    "startupProbe": _PROBES,
    "stdin": NotCarried("Nobody can attach to a remote container. Remove it."),
    "stdinOnce": DROPPED,
    "terminationMessagePath": DROPPED,
    "terminationMessagePolicy": DROPPED,
    "tty": DROPPED,
    "volumeDevices": NotCarried("A remote container has no volumes of the cluster. Remove it."),
    "volumeMounts": CARRIED,
    "workingDir": CARRIED,
}

#: Of securityContext, of the pod and of its container. What only restricts is dropped: the provider isolates the
#: container, and has no such setting.
SECURITY: Final[Mapping[str, Treatment]] = {
    "allowPrivilegeEscalation": DROPPED,
    "appArmorProfile": DROPPED,
    "capabilities": CARRIED,
    "fsGroup": DROPPED,
    "fsGroupChangePolicy": DROPPED,
    "privileged": NotCarried("A remote container cannot be privileged. Remove it."),
    "procMount": NotCarried("A remote container has the usual /proc. Remove it."),
    "readOnlyRootFilesystem": DROPPED,
    "runAsGroup": _IDENTITY,
    "runAsNonRoot": DROPPED,
    "runAsUser": _IDENTITY,
    "seLinuxChangePolicy": DROPPED,
    "seLinuxOptions": DROPPED,
    "seccompProfile": DROPPED,
    "supplementalGroups": _IDENTITY,
    "supplementalGroupsPolicy": DROPPED,
    "sysctls": NotCarried("Kernel parameters of a remote host cannot be set. Remove them."),
    "windowsOptions": NotCarried("Remote containers run Linux. Remove it."),
}


def refusals(written: Mapping[str, Any], table: Mapping[str, Treatment], prefix: str) -> Iterator[str]:
    """A sentence for each field that is set and cannot be carried. False, 0 and empty values are not set."""
    for name, value in written.items():
        if not value:
            continue
        treatment = table.get(name)
        if treatment is None:
            yield f"{prefix}{name} is unknown to this release of Forebay. Remove it to run the pod remotely."
        elif isinstance(treatment, NotCarried):
            yield f"{prefix}{name} cannot be carried: {treatment.why}"
