"""Everyday kubectl commands in several scripts, each for a new namespace."""

import json

from tests.contract.kube.widgets import WIDGETS
from tests.contract.kubectl.transcripts import Scripts, Step

_SETTINGS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {team: red}}
data: {colour: COLOUR}
"""

_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  labels: {app: web, name: NAME}
spec:
  schedulerName: nobody
  automountServiceAccountToken: false
  containers: [{name: main, image: "registry.example/main:1", resources: {limits: {cpu: 500m, memory: 64Mi}}}]
"""

_BOUND = """
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  labels: {app: web}
  annotations: {embedded.forebay.dev/start-delay: 0s}
spec:
  nodeName: "{node}"
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "registry.example/main:1"}]
"""

_NODE = """
apiVersion: v1
kind: Node
metadata:
  name: "{node}"
  labels: {story: "{ns}", node-role.kubernetes.io/gpu: ""}
  annotations: {kwok.x-k8s.io/node: fake}
spec: {}
status:
  addresses: [{type: InternalIP, address: 10.9.9.9}]
  capacity: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "4"}
  allocatable: {cpu: "8", memory: 32Gi, pods: "110", nvidia.com/gpu: "4"}
"""

_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    metadata:
      annotations: {embedded.forebay.dev/start-delay: 0s, embedded.forebay.dev/run-time: 1s}
    spec:
      nodeName: "{node}"
      restartPolicy: Never
      automountServiceAccountToken: false
      containers: [{name: main, image: "registry.example/main:1"}]
"""

_SET = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      schedulerName: nobody
      automountServiceAccountToken: false
      containers: [{name: main, image: "registry.example/main:1"}]
"""

_WIDGET = """
apiVersion: contract.forebay.dev/v1
kind: Widget
metadata: {name: w}
spec: {size: 5, gpuHours: HOURS}
"""

_EVENT = """
apiVersion: v1
kind: Event
metadata: {name: hello}
involvedObject: {apiVersion: v1, kind: Pod, namespace: "{ns}", name: a}
reason: Launched
message: a machine was launched
type: Normal
source: {component: forebay}
firstTimestamp: "2026-01-01T00:00:00Z"
lastTimestamp: "2026-01-01T00:00:00Z"
count: 1
"""


def _settings(colour: str) -> str:
    return _SETTINGS.replace("COLOUR", colour)


def pod(name: str) -> str:
    return _POD.replace("NAME", name)


def _bound(name: str) -> str:
    return _BOUND.replace("NAME", name)


def _widget(hours: object) -> str:
    return _WIDGET.replace("HOURS", str(hours))


_READY_NODE = [
    Step("create -f -", stdin=_NODE),
    Step("wait --for=condition=Ready node/{node} --timeout=20s"),
]
_GONE_NODE = [Step("delete node {node}")]
_WIDGETS = [
    Step("apply -f -", stdin=json.dumps(WIDGETS), silent=True),
    Step("wait --for=condition=Established crd/widgets.contract.forebay.dev --timeout=20s"),
]

