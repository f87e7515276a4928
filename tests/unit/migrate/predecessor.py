"""The example of tgp-operator's README (github.com/solanyn/tgp-operator), restated, with its mistakes."""

CLASS = """\
apiVersion: tgp.io/v1
kind: GPUNodeClass
metadata:
  name: standard-gpu-class
spec:
  providers:
    - name: runpod
      priority: 1
      enabled: true
      credentialsRef: {name: tgp-operator-secret, key: RUNPOD_API_KEY}
    - name: lambdalabs
      priority: 2
      enabled: true
      credentialsRef: {name: tgp-operator-secret, key: LAMBDA_LABS_API_KEY}
  talosConfig:
    image: "ghcr.io/siderolabs/talos:v1.10.5"
    machineConfigTemplate: |
      version: v1alpha1
      persist: true
      machine:
        token: {{.MachineToken}}
        ca:
          crt: {{.ClusterCA}}
        certSANs:
          - 127.0.0.1
        files:
          - path: /etc/tailscale/authkey
            permissions: 0o600
            op: create
            content: {{.TailscaleAuthKey}}
          - path: /etc/systemd/system/tailscaled.service
            op: create
            content: |
              [Service]
              ExecStart=/usr/bin/tailscaled
              ExecStartPost=/usr/bin/tailscale up --authkey-file=/etc/tailscale/authkey --hostname={{.NodeName}}
        systemd:
          services:
            - name: tailscaled.service
              enabled: true
        nodeLabels:
          tgp.io/nodepool: {{.NodePool}}
          tgp.io/provisioned: "true"
          node.kubernetes.io/instance-type: "gpu"
      cluster:
        id: {{.ClusterID}}
        secret: {{.ClusterSecret}}
        controlPlane:
          endpoint: {{.ControlPlaneEndpoint}}
        clusterName: {{.ClusterName}}
  tailscaleConfig:
    tags: ["tag:k8s", "tag:gpu"]
    ephemeral: true
    acceptRoutes: true
  instanceRequirements:
    gpuTypes: ["RTX4090", "RTX3090"]
    spotAllowed: true
  limits:
    maxNodes: 10
    maxHourlyCost: "50.0"
"""
POOL = """\
apiVersion: tgp.io/v1
kind: GPUNodePool
metadata:
  name: ml-workload-pool
  namespace: default
spec:
  nodeClassRef: {kind: GPUNodeClass, name: standard-gpu-class}
  template:
    spec:
      requirements:
        - {key: tgp.io/gpu-type, operator: In, values: [RTX4090]}
        - {key: tgp.io/region, operator: In, values: [us-west, us-east]}
      taints:
        - {key: gpu-node, value: "true", effect: NoSchedule}
  maxHourlyPrice: "2.0"
  weight: 10
"""
EXAMPLE = f"{CLASS}---\n{POOL}"
#: What `forebay migrate` makes of it, in the order of the fields.
MIGRATED = """\
apiVersion: forebay.dev/v1alpha1
kind: GPUNodeClass
metadata:
  name: standard-gpu-class
spec:
  providers:
  - name: runpod
    priority: 1
    credentialsRef:
      name: tgp-operator-secret
      key: RUNPOD_API_KEY
  - name: lambdalabs
    priority: 2
    credentialsRef:
      name: tgp-operator-secret
      key: LAMBDA_LABS_API_KEY
  kubeadmConfig:
    controlPlaneEndpoint: 10.0.0.1:6443
  tailscaleConfig:
    tags:
    - tag:k8s
    - tag:gpu
    ephemeral: true
    acceptRoutes: true
    oauthCredentialsSecretRef:
      name: tgp-operator-secret
  instanceRequirements:
    gpuTypes:
    - RTX4090
    - RTX3090
    spotAllowed: true
  limits:
    maxNodes: 10
    maxHourlyCost: '50.0'
  allowedNamespaces:
    matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values:
      - default
  allowedPodNamespaces:
    matchLabels: {}
---
apiVersion: forebay.dev/v1alpha1
kind: GPUNodePool
metadata:
  name: ml-workload-pool
  namespace: default
spec:
  nodeClassRef:
    name: standard-gpu-class
  template:
    spec:
      requirements:
      - key: forebay.dev/gpu-type
        operator: In
        values:
        - RTX4090
      taints:
      - key: gpu-node
        value: 'true'
        effect: NoSchedule
  maxHourlyPrice: '2.0'
  weight: 10
"""
