"""Predecessors that were configured by a Deployment, by variables or by Helm values, after their README's examples."""

import msgspec
import pytest
import yaml

from docs.helm_values import values_schema
from forebay.api.codec import decode_any
from forebay.cli import main
from forebay.migrate.chart_values import KEYS, SAME

#: README of k8s-gpu-autoprovision (github.com/dseif0x/k8s-gpu-autoprovision): values, and variables of `docker run`.
VALUES = """\
nodeGroups:
  - name: gpu-worker-1
    gpuCount: 4
    scaleUpEndpoint: http://power-api/gpu-worker-1/start
    scaleDownEndpoint: http://power-api/gpu-worker-1/stop
  - name: gpu-worker-2
    gpuCount: 8
    scaleUpEndpoint: http://power-api/gpu-worker-2/start
    scaleDownEndpoint: http://power-api/gpu-worker-2/stop
"""
VARIABLES = """\
# docker run
GPU_NODE_1_NAME=gpu-worker-1
GPU_NODE_1_GPU_COUNT=4
GPU_NODE_1_SCALE_UP_ENDPOINT=http://power-api/start
GPU_NODE_1_SCALE_DOWN_ENDPOINT=http://power-api/stop
"""
MACHINE = {
    "name": "gpu-worker-1",
    "gpuCount": 4,
    "scaleUpEndpoint": "http://power-api/start",
    "scaleDownEndpoint": "http://power-api/stop",
}
#: The RunPod Job controller by its README: its flags and its Secret, in the namespace that it names.
CONTROLLER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: runpod-controller, namespace: kube-system}
spec:
  template:
    spec:
      containers:
        - name: controller
          image: registry.example.com/runpod-controller:latest
          args: [--reconcile-interval=30, --pending-job-threshold, "1", -max-pending-time=120, --max-gpu-price=0.5,
                 --health-server-address=:8081]
          env:
            - name: RUNPOD_KEY
              valueFrom: {secretKeyRef: {name: runpod-controller-secrets, key: RUNPOD_KEY}}
"""
#: Values of gpu-k8s-operator's chart, with its defaults.
BUDGET_VALUES = """\
image: {repository: controller, tag: latest}
replicaCount: 1
terminationGracePeriodSeconds: 10
resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {cpu: 500m, memory: 128Mi}}
leaderElection: {enabled: true}
metrics:
  service: {enabled: true, port: 8443}
  serviceMonitor: {enabled: true, interval: 30s, scrapeTimeout: 10s, scheme: https, insecureSkipVerify: true}
webhook: {enabled: true, service: {port: 443}, certManager: {enabled: true}}
healthProbe: {port: 8081}
"""
#: Values of tgp-operator's chart.
TGP_VALUES = """\
image: {repository: ghcr.io/solanyn/tgp-operator, tag: latest, pullPolicy: Always}
controller:
  replicas: 1
  resources: {}
  securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false}
  nodeSelector: {kubernetes.io/os: linux}
health: {port: 8081}
metrics: {port: 8080}
serviceAccount: {create: true, name: tgp-operator, annotations: {}}
rbac: {create: true}
config:
  providers:
    gcp: {enabled: true, credentialsRef: {name: tgp-operator-secret, key: KEY}}
  talos: {image: "ghcr.io/siderolabs/talos:v1.10.5"}
