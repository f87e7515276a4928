"""Pods as a busy cluster has them, in JSON: about 8.4 kB each, few templates, fields in the API server's order."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from apiserver.managed_fields import entry, owned

START = datetime(2026, 3, 1, tzinfo=UTC)
#: The rv of the first pod; the list's own rv is beyond the last one's.
FIRST_VERSION = 40_000_000
TEMPLATES = 40
#: One pod in this many asks for GPUs, and one of those in `PENDING_EVERY` has no node yet.
GPU_EVERY = 10
PENDING_EVERY = 4
ENVIRONMENT: list[dict[str, Any]] = [
    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
    {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}},
]


def pods(count: int) -> Iterator[bytes]:
    """`count` encoded pods, the same ones on each call."""
    dice = random.Random(20_000)
    for number in range(count):
        yield encode(pod(number, dice))


def encode(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def pod(number: int, dice: random.Random) -> dict[str, Any]:
    template = number % TEMPLATES
    gpu = template % GPU_EVERY == 0
    pending = gpu and dice.randrange(PENDING_EVERY) == 0
    suffix = letters(dice)
    created = stamp(START + timedelta(seconds=number // 3))
    revision = f"{template * 2654435761 % 2**32:010x}"[:10]
    app = f"{'train' if gpu else 'web'}-{template:02d}"
    namespace = f"team-{template % 12:02d}"
    node = None if pending else f"node-{dice.randrange(2_000):04d}.eu-west-1.compute.internal"
    metadata: dict[str, Any] = {
        "name": f"{app}-{revision}-{suffix}{number:06x}",
        "generateName": f"{app}-{revision}-",
        "namespace": namespace,
        "uid": f"{dice.getrandbits(32):08x}-{number:04x}-4{template:03x}-a000-{dice.getrandbits(48):012x}",
        "resourceVersion": str(FIRST_VERSION + number),
        "generation": 1,
        "creationTimestamp": created,
        "labels": {
            "app.kubernetes.io/instance": app,
            "app.kubernetes.io/managed-by": "Helm",
            "app.kubernetes.io/name": app,
            "pod-template-hash": revision,
        },
        "annotations": {"checksum/config": f"{template * 40503:064x}", "prometheus.io/scrape": "true"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{app}-{revision}",
                "uid": f"{template:08x}-1111-4222-8333-{template:012x}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    written = spec(template, app, gpu=gpu)
    condition = status(app, created, number, dice, pending=pending)
    writer = "kube-scheduler" if pending else "kubelet"
    by_controller = {part: metadata[part] for part in ("annotations", "generateName", "labels", "ownerReferences")}
    metadata["managedFields"] = [
        entry("kube-controller-manager", created, {"f:metadata": owned(by_controller), "f:spec": owned(written)}),
        entry(writer, created, {"f:status": owned(condition)}, "status"),
    ]
    return {"metadata": metadata, "spec": admitted(written, letters(dice), node), "status": condition}


def letters(dice: random.Random) -> str:
    return "".join(dice.choices("bcdfghjklmnpqrstvwxz2456789", k=5))


def spec(template: int, app: str, *, gpu: bool) -> dict[str, Any]:
    """As the ReplicaSet's template has it."""
    gpus = {"nvidia.com/gpu": str(1 << template % 4)} if gpu else {}
    main = {"cpu": f"{250 * (1 + template % 8)}m", "memory": f"{1 + template % 16}Gi", **gpus}
    selector = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}} if gpu else {}
    return {
        "volumes": [{"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}}],
        "containers": [
            container(app, template, main) | {"env": ENVIRONMENT},
            container("proxy", template, {"cpu": "50m", "memory": "64Mi"}),
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        **selector,
        "serviceAccountName": app,
        "serviceAccount": app,
        "securityContext": {"runAsUser": 10001, "runAsNonRoot": True, "fsGroup": 10001},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


def admitted(written: dict[str, Any], token: str, node: str | None) -> dict[str, Any]:
    """What admission and the scheduler add: the token's volume with a name of its own, tolerations, a node."""
    name = f"kube-api-access-{token}"
    mount = {"name": name, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources: list[dict[str, Any]] = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    whole: dict[str, Any] = {}
    for part, value in written.items():
        whole[part] = value
        if part == "volumes":
            whole[part] = [*value, {"name": name, "projected": {"sources": sources, "defaultMode": 420}}]
        elif part == "containers":
            whole[part] = [each | {"volumeMounts": [*each["volumeMounts"], mount]} for each in value]
        elif part == "serviceAccount" and node:
            whole["nodeName"] = node
        elif part == "schedulerName":
            whole["tolerations"] = [
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
                for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
            ]
            whole["priority"] = 0
    return whole | {"preemptionPolicy": "PreemptLowerPriority"}


def container(name: str, template: int, requests: dict[str, str]) -> dict[str, Any]:
    limits = {key: value for key, value in requests.items() if key != "cpu"}
    return {
        "name": name,
        "image": f"registry.example.com/{name}:2026.2.{template}",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": [{"name": "config", "readOnly": True, "mountPath": "/etc/app"}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 3,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
    }


def status(app: str, created: str, number: int, dice: random.Random, *, pending: bool) -> dict[str, Any]:
    if pending:
        refusal = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": created,
            "reason": "Unschedulable",
            "message": "0/2000 nodes are available: 2000 Insufficient nvidia.com/gpu.",
        }
        return {"phase": "Pending", "conditions": [refusal], "qosClass": "Burstable"}
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": created}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "hostIP": f"192.168.{dice.randrange(256)}.{dice.randrange(256)}",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": created,
        "containerStatuses": [container_status(name, created, dice) for name in (app, "proxy")],
        "qosClass": "Burstable",
    }


def container_status(name: str, created: str, dice: random.Random) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": created}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/{name}:2026.2",
        "imageID": f"registry.example.com/{name}@sha256:{dice.getrandbits(256):064x}",
        "containerID": f"containerd://{dice.getrandbits(256):064x}",
        "started": True,
    }


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
