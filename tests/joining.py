"""Records and classes of machines that join, and everything that Forebay writes for them."""

import base64

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, PoolRef
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.instance_order import OfferRecord, PlannedNode
from forebay.api.meta import ObjectMeta
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.model.sources import Delivery
from tests.pki import Authority

PIN = f"sha256:{'5e' * 32}"
K3S = {"serverURL": "https://10.0.0.1:6443", "tokenSecretRef": {"name": "k3s", "key": "token"}}
KUBEADM = {"controlPlaneEndpoint": "10.0.0.1:6443", "caCertHashes": [PIN]}
TAILSCALE = {"oauthCredentialsSecretRef": {"name": "tailscale-oauth"}}
#: Values that a shell, a unit of systemd, YAML or a template could misread.
AWKWARD = ["--node-label=a='b c'", '--x="$HOME"', "--y=`id`", "--z=100%", "--w=a\\b", "--v={{.NodeName}}"]


def joining_record(name="gpu-1", **labels):
    node = PlannedNode(
        name=name,
        labels={
            "forebay.dev/nodepool": "research",
            "tgp.io/nodepool": "research",
            "kubernetes.io/arch": "arm64",
            "topology.kubernetes.io/region": "us-east-1",
            "node.kubernetes.io/instance-type": "gpu_1x_gh200",
            "node-role.kubernetes.io/control-plane": "",
            **labels,
        },
        taints=(TaintEntry(key="nvidia.com/gpu", effect=TaintEffect.NO_SCHEDULE),),
        startup_taints=(TaintEntry(key="cilium.io/not-ready", value="true", effect=TaintEffect.NO_EXECUTE),),
    )
    return GPUInstance(
        metadata=ObjectMeta(name=name, uid="7f0c9a4e-0000-4000-8000-000000000001"),
        spec=GPUInstanceSpec(
            provider="lambdalabs",
            delivers=Delivery.NODE,
            node=node,
            pool_ref=PoolRef(namespace="ml", name="research"),
            offer=OfferRecord(instance_type="gpu_1x_gh200", region="us-east-1", gpu_type="GH200", gpu_count=1),
        ),
    )


def spec_of(**fields):
    return msgspec.convert({"providers": [{"name": "simulated"}], **fields}, GPUNodeClassSpec)


def class_of(**fields):
    return GPUNodeClass(metadata=ObjectMeta(name="rented"), spec=spec_of(**fields))


def talos_bundle():
    """Machine secrets in the form of `talosctl gen secrets`, as far as a worker needs them."""

    def crt(name):
        return {"crt": base64.b64encode(Authority(name).certificate).decode(), "key": "c2VjcmV0"}

    return {
        "cluster": {"id": "Y2x1c3Rlci1pZA==", "secret": "Y2x1c3Rlci1zZWNyZXQ="},
        "secrets": {"bootstraptoken": "aaaaaa.bbbbbbbbbbbbbbbb", "secretboxencryptionsecret": "Ym94"},
        "trustdinfo": {"token": "machine-token"},
        "certs": {"etcd": crt("etcd"), "k8s": crt("k8s"), "os": crt("os")},
    }


TALOS = {
    "image": "talos-nvidia",
    "secretsRef": {"name": "talos", "key": "secrets.yaml"},
    "controlPlaneEndpoint": "https://10.0.0.1:6443",
}
#: A template with everything that a worker needs.
TALOS_TEMPLATE = """\
version: v1alpha1
machine:
  type: worker
  token: {{.MachineToken}}
  ca:
    crt: {{.MachineCA}}
  network:
    hostname: {{.NodeName}}
  kubelet:
    image: {{.KubeletImage}}
    extraArgs:
      node-labels: {{.NodeLabels}}
      register-with-taints: {{.NodeTaints}}
      provider-id: {{.ProviderID}}
cluster:
  id: {{.ClusterID}}
  secret: {{.ClusterSecret}}
  token: {{.BootstrapToken}}
  ca:
    crt: {{.ClusterCA}}
  clusterName: {{.ClusterName}}
  controlPlane:
    endpoint: {{.ControlPlaneEndpoint}}
"""