"""


@pytest.fixture
def migrated(tmp_path, capsys):
    """What the command prints for a file, as documents, with its notes and exit code."""

    def run(text, *options, by="-f"):
        file = tmp_path / "former.yaml"
        file.write_text(text)
        code = main(["migrate", by, str(file), *options])
        captured = capsys.readouterr()
        return [each for each in yaml.safe_load_all(captured.out) if each], captured.err, code

    return run


def admitted(manifests):
    return [decode_any(msgspec.json.encode(each)) for each in manifests]


def test_values_of_machines_stay_as_they_are(migrated):
    (values,), notes, _ = migrated(VALUES, "--values")
    assert values == yaml.safe_load(VALUES)
    assert notes == ""


@pytest.mark.parametrize(
    ("scrapes", "sentence"),
    [
        ("interval: 5s", "scrapeTimeout (10s) is longer than interval (5s), which Prometheus refuses"),
        ("interval: 30s, scrapeTimeout: 1m", "scrapeTimeout (1m) is longer than interval (30s)"),
        ("interval: often", '"often" is not a duration'),
    ],
)
def test_scrapes_that_prometheus_refuses_are_named(migrated, scrapes, sentence):
    _, notes, code = migrated(f"replicaCount: 1\nmetrics: {{serviceMonitor: {{enabled: true, {scrapes}}}}}", "--check")
    assert f"metrics.serviceMonitor: {sentence}" in notes
    assert code == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ("replicaCount: '2'", "replicaCount is '2', which is no whole number"),
        ("replicaCount: true", "replicaCount is True, which is no whole number"),
        ("replicaCount: 1\nmetrics: {service: {port: '8443'}}", "metrics.service.port is '8443', which is no whole"),
        ("replicaCount: 1\nhealth: {port: http}", "health.port is 'http', which is no whole number"),
        ("replicaCount: 1\nmetrics: {enabled: true}", "metrics: Forebay's chart has no enabled there"),
    ],
)
def test_numbers_and_keys_that_the_chart_refuses_are_named(migrated, values, sentence):
    _, notes, code = migrated(values, "--check")
    assert sentence in notes
    assert code == 1


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--max-gpu-price=abc", "--max-gpu-price is 'abc', which is no price"),
        ("--max-gpu-price=0", "--max-gpu-price is '0', which is no price"),
        ("--pending-job-threshold=-1", "--pending-job-threshold is '-1', which is no count"),
        ("--reconcile-interval=often", "--reconcile-interval is 'often', which is no number of seconds"),
    ],
)
def test_a_flag_that_cannot_be_read_is_named_and_left_out(migrated, flag, sentence):
    text = CONTROLLER.replace("[--reconcile-interval=30, ", f"[{flag}, ")
    text = text.replace(" --max-gpu-price=0.5,", "").replace('--pending-job-threshold, "1", ', "")
    (values,), notes, _ = migrated(text, "--values")
    assert sentence in notes
    assert values["settings"] == {"maxPendingTime": "120s"}


def test_variables_of_machines_become_a_class_and_a_pool(migrated):
    (node_class, pool), notes, code = migrated(VARIABLES, by="--env-file")
    assert node_class["spec"] == {"providers": [{"name": "webhook", "machines": [MACHINE]}]}
    assert pool["spec"] == {"nodeClassRef": {"name": node_class["metadata"]["name"]}}
    assert pool["metadata"]["namespace"] == "forebay-system"
    admitted([node_class, pool])
    assert "do not use both" in notes
    assert code == 0


def test_a_deployment_with_such_variables_becomes_the_same_and_is_to_be_deleted(migrated):
    env = [dict(zip(("name", "value"), line.split("="), strict=True)) for line in VARIABLES.splitlines()[1:]]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "gpu-node-manager", "namespace": "gpu"},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "m:1", "env": env}]}}},
    }
    (node_class, _), notes, code = migrated(yaml.safe_dump(deployment), "--namespace", "gpu")
    assert node_class["spec"]["providers"][0]["machines"] == [MACHINE]
    assert "Delete it before Forebay's operator starts" in notes
    assert code == 0
    assert migrated(yaml.safe_dump(deployment), "--check")[2] == 1


def test_an_incomplete_group_is_named_with_its_variable(migrated):
    text = VARIABLES.replace("GPU_NODE_1_NAME=gpu-worker-1\n", "")
    manifests, notes, _ = migrated(text, by="--env-file")
    assert manifests == []
    assert "GPU_NODE_1_NAME" in notes


def test_the_flags_of_the_controller_become_settings_and_its_secret_a_class(migrated):
    (node_class, pool), notes, _ = migrated(CONTROLLER)
    assert node_class["spec"]["providers"] == [
        {"name": "runpod", "credentialsRef": {"name": "runpod-controller-secrets", "key": "RUNPOD_KEY"}}
    ]
    admitted([node_class, pool])
    assert "Copy the Secret runpod-controller-secrets from the namespace kube-system" in notes
    (values,), _, _ = migrated(CONTROLLER, "--values")
    assert values == {
        "settings": {
            "reconcileInterval": "30s",
            "pendingJobThreshold": "1",
            "maxPendingTime": "120s",
            "maxGpuPrice": "0.5",
        },
        "offload": {"enabled": True},
        "port": 8081,
        "secrets": ["runpod-controller-secrets"],
    }
    known = values_schema()["properties"]
    assert values.keys() <= known.keys()
    assert values["settings"].keys() <= known["settings"]["properties"].keys()


def test_a_flag_that_nobody_knows_is_to_be_looked_at(migrated):
    _, notes, code = migrated(CONTROLLER.replace("--reconcile-interval=30", "--turbo=yes"), "--check")
    assert "--turbo is no flag that Forebay knows" in notes
    assert code == 1


def test_values_of_the_budget_operator_lose_its_webhook_and_its_small_limits(migrated):
    (values,), notes, _ = migrated(BUDGET_VALUES, "--values")
    former = yaml.safe_load(BUDGET_VALUES)
    assert values == {
        key: former[key] for key in ("replicaCount", "terminationGracePeriodSeconds", "healthProbe", "metrics")
    }
    for said in ("webhook is left out", "128Mi is too little", "set image.repository", "metrics-reader"):
        assert said in notes


def test_values_of_cert_manager_are_left_out_wherever_they_are(migrated):
    _, notes, code = migrated("webhook: {service: {port: 443}}\ncertManager: {enabled: true}\n", "--values", "--check")
    assert notes.splitlines() == [
        "Changed:",
        "  Helm values: webhook is left out, with cert-manager: the API server validates budgets itself.",
    ]
    assert code == 0


def test_values_of_tgp_operator_move_to_where_forebay_has_them(migrated):
    (values,), notes, _ = migrated(TGP_VALUES, "--values")
    assert values == {
        "replicaCount": 1,
        "securityContext": {"runAsNonRoot": True, "allowPrivilegeEscalation": False},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "healthProbe": {"port": 8081},
        "metrics": {"port": 8080},
        "serviceAccount": {"create": True, "name": "tgp-operator", "annotations": {}},
        "rbac": {"create": True},
    }
    assert "config.providers.gcp is left out: name the provider in a GPUNodeClass" in notes
    assert "metrics are served by HTTPS now" in notes


def test_every_value_that_stays_is_a_value_of_the_chart():
    schema = values_schema()["properties"]
    assert set(SAME) <= schema.keys()
    assert {name: schema[name]["properties"].keys() for name in KEYS} == KEYS


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param([], "give -f FILE, --env-file FILE or --from-cluster", id="nothing"),
        pytest.param(["-f", "x", "--apply", "--check"], "look first, then apply", id="both"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments, sentence, capsys):
    assert main(["migrate", *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_a_check_of_values_prints_no_values(migrated):
    printed, notes, code = migrated("replicaCount: 2\nwebhook: {enabled: true}", "--check", "--values")

    assert (printed, code) == ([], 0)
    assert "webhook is left out" in notes


def test_a_document_that_is_no_object_is_named(migrated):
    _, notes, _ = migrated("[1, 2]\n---\n---\nreplicaCount: 2", "--values")

    assert notes.count("neither an object of Kubernetes nor values of a chart") == 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param("nodegroups: []", "nodegroups is left out; did you mean nodeGroups?", id="a mistyped value alone"),
        pytest.param(
            "replicaCount: 1\nresource: {}", "resource is left out; did you mean resources?", id="among others"
        ),
        pytest.param("nodeGroups: {gpu-1: {gpuCount: 4}}", "nodeGroups is no list", id="no list"),
        pytest.param("healthProbe: 8081", "healthProbe is no mapping", id="no mapping"),
        pytest.param(
            VALUES.replace("gpuCount: 4", "gpucount: 4"), "nodeGroups[0].gpuCount is missing (gpucount", id="key"
        ),
        pytest.param("nodeGroups: [gpu-1]", "nodeGroups[0].name is missing: Forebay's chart", id="a name alone"),
        pytest.param("replicaCount: 1\n7: seven", "7: no value of a predecessor's chart", id="a number as a name"),
    ],
)
def test_values_that_the_chart_refuses_are_named(migrated, values, sentence):
    _, notes, code = migrated(values, "--values", "--check")
    assert sentence in notes
    assert code == 1


def test_variables_of_a_file_written_on_windows_are_read(migrated):
    (node_class, _), _, _ = migrated("\ufeff" + VARIABLES.partition("\n")[2], by="--env-file")
    assert node_class["spec"]["providers"][0]["machines"] == [MACHINE]


def test_a_machine_without_its_number_of_gpus_is_not_lost_beside_others(migrated):
    other = VARIABLES.replace("GPU_NODE_1", "GPU_NODE_2").replace("GPU_COUNT", "GPU_CUONT")
    _, notes, code = migrated(VARIABLES + other, "--check", by="--env-file")
    assert "GPU_NODE_2_GPU_COUNT is missing: set it to the number of GPUs in the machine." in notes
    assert code == 1


def test_a_controller_whose_key_is_in_no_secret_has_none_to_copy(migrated):
    plain = "value: rpa_planted"
    held = "valueFrom: {secretKeyRef: {name: runpod-controller-secrets, key: RUNPOD_KEY}}"
    _, notes, _ = migrated(CONTROLLER.replace(held, plain))
    assert "put the key into a Secret runpod in forebay-system, under RUNPOD_KEY" in notes
    assert "Copy the Secret" not in notes
    assert "rpa_planted" not in notes
