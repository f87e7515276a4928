"""Records and classes of machines that join, and everything that Forebay writes for them."""

import msgspec

from forebay.api.gpu_instance import GPUInstance, GPUInstanceSpec, OfferRecord, PlannedNode, PoolRef
from forebay.api.gpu_node_class import GPUNodeClass, GPUNodeClassSpec
from forebay.api.meta import ObjectMeta
from forebay.api.parts import TaintEffect, TaintEntry
from forebay.model.sources import Delivery

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
