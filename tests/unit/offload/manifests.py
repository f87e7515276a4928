"""Pods as Kubernetes writes them, with defaults for everything that a test does not name."""

from forebay.offload.pod_manifest import PodManifest, PodMetadata

#: As admission leaves it on every pod.
TOKEN_VOLUME = {"name": "kube-api-access-x7k2p", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
TOKEN_MOUNT = {"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}


def manifest(container=None, *, labels=None, annotations=None, **spec):
    """A pod of a Job with one container, with the defaults that the API server adds."""
    written = {
        "restartPolicy": "Never",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "securityContext": {},
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "terminationGracePeriodSeconds": 30,
        "volumes": [TOKEN_VOLUME, *spec.pop("volumes", [])],
        **spec,
    }
    fields = {
        "name": "main",
        "image": "example.test/train:1",
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        **(container or {}),
    }
    fields["volumeMounts"] = [TOKEN_MOUNT, *fields.get("volumeMounts", [])]
    written.setdefault("containers", [fields])
    return PodManifest(
        metadata=PodMetadata(
            name="train-0-abcde",
            namespace="team",
            uid="pod-uid",
            labels=labels or {},
            annotations=annotations or {},
        ),
        spec=written,
    )
