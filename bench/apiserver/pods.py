"""Pods as a busy cluster has them, in JSON: about 8.4 kB each, few templates, fields in the API server's order."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 3, 1, tzinfo=UTC)
#: The rv of the first pod; the list's own rv is beyond the last one's.
FIRST_VERSION = 40_000_000
TEMPLATES = 40
#: One pod in this many asks for GPUs, and one of those in `PENDING_EVERY` has no node yet.
GPU_EVERY = 10
PENDING_EVERY = 4
BYTES_PER_POD = 8_400


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
    suffix = "".join(dice.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
    created = stamp(START + timedelta(seconds=number // 3))
    revision = f"{template * 2654435761 % 2**32:010x}"[:10]
    app = f"{'train' if gpu else 'web'}-{template:02d}"
    namespace = f"team-{template % 12:02d}"
    token = f"kube-api-access-{''.join(dice.choices('bcdfghjklmnpqrstvwxz2456789', k=5))}"
    node = None if pending else f"node-{dice.randrange(2_000):04d}.eu-west-1.compute.internal"
    return {
        "metadata": {
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
                "app.kubernetes.io/part-of": namespace,
                "pod-template-hash": revision,
            },
            "annotations": {
                "checksum/config": f"{template * 40503:064x}",
                "kubectl.kubernetes.io/restartedAt": "2026-02-17T09:14:03Z",
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
            },
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
            "managedFields": managed_fields(created, token, pending=pending),
        },
        "spec": spec(template, app, token, node, gpu=gpu),
        "status": status(app, created, number, dice, pending=pending),
    }


def spec(template: int, app: str, token: str, node: str | None, *, gpu: bool) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": str(1 << template % 4)} if gpu else {}
    body: dict[str, Any] = {
        "volumes": [
            {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}},
            {
                "name": token,
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "name": "kube-root-ca.crt",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                    }
                                ]
                            }
                        },
                    ],
                    "defaultMode": 420,
                },
            },
        ],
        "initContainers": [container("migrate", template, token, {"cpu": "100m", "memory": "128Mi"})],
        "containers": [
            container(
                app,
                template,
                token,
                {"cpu": f"{250 * (1 + template % 8)}m", "memory": f"{1 + template % 16}Gi", **gpus},
            ),
            container("proxy", template, token, {"cpu": "50m", "memory": "64Mi"}),
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": app,
        "serviceAccount": app,
    }
    if gpu:
        body["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    if node:
        body["nodeName"] = node
    body |= {
        "securityContext": {"runAsUser": 10001, "runAsNonRoot": True, "fsGroup": 10001},
        "imagePullSecrets": [{"name": "registry"}],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        },
        "schedulerName": "default-scheduler",
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
            {
                "key": "node.kubernetes.io/unreachable",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "priority": 0,
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    return body


def container(name: str, template: int, token: str, requests: dict[str, str]) -> dict[str, Any]:
    limits = {key: value for key, value in requests.items() if key != "cpu"}
    probe = {"timeoutSeconds": 3, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    return {
        "name": name,
        "image": f"registry.example.com/{name}:2026.2.{template}",
        "args": ["--config=/etc/app/config.yaml"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}},
        ],
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "scratch", "mountPath": "/scratch"},
            {"name": token, "readOnly": True, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"}, **probe},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
    }


def managed_fields(created: str, token: str, *, pending: bool) -> list[dict[str, Any]]:
    owned = {".": {}, "f:name": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:resources": {".": {}, "f:requests": {}}}
    mounts = {"f:volumeMounts": {".": {}, 'k:{"mountPath":"/etc/app"}': {".": {}, "f:mountPath": {}, "f:name": {}}}}
    entries: list[dict[str, Any]] = [
        {
            "manager": "kube-controller-manager",
            "operation": "Update",
            "apiVersion": "v1",
            "time": created,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:generateName": {},
                    "f:labels": {".": {}, "f:app.kubernetes.io/name": {}, "f:pod-template-hash": {}},
                    "f:ownerReferences": {".": {}, 'k:{"uid":"00000000-1111-4222-8333-000000000000"}': {}},
                },
                "f:spec": {
                    "f:containers": {'k:{"name":"app"}': owned | mounts},
                    "f:dnsPolicy": {},
                    "f:restartPolicy": {},
                    "f:schedulerName": {},
                    "f:volumes": {".": {}, f'k:{{"name":"{token}"}}': {".": {}, "f:name": {}}},
                },
            },
        }
    ]
    if not pending:
        entries.append(
            {
                "manager": "kubelet",
                "operation": "Update",
                "apiVersion": "v1",
                "time": created,
                "fieldsType": "FieldsV1",
                "fieldsV1": {
                    "f:status": {
                        "f:conditions": {
                            'k:{"type":"ContainersReady"}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}},
                            'k:{"type":"Initialized"}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}},
                            'k:{"type":"Ready"}': {".": {}, "f:lastTransitionTime": {}, "f:status": {}},
                        },
                        "f:containerStatuses": {},
                        "f:hostIP": {},
                        "f:phase": {},
                        "f:podIP": {},
                        "f:startTime": {},
                    }
                },
                "subresource": "status",
            }
        )
    return entries


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
        "initContainerStatuses": [container_status("migrate", created, dice, ended=True)],
        "containerStatuses": [
            container_status(app, created, dice, ended=False),
            container_status("proxy", created, dice, ended=False),
        ],
        "qosClass": "Burstable",
    }


def container_status(name: str, created: str, dice: random.Random, *, ended: bool) -> dict[str, Any]:
    identity = f"containerd://{dice.getrandbits(256):064x}"
    end = {"exitCode": 0, "reason": "Completed", "startedAt": created, "finishedAt": created, "containerID": identity}
    return {
        "name": name,
        "state": {"terminated": end} if ended else {"running": {"startedAt": created}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/{name}:2026.2",
        "imageID": f"registry.example.com/{name}@sha256:{dice.getrandbits(256):064x}",
        "containerID": identity,
        "started": not ended,
    }


def stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
