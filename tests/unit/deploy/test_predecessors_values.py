"""Values that predecessors' charts had: recognized under their names, or refused with a reason."""

import pytest

from tests.unit.deploy.helm import CHART, KUBE_VERSION, environment, helm, pod, rendered, the

pytestmark = pytest.mark.helm

#: What gpu-k8s-operator's chart (github.com/zxuhan/gpu-k8s-operator) has besides its webhook, with other values.
BUDGET_OPERATOR = {
    "image": {"repository": "registry.example.com/forebay", "tag": "1.0", "pullPolicy": "IfNotPresent"},
    "replicaCount": 1,
    "terminationGracePeriodSeconds": 20,
    "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {},
    "podAnnotations": {"team": "platform"},
    "podLabels": {"tier": "control"},
    "serviceAccount": {"create": True, "name": "", "annotations": {}},
    "leaderElection": {"enabled": True},
    "metrics": {
        "service": {"enabled": True, "port": 9443},
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "kps"},
            "interval": "15s",
            "scrapeTimeout": "5s",
            "scheme": "https",
            "insecureSkipVerify": True,
        },
    },
    "healthProbe": {"port": 8081},
}


def test_the_values_of_the_budget_operator_work_as_they_are():
    manifests = rendered(BUDGET_OPERATOR)

    assert the("Deployment", manifests)["spec"]["replicas"] == 1
    assert pod(manifests)["terminationGracePeriodSeconds"] == 20
    (container,) = pod(manifests)["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == {"http": 8081, "metrics": 8443}
    assert environment(manifests)["FOREBAY_HEALTH_SERVER_ADDRESS"] == ":8081"
    (port,) = the("Service", manifests)["spec"]["ports"]
    assert port == {"name": "metrics", "port": 9443, "targetPort": "metrics"}
    monitor = the("ServiceMonitor", manifests)
    assert monitor["metadata"]["labels"]["release"] == "kps"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"], endpoint["scheme"]) == ("15s", "5s", "https")
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


def test_the_monitor_takes_a_tls_configuration_of_its_own():
    tls = {"ca": {"secret": {"name": "metrics-ca", "key": "ca.crt"}}, "serverName": "forebay.example.com"}
    manifests = rendered({"metrics": {"serviceMonitor": {"enabled": True, "tlsConfig": tls}}})

    (endpoint,) = the("ServiceMonitor", manifests)["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == tls
    assert endpoint["interval"] == "30s"


@pytest.mark.parametrize(
    ("interval", "timeout"), [("10s", "10s"), ("1h", "59m60s"), ("1m30s", "90s"), ("1s", "1000ms"), ("0008s", "07s")]
)
def test_a_scrape_may_take_all_of_the_interval(interval, timeout):
    manifests = rendered({"serviceMonitor": {"enabled": True, "interval": interval, "scrapeTimeout": timeout}})

    (endpoint,) = the("ServiceMonitor", manifests)["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == (interval, timeout)


def test_without_a_service_there_is_none():
    manifests = rendered({"metrics": {"service": {"enabled": False}}})

    assert "Service" not in {each["kind"] for each in manifests}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True, "scheme": "http"}}},
            "scheme is http, but metrics are served by https",
            id="scheme",
        ),
        pytest.param(
            {"metrics": {"service": {"enabled": False}}, "serviceMonitor": {"enabled": True}},
            "set metrics.service.enabled to true",
            id="service",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "30s", "scrapeTimeout": "1m"}}},
            "scrapeTimeout is 1m, longer than the interval of 30s, which Prometheus refuses",
            id="scrapeTimeout",
        ),
        pytest.param(
            {"metrics": {"serviceMonitor": {"enabled": True, "interval": "5s"}}},
            "scrapeTimeout is 10s, longer than the interval of 5s",
            id="an interval below the usual scrapeTimeout",
        ),
        pytest.param(
            {"serviceMonitor": {"enabled": True, "interval": "1m30s", "scrapeTimeout": "1m30s1ms"}},
            "scrapeTimeout is 1m30s1ms, longer than the interval of 1m30s",
            id="a millisecond more",
        ),
        pytest.param(
            {"serviceMonitor": {"enabled": True, "interval": "0s", "scrapeTimeout": "0s"}},
            "both must be longer than 0",
            id="no time",
        ),
        pytest.param({"serviceMonitor": {"interval": "1.5m"}}, "interval", id="a fraction"),
        pytest.param({"serviceMonitor": {"interval": "30s1m"}}, "interval", id="the smaller unit first"),
        pytest.param({"serviceMonitor": {"scrapeTimeout": ""}}, "scrapeTimeout", id="an empty one"),
        pytest.param({"leaderElection": {"enabled": False}}, "leaderElection", id="leader election"),
        pytest.param({"webhook": {"enabled": True}}, "webhook", id="webhook"),
    ],
)
def test_what_cannot_hold_is_refused_with_its_name(values, sentence):
    answer = helm("template", "forebay", str(CHART), *KUBE_VERSION, values=values)
    assert answer.returncode != 0
    assert sentence in answer.stderr