SCRIPTS: Scripts = {
    "get in every form": [
        Step("get configmaps settings", fails=True),
        Step("get secrets"),
        Step("get nothings", fails=True),
        Step("create configmap settings --from-literal=colour=blue --from-literal=size=1"),
        Step("get configmap settings"),
        Step("get cm/settings -o wide"),
        Step("get cm settings -o name"),
        Step("get cm settings -o yaml"),
        Step("get cm settings -o json"),
        Step("get cm settings -o jsonpath={.data.colour}"),
        Step("get cm settings -o go-template={{.data.size}}"),
        Step("get cm settings -o custom-columns=NAME:.metadata.name,COLOUR:.data.colour"),
        Step("get cm settings --no-headers"),
        Step("get cm settings --show-labels"),
        Step("get cm settings --show-kind"),
        Step("get cm --sort-by=.metadata.name"),
        Step("get -f - -o name", stdin=_settings("blue")),
        Step("get secrets,serviceaccounts"),
    ],
    "pods and selectors": [
        Step("create -f -", stdin=pod("a")),
        Step("create -f -", stdin=pod("b")),
        Step("get pods"),
        Step("get pods -o wide"),
        Step("get pods -l app=web"),
        Step("get pods -l name~in~(a,c)"),
        Step("get pods -l app!=web"),
        Step("get pods -L name"),
        Step("get pods --field-selector=metadata.name=a"),
        Step("get pods --field-selector=status.phase=Running"),
        Step("get pods --field-selector=spec.colour=blue", fails=True),
        Step("get pods -A --field-selector=metadata.namespace={ns}"),
        Step("get pods a b -o name"),
        Step("get pods a c", fails=True),
        Step("get all"),
        Step("get pods --chunk-size=1 -o name"),
    ],
    "create and apply": [
        Step("apply -f -", stdin=_settings("blue")),
        Step("apply -f -", stdin=_settings("blue")),
        Step("apply -f -", stdin=_settings("red")),
        Step("get cm settings -o jsonpath={.data.colour}"),
        Step("create -f -", stdin=_settings("blue"), fails=True),
        Step("replace -f -", stdin=_settings("green")),
        Step("apply --dry-run=server -f -", stdin=_settings("white")),
        Step("apply --dry-run=client -f -", stdin=_settings("white")),
        Step("create --dry-run=client -o yaml -f -", stdin=_settings("white")),
        Step("create -f -", stdin=_settings("blue").replace("data:", "dataa:"), fails=True),
        Step("create --validate=ignore --dry-run=server -f -", stdin=_settings("b").replace("settings", "other")),
        Step("create -f -", stdin=_settings("blue").replace("settings", "Not_A_Name"), fails=True),
        Step("create namespace {ns}-two"),
        Step("create namespace {ns}-two", fails=True),
        Step("create serviceaccount robot"),
        Step("create secret generic hidden --from-literal=key=value"),
        Step("get secret hidden"),
        Step("delete namespace {ns}-two --wait=false"),
    ],
    "server-side apply": [
        Step("apply --server-side -f -", stdin=_settings("blue")),
        Step("apply --server-side -f -", stdin=_settings("blue")),
        Step("apply --server-side --field-manager=other -f -", stdin=_settings("red"), fails=True),
        Step("apply --server-side --field-manager=other --force-conflicts -f -", stdin=_settings("red")),
        Step("get cm settings -o jsonpath={.data.colour}"),
    ],
    "patch, label, annotate": [
        Step("create -f -", stdin=pod("a")),
        Step('patch pod a --type=merge -p {"metadata":{"labels":{"tier":"one"}}}'),
        Step('patch pod a --type=merge -p {"metadata":{"labels":{"tier":"one"}}}'),
        Step('patch pod a -p {"spec":{"containers":[{"name":"main","image":"registry.example/main:2"}]}}'),
        Step('patch pod a --type=json -p [{"op":"replace","path":"/metadata/labels/tier","value":"two"}]'),
        Step('patch pod a --type=json -p [{"op":"test","path":"/metadata/labels/tier","value":"x"}]', fails=True),
        Step('patch pod a --subresource=status --type=merge -p {"status":{"message":"hi"}}'),
        Step("get pod a -o jsonpath={.metadata.labels.tier}/{.spec.containers[0].image}/{.status.message}"),
        Step("label pod a tier=three", fails=True),
        Step("label pod a tier=three --overwrite"),
        Step("label pod a tier-"),
        Step("label pods --all colour=blue"),
        Step("get pods --show-labels"),
        Step("annotate pod a note=hello"),
        Step("annotate pod a note=bye --overwrite"),
        Step("annotate pod a note-"),
        Step("get pod a -o jsonpath={.metadata.annotations}"),
        Step("patch pod missing -p {}", fails=True),
    ],
    "nodes": [
        *_READY_NODE,
        Step("get node {node}"),
        Step("get nodes -l story={ns} -o name"),
        Step("get node {node} -o jsonpath={.status.allocatable}"),
        Step("taint node {node} gpu=yes:NoSchedule"),
        Step("taint node {node} gpu=yes:NoSchedule", fails=True),
        # Only ours: the controllers take away theirs a moment after the node is Ready, sooner or later.
        Step('get node {node} -o jsonpath={.spec.taints[?(@.key=="gpu")]}'),
        Step("taint node {node} gpu:NoSchedule-"),
        Step("cordon {node}"),
        Step("cordon {node}"),
        Step("get node {node}"),
        Step("uncordon {node}"),
        Step("get node {node} -o jsonpath={.spec.taints[*].key}", until=r"^$"),
        Step(
            "describe node {node}",
            only=r"^(Name|Roles|Labels|Taints|Unschedulable|Capacity|Allocatable)|gpu|^  \(Total",
        ),
        *_GONE_NODE,
        Step("get node {node}", fails=True),
    ],
    "drain": [
        *_READY_NODE,
        Step("create -f -", stdin=_bound("a")),
        Step("wait --for=condition=Ready pod/a --timeout=20s"),
        Step("get pods -o wide"),
        Step("drain {node}", fails=True),
        Step("drain {node} --force --timeout=30s"),
        Step("get pods"),
        Step("get node {node}"),
        *_GONE_NODE,
    ],
    "delete": [
        Step("create configmap one"),
        Step("create configmap two"),
        Step("delete configmap one"),
        Step("delete configmap one", fails=True),
        Step("delete configmap one --ignore-not-found"),
        Step("delete -f - --ignore-not-found", stdin=_settings("blue")),
        Step("create -f -", stdin=pod("a")),
        Step("create -f -", stdin=pod("b")),
        Step("delete pod a --now"),
        Step("delete pods -l app=web --grace-period=0 --force"),
        Step("get pods"),
        Step("delete configmap two -o name"),
        Step("delete secrets --all"),
    ],
    "delete with cascades": [
        Step("create -f -", stdin=_SET),
        Step("wait --for=jsonpath={.status.replicas}=2 rs/web --timeout=20s"),
        Step("get rs"),
        Step("get pods", only="web|NAME"),
        Step("delete rs web --cascade=orphan"),
        Step("get pods -l app=web", only="web|NAME"),
        Step("delete pods -l app=web", silent=True),
        Step("create -f -", stdin=_SET),
        Step("wait --for=jsonpath={.status.replicas}=2 rs/web --timeout=20s"),
        Step("scale rs web --replicas=1"),
        Step("wait --for=jsonpath={.status.replicas}=1 rs/web --timeout=20s"),
        Step("delete rs web --cascade=foreground --timeout=20s"),
        Step("get pods"),
    ],
    "wait": [
        Step("create -f -", stdin=pod("a")),
        Step("wait --for=condition=Ready pod/a --timeout=1s", fails=True),
        Step("wait --for=jsonpath={.status.phase}=Pending pod/a --timeout=10s"),
        Step("delete pod a --wait=false"),
        Step("wait --for=delete pod/a --timeout=10s"),
        Step("wait --for=condition=Ready pod/missing --timeout=1s", fails=True),
        Step("wait --for=create configmap/kube-root-ca.crt --timeout=10s"),
    ],
    "events": [
        Step("create -f -", stdin=pod("a")),
        Step("create -f -", stdin=_EVENT),
        Step("get events"),
        Step("get events -o wide"),
        Step("events"),
        Step("events --for=pod/a"),
        Step("get events --field-selector=involvedObject.name=a,type=Normal -o name"),
        Step("describe pod a", only="Launched|^Events|machine"),
    ],
    "describe": [
        Step("apply -f -", stdin=_settings("blue")),
        Step("describe cm settings"),
        Step("create -f -", stdin=pod("a")),
        Step("describe pod a"),
        Step("create secret generic hidden --from-literal=key=value"),
        Step("describe secret hidden"),
        # Below these come the quotas and limits, kinds that the embedded server does not have.
        Step("describe namespace {ns}", only="^(Name|Labels|Annotations|Status)"),
        Step("describe pod missing", fails=True),
    ],
    "jobs": [
        *_READY_NODE,
        Step("create -f -", stdin=_JOB),
        Step("wait --for=condition=Complete job/train --timeout=30s"),
        Step("get jobs"),
        Step("get jobs -o wide"),
        Step("get pods", only="train|NAME"),
        Step("describe job train", only="^(Name|Namespace|Parallelism|Completions|Pods Statuses|Suspend|Backoff)"),
        Step("delete job train"),
        Step("wait --for=delete pod -l batch.kubernetes.io/job-name=train --timeout=20s", silent=True),
        Step("get pods"),
        *_GONE_NODE,
    ],
    "custom resources": [
        *_WIDGETS,
        Step("apply -f -", stdin=_widget(100)),
        Step("apply -f -", stdin=_widget(100)),
        Step("get widgets"),
        Step("get wd -o wide"),
        Step("get gadgets -o name"),
        Step("get widget w -o yaml"),
        Step("describe widget w"),
        Step("apply -f -", stdin=_widget(0), fails=True),
        Step("apply -f -", stdin=_widget(1).replace("size: 5", "size: 5, fooo: 1"), fails=True),
        Step("create -f -", stdin=_widget(1).replace("size: 5, ", "").replace("name: w", "name: v"), fails=True),
        Step('patch widget w --type=merge -p {"spec":{"region":"eu"}}', fails=True),
        Step('patch widget w -p {"spec":{"size":6}}', fails=True),
        Step("scale widget w --replicas=3"),
        Step("get widget w -o jsonpath={.spec.replicas}"),
        Step("get widgets --field-selector=spec.mode=Exact"),
        Step("delete widget w"),
        Step("get widgets"),
    ],
    "who am I": [
        Step("auth can-i create pods"),
        Step("version -o json", only="major|minor"),
    ],
}
