"""Values that the chart refuses, and its messages."""

import pytest

from tests.unit.deploy.helm import machine, refusal

pytestmark = pytest.mark.helm


@pytest.mark.parametrize(
    ("values", "sentences"),
    [
        ({"nodeGroup": []}, ["Additional property nodeGroup is not allowed"]),
        ({"image": {"tags": "1"}}, ["image: Additional property tags is not allowed"]),
        ({"replicaCount": "two"}, ["replicaCount: Invalid type. Expected: integer, given: string"]),
        ({"web": None, "metrics": None}, ["web is required", "metrics is required"]),
        ({"port": 80}, ["port: Must be greater than or equal to 1024"]),
        ({"settings": {"logLevel": "loud"}}, ['settings.logLevel must be one of the following: "debug", "info"']),
        ({"settings": {"kubeconfig": "x"}}, ["settings: Additional property kubeconfig is not allowed"]),
        (
            {"settings": {"idleDelay": "soon", "maxPendingTime": 5}},
            ["settings.idleDelay: Does not", "maxPendingTime: M"],
        ),
        ({"settings": {"maxPendingTime": -5}}, ["settings.maxPendingTime: Must be greater than or equal to 0"]),
        ({"settings": {"maxGpuPrice": 0}}, ["settings.maxGpuPrice: Must be greater than 0"]),
        ({"settings": {"pendingJobThreshold": "few"}}, ["settings.pendingJobThreshold: Does not match pattern"]),
        ({"settings": {"logServerAddress": "10251"}}, ["settings.logServerAddress: Does not match pattern"]),
        ({"settings": {"dryRun": "yes"}}, ["settings.dryRun: Does not match pattern '^(on|off)$'"]),
        ({"image": {"repository": "registry.lab/forebay:1"}}, ["image.repository: Does not match pattern"]),
        ({"image": {"tag": "sha256:abc"}}, ["image.tag: Does not match pattern"]),
        ({"fullnameOverride": "GPU_operator"}, ["fullnameOverride: Does not match pattern"]),
        ({"podLabels": {"app.kubernetes.io/name": "gpus"}}, ["podLabels: Property name of", "does not match"]),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, ["maxUnavailable: Must be greater than or equal to 1"]),
        ({"nodeGroups": [{"name": "a", "gpuCount": 1}]}, ["scaleUpEndpoint is required", "scaleDownEndpoint is"]),
        ({"nodeGroups": [machine("a", gpuCount=0)]}, ["nodeGroups.0.gpuCount: Must be greater than or equal to 1"]),
        ({"nodeGroups": [machine("a", gpuCount="many")]}, ["nodeGroups.0.gpuCount: Does not match pattern"]),
        ({"nodeGroups": [machine("GPU_1")]}, ["nodeGroups.0.name: Does not match pattern"]),
        ({"nodeGroups": [machine("a", scaleUpEndpoint="power/a")]}, ["nodeGroups.0.scaleUpEndpoint: Does not match"]),
        ({"nodeGroups": [machine("a", timeout="5 s")]}, ["nodeGroups.0.timeout: Does not match pattern"]),
        ({"nodeGroups": [machine("a", hourlyPrice="$2")]}, ["nodeGroups.0.hourlyPrice: Does not match pattern"]),
        ({"nodeGroups": [machine("a", memory="lots")]}, ["nodeGroups.0.memory: Does not match pattern"]),
        ({"nodeGroups": [machine("a", wattage=300)]}, ["nodeGroups.0: Additional property wattage is not allowed"]),
        ({"nodeGroups": [machine("a", hmacSecret="name-only")]}, ["nodeGroups.0.hmacSecret: Does not match pattern"]),
        (
            {"nodeGroups": [machine("a", taints=[{"key": "gpu", "effect": "Never"}])]},
            ['effect must be one of the following: "NoSchedule"'],
        ),
    ],
    ids=str,
)
def test_an_invalid_value_is_named(values, sentences):
    message = refusal(values)
    for sentence in sentences:
        assert sentence in message


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"nodeGroups": [machine("a", scaleDownEndpoint="http://power/a/on")]},
            "nodeGroups: a: scaleUpEndpoint and scaleDownEndpoint are the same URL: one must power the machine on",
        ),
        (
            {"nodeGroups": [machine("a"), machine("a")]},
            "nodeGroups: a and a would share the variable A_GPU_COUNT: rename one of them",
        ),
        (
            {"nodeGroups": [machine("gpu-1"), machine("gpu.1")]},
            "nodeGroups: gpu-1 and gpu.1 would share the variable GPU_1_GPU_COUNT: rename one of them",
        ),
        (
            {"nodeGroups": [machine("a", bootTimeout="5m"), machine("a-boot", timeout="5s")]},
            "nodeGroups: a and a-boot would share the variable A_BOOT_TIMEOUT: rename one of them",
        ),
        (
            {"nodeGroups": [machine("a")], "extraEnv": [{"name": "A_NAME", "value": "b"}]},
            "extraEnv: the chart already sets A_NAME, from nodeGroups: a",
        ),
        (
            {"extraEnv": [{"name": "FOREBAY_HEALTH_SERVER_ADDRESS", "value": ":1"}]},
            "extraEnv: the chart already sets FOREBAY_HEALTH_SERVER_ADDRESS, from settings or port",
        ),
        ({"metrics": {"port": 8080}}, "port and metrics.port are both 8080: choose another port for one of them"),
        ({"web": {"enabled": True, "port": 8443}}, "metrics.port and web.port are both 8443: choose another port"),
        (
            {"offload": {"enabled": True}, "settings": {"logServerAddress": ":8443"}},
            "metrics.port and settings.logServerAddress are both 8443: choose another port for one of them",
        ),
        (
            {"serviceAccount": {"create": False}},
            "serviceAccount.create is false and serviceAccount.name is empty: set serviceAccount.name",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradicting_values_are_refused_with_what_to_change(values, sentence):
    assert sentence in refusal(values)
