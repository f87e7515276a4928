"""Manifests that Helm renders from the chart."""

import re
import shutil

import msgspec
import pytest
import yaml

from docs.helm_chart import paths
from docs.helm_values import offered_settings, values_schema
from forebay.install.crds import custom_resource_definitions
from forebay.install.manifests import install_manifests
from forebay.install.permissions import (
    BUDGET_PERMISSIONS,
    CLUSTER_PERMISSIONS,
    NAMESPACE_PERMISSIONS,
    OFFLOAD_PERMISSIONS,
    REVIEW_PERMISSIONS,
    UNINSTALL_CLUSTER_PERMISSIONS,
    UNINSTALL_NAMESPACE_PERMISSIONS,
)
from forebay.install.roles import view_role
from forebay.providers.webhook.groups import VARIABLES, read_groups
from forebay.settings import read_settings
from tests.unit.deploy.helm import (
    CHART,
    KUBE_VERSION,
    PREDECESSORS_VALUES,
    ROOT,
    environment,
    helm,
    machine,
    pod,
    rendered,
    the,
)

pytestmark = pytest.mark.helm

#: Labels that only Helm sets.
HELM_LABELS = {
    "helm.sh/chart",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "app.kubernetes.io/instance",
}


def snake(key):
    return re.sub("([A-Z])", r"_\1", key).upper()


def test_helm_finds_nothing_wrong_with_the_chart():
    answer = helm("lint", str(CHART), "--strict", values=PREDECESSORS_VALUES)
    assert answer.returncode == 0, answer.stdout
    assert "[WARNING]" not in answer.stdout


def test_the_predecessors_values_work_as_they_are():
    manifests = rendered(PREDECESSORS_VALUES)

    (container,) = pod(manifests)["containers"]
    assert container["image"] == "registry.example.com/forebay:latest"
    assert environment(manifests) == {
        "FOREBAY_HEALTH_SERVER_ADDRESS": ":8080",
        "FOREBAY_METRICS_BIND_ADDRESS": ":8443",
        "GPU_WORKER_1_NAME": "gpu-worker-1",
        "GPU_WORKER_1_GPU_COUNT": "4",
        "GPU_WORKER_1_SCALE_UP_ENDPOINT": "http://power-api/gpu-worker-1/start",
        "GPU_WORKER_1_SCALE_DOWN_ENDPOINT": "http://power-api/gpu-worker-1/stop",
        "GPU_WORKER_2_NAME": "gpu-worker-2",
        "GPU_WORKER_2_GPU_COUNT": "8",
        "GPU_WORKER_2_SCALE_UP_ENDPOINT": "http://power-api/gpu-worker-2/start",
        "GPU_WORKER_2_SCALE_DOWN_ENDPOINT": "http://power-api/gpu-worker-2/stop",
    }
    groups = read_groups(environment(manifests))
    assert groups.problems == ()
    assert [msgspec.to_builtins(each) for each in groups.machines] == PREDECESSORS_VALUES["nodeGroups"]


@pytest.mark.parametrize("namespace", ["forebay-system", "gpu"])
def test_the_manifests_of_the_command_and_of_the_chart_are_the_same(namespace):
    def comparable(manifest):
        labels = manifest["metadata"]["labels"]
        manifest["metadata"]["labels"] = {key: value for key, value in labels.items() if key not in HELM_LABELS}
        manifest.get("rules", []).sort(key=str)
        return ((manifest["kind"], manifest["metadata"]["name"]), manifest)

    plain = dict(map(comparable, install_manifests(namespace, budget_policies="v1")))
    served = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    chart = dict(map(comparable, rendered(namespace=namespace, serves=served)))

    # Helm makes the namespace itself (--create-namespace).
    assert plain.pop(("Namespace", namespace))["metadata"]["name"] == namespace
    assert chart == plain


def test_a_cluster_that_serves_only_the_beta_of_admission_policies_gets_those():
    found = rendered(serves="admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy")
    policies = [each for each in found if "MutatingAdmissionPolicy" in each["kind"]]
    assert len(policies) == 4
    assert {each["apiVersion"] for each in policies} == {"admissionregistration.k8s.io/v1beta1"}


def test_a_cluster_that_does_not_serve_admission_policies_gets_none():
    assert not [each for each in rendered() if "MutatingAdmissionPolicy" in each["kind"]]


def test_a_job_with_its_own_account_cleans_up_before_uninstallation():
    found = rendered(PREDECESSORS_VALUES, release="gpus", namespace="lab", hooks=True)
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in found} == {"pre-delete"}
    job = the("Job", found)
    spec = job["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["uninstall"]
    assert container["image"] == "registry.example.com/forebay:latest"
    assert container["env"] == [{"name": "FOREBAY_NAMESPACE", "value": "lab"}]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["serviceAccountName"] == "gpus-forebay-uninstall"
    assert the("ServiceAccount", found)["metadata"]["name"] == "gpus-forebay-uninstall"
    assert the("ClusterRole", found)["rules"] == [each.rule() for each in UNINSTALL_CLUSTER_PERMISSIONS]
    assert the("Role", found)["rules"] == [each.rule() for each in UNINSTALL_NAMESPACE_PERMISSIONS]
    for binding, role in (("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")):
        made = the(binding, found)
        assert (made["roleRef"]["kind"], made["roleRef"]["name"]) == (role, "gpus-forebay-uninstall")
        assert made["subjects"][0]["name"] == "gpus-forebay-uninstall"
    # The Job's account and roles are created before it.
    weights = {each["kind"]: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in found}
    assert weights["ClusterRole"] < weights["ClusterRoleBinding"] < weights["Job"]
    # The operator's selector does not match the Job's pod.
    selector = the("Deployment", rendered())["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()


def test_the_uninstall_job_can_leave_machines_on_or_be_disabled():
    left = the("Job", rendered({"uninstall": {"leaveMachines": True}}, hooks=True))
    assert left["spec"]["template"]["spec"]["containers"][0]["args"] == ["uninstall", "--leave-machines"]
    assert rendered({"uninstall": {"enabled": False}}, hooks=True) == []
    own = rendered({"rbac": {"create": False}}, hooks=True)
    assert [each["kind"] for each in own] == ["Job"]
    assert own[0]["spec"]["template"]["spec"]["serviceAccountName"] == "forebay"


def test_the_chart_has_the_crds():
    answer = helm("show", "crds", str(CHART))
    shown = {each["metadata"]["name"]: each for each in yaml.safe_load_all(answer.stdout) if each}
    assert shown == {each["metadata"]["name"]: each for each in custom_resource_definitions()}


def test_the_roles_have_the_permissions_in_the_code():
    manifests = rendered()
    everywhere = (*CLUSTER_PERMISSIONS, *BUDGET_PERMISSIONS, *REVIEW_PERMISSIONS)
    assert the("ClusterRole", manifests)["rules"] == [each.rule() for each in everywhere]
    assert the("Role", manifests)["rules"] == [each.rule() for each in NAMESPACE_PERMISSIONS]


def test_without_budgets_the_roles_are_smaller_and_nothing_holds_pods():
    serves = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    manifests = rendered({"budgets": {"enabled": False}}, serves=serves)
    assert the("ClusterRole", manifests)["rules"] == [
        each.rule() for each in (*CLUSTER_PERMISSIONS, *REVIEW_PERMISSIONS)
    ]
    assert not [each for each in manifests if "MutatingAdmissionPolicy" in each["kind"]]
    assert read_settings({}, environment(manifests)).budgets == "off"


def test_where_jobs_may_run_remotely_the_operator_may_be_a_kubelet():
    manifests = rendered({"offload": {"enabled": True}})
    everywhere = (*CLUSTER_PERMISSIONS, *BUDGET_PERMISSIONS, *OFFLOAD_PERMISSIONS, *REVIEW_PERMISSIONS)
    assert the("ClusterRole", manifests)["rules"] == [each.rule() for each in everywhere]
    named, printed = the("RuntimeClass", manifests), the("RuntimeClass", install_manifests(offload=True))
    assert named["metadata"]["name"] == printed["metadata"]["name"] == "runpod-virtual"
    assert (named["handler"], named["scheduling"]) == (printed["handler"], printed["scheduling"])
    assert not [each for each in install_manifests() if each["kind"] == "RuntimeClass"]


def test_no_secret_is_read_that_nobody_named():
    rules = [rule for each in rendered() for rule in each.get("rules", ())]
    assert not [rule for rule in rules if "secrets" in rule.get("resources", ()) and "get" in rule["verbs"]]
    (rule,) = (rule for rule in the("Role", rendered({"secrets": ["a"]}))["rules"] if "secrets" in rule["resources"])
    assert rule == {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a"]}


def test_the_policies_are_about_the_account_that_the_chart_installs():
    own = {"serviceAccount": {"create": False, "name": "robot"}}
    for values, user in (({}, "system:serviceaccount:lab:forebay"), (own, "system:serviceaccount:lab:robot")):
        found = rendered(values, namespace="lab")
        conditions = {
            each["metadata"]["name"]: [condition["expression"] for condition in each["spec"]["matchConditions"]]
            for each in found
            if each["kind"] == "ValidatingAdmissionPolicy"
        }
        assert f"request.userInfo.username == '{user}'" in conditions["forebay-operator-writes"]
        assert f"request.userInfo.username != '{user}'" in conditions["forebay-startup-toleration"]


def test_only_listed_secrets_and_those_that_machines_name_can_be_read():
    groups = [
        machine("a", headersSecret="power-headers", tlsClientCertificateSecret="client"),
        machine("b", hmacSecret="power-key/key", tlsCaSecret="ca/ca.crt"),
    ]
    manifests = rendered({"secrets": ["runpod"], "nodeGroups": groups})
    (rule,) = (rule for rule in the("Role", manifests)["rules"] if "secrets" in rule["resources"])
    assert rule["resourceNames"] == ["ca", "client", "power-headers", "power-key", "runpod"]


def test_two_replicas_spread_over_nodes_and_do_not_block_drains():
    manifests = rendered()
    assert the("Deployment", manifests)["spec"]["replicas"] == 2
    assert the("PodDisruptionBudget", manifests)["spec"]["maxUnavailable"] == 1
    (spread,) = pod(manifests)["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")


def test_the_operator_never_runs_on_a_machine_that_it_powers_off():
    affinity = pod(rendered(PREDECESSORS_VALUES))["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchFields"] == [
        {"key": "metadata.name", "operator": "NotIn", "values": ["gpu-worker-1"]},
        {"key": "metadata.name", "operator": "NotIn", "values": ["gpu-worker-2"]},
    ]
    for label in ("forebay.dev/nodepool", "forebay.dev/provider"):
        assert {"key": label, "operator": "DoesNotExist"} in term["matchExpressions"]


def test_the_users_node_affinity_replaces_ours_and_other_affinity_is_added_to_it():
    theirs = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]}}
    assert pod(rendered({"affinity": {"nodeAffinity": theirs}}))["affinity"] == {"nodeAffinity": theirs}
    both = pod(rendered({"affinity": {"podAntiAffinity": {"x": 1}}}))["affinity"]
    assert both.keys() == {"nodeAffinity", "podAntiAffinity"}


@pytest.mark.parametrize("name", ["affinity", "settings", "healthProbe", "leaderElection", "nodeGroups"])
def test_a_value_of_which_only_the_headline_is_left_counts_as_unset(name):
    assert "nodeAffinity" in pod(rendered({name: None}))["affinity"]


def test_users_can_configure_the_pods():
    values = {
        "replicaCount": 3,
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
        "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 2}],
        "imagePullSecrets": [{"name": "registry"}],
        "podAnnotations": {"a": "1"},
        "podLabels": {"b": "2"},
        "image": {"pullPolicy": "Never"},
        "podSecurityContext": {"runAsUser": None},
        "resources": {"limits": {"memory": "2Gi"}},
    }
    deployment = the("Deployment", rendered(values))
    template = deployment["spec"]["template"]
    spec = template["spec"]
    assert deployment["spec"]["replicas"] == 3
    # These are passed on unchanged.
    for name in ("priorityClassName", "nodeSelector", "tolerations", "topologySpreadConstraints", "imagePullSecrets"):
        assert spec[name] == values[name]
    assert template["metadata"]["annotations"] == {"a": "1"}
    assert template["metadata"]["labels"]["b"] == "2"
    assert "runAsUser" not in spec["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    (container,) = spec["containers"]
    assert container["imagePullPolicy"] == "Never"
    assert container["resources"] == {"limits": {"memory": "2Gi"}, "requests": {"cpu": "100m", "memory": "256Mi"}}


def test_every_field_of_a_machine_reaches_the_operator():
    group = machine(
        "big.box",
        gpuCount="8",
        statusEndpoint="https://power/big/status",
        timeout="10s",
        bootTimeout="20m",
        gpuType="H100",
        gpuResourceName="amd.com/gpu",
        cpu=96,
        memory=1099511627776,
        labels={"zone": "lab", "example.com/rack": "7"},
        taints=[
            {"key": "gpu", "value": "yes", "effect": "NoSchedule"},
            {"key": "lab", "effect": "PreferNoSchedule"},
        ],
        hourlyPrice=0.35,
        headersSecret="power-headers",
        hmacSecret="power/key",
        tlsCaSecret="ca/ca.crt",
        tlsClientCertificateSecret="client",
        tlsServerName="power.lab",
        tlsInsecureSkipVerify=False,
    )
    assert {f"_{key}" for key in map(snake, group)} == VARIABLES.keys()
    given = environment(rendered({"nodeGroups": [group]}))
    assert {name: value for name, value in given.items() if name.startswith("BIG_BOX_")} == {
        "BIG_BOX_NAME": "big.box",
        "BIG_BOX_GPU_COUNT": "8",
        "BIG_BOX_SCALE_UP_ENDPOINT": "http://power/big.box/on",
        "BIG_BOX_SCALE_DOWN_ENDPOINT": "http://power/big.box/off",
        "BIG_BOX_STATUS_ENDPOINT": "https://power/big/status",
        "BIG_BOX_TIMEOUT": "10s",
        "BIG_BOX_BOOT_TIMEOUT": "20m",
        "BIG_BOX_GPU_TYPE": "H100",
        "BIG_BOX_GPU_RESOURCE_NAME": "amd.com/gpu",
        "BIG_BOX_CPU": "96",
        "BIG_BOX_MEMORY": "1099511627776",
        "BIG_BOX_LABELS": "example.com/rack=7,zone=lab",
        "BIG_BOX_TAINTS": "gpu=yes:NoSchedule,lab:PreferNoSchedule",
        "BIG_BOX_HOURLY_PRICE": "0.35",
        "BIG_BOX_HEADERS_SECRET": "power-headers",
        "BIG_BOX_HMAC_SECRET": "power/key",
        "BIG_BOX_TLS_CA_SECRET": "ca/ca.crt",
        "BIG_BOX_TLS_CLIENT_CERTIFICATE_SECRET": "client",
        "BIG_BOX_TLS_SERVER_NAME": "power.lab",
        "BIG_BOX_TLS_INSECURE_SKIP_VERIFY": "false",
    }
    groups = read_groups(given)
    assert groups.problems == ()
    assert [(each.name, each.gpu_count, each.cpu, each.boot_timeout) for each in groups.machines] == [
        ("big.box", 8, "96", "20m")
    ]


def test_a_name_that_begins_with_a_digit_gets_a_prefix_for_older_kubernetes():
    given = environment(rendered({"nodeGroups": [machine("4090-box")]}))
    assert given["GPU_NODE_4090_BOX_NAME"] == "4090-box"


@pytest.mark.parametrize("setting", offered_settings(), ids=lambda setting: setting.name)
def test_every_setting_of_the_operator_can_be_set(setting):
    name = setting.name.split("_")[0] + "".join(word.capitalize() for word in setting.name.split("_")[1:])
    value = setting.choices[-1] if setting.choices else setting.default or "example.com/gpu"
    given = environment(rendered({"settings": {name: value}}))
    assert given[setting.variable] == value
    if setting.choices:
        assert getattr(read_settings({}, given), setting.name) == value


@pytest.mark.parametrize(("given", "value"), [(True, "on"), (False, "off")])
def test_an_unquoted_on_is_not_taken_for_something_else(given, value):
    assert environment(rendered({"settings": {"dryRun": given}}))["FOREBAY_DRY_RUN"] == value


def test_logs_of_remote_pods_are_reached_at_the_port_that_was_chosen():
    def kubelet(**settings):
        manifests = rendered({"offload": {"enabled": True}, "settings": settings})
        (container,) = pod(manifests)["containers"]
        ports = [each["containerPort"] for each in container["ports"] if each["name"] == "kubelet"]
        rules = the("NetworkPolicy", manifests)["spec"]["ingress"]
        return ports, {"ports": [{"port": "kubelet"}]} in rules

    assert kubelet() == ([10250], True)
    assert kubelet(logServerAddress=":10251") == ([10251], True)
    assert kubelet(logServerAddress="0") == ([], False)


def test_plain_metrics_may_share_the_port_of_the_probes():
    given = environment(rendered({"metrics": {"port": 8080, "secure": False}}))
    assert given["FOREBAY_METRICS_BIND_ADDRESS"] == given["FOREBAY_HEALTH_SERVER_ADDRESS"] == ":8080"


def test_the_port_is_the_same_everywhere():
    manifests = rendered({"port": 9090})
    (container,) = pod(manifests)["containers"]
    assert environment(manifests)["FOREBAY_HEALTH_SERVER_ADDRESS"] == ":9090"
    assert container["ports"][0] == {"name": "http", "containerPort": 9090}
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {"http"}


def test_metrics_are_for_token_holders_unless_somebody_asks_for_less():
    manifests = rendered({"metrics": {"port": 9443, "certSecret": "forebay-tls"}})
    (container,) = pod(manifests)["containers"]
    assert environment(manifests)["FOREBAY_METRICS_BIND_ADDRESS"] == ":9443"
    assert environment(manifests)["FOREBAY_METRICS_CERT_PATH"] == container["volumeMounts"][1]["mountPath"]
    assert pod(manifests)["volumes"][1]["secret"] == {"secretName": "forebay-tls"}
    assert {"name": "metrics", "containerPort": 9443} in container["ports"]
    assert the("Service", manifests)["spec"]["ports"] == [{"name": "metrics", "port": 9443, "targetPort": "metrics"}]
    reader = next(each for each in manifests if each["metadata"]["name"] == "forebay-metrics-reader")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]

    plain = rendered({"metrics": {"secure": False}})
    assert read_settings({}, environment(plain)).metrics_secure == "false"
    assert "tokenreviews" not in str(the("ClusterRole", plain)["rules"])


def test_who_may_view_a_namespace_may_view_its_pools_and_budgets_but_no_urls_of_providers():
    (found,) = [each for each in rendered() if each["metadata"]["name"] == "forebay-view"]
    expected = view_role()
    assert found["rules"] == expected["rules"]
    assert found["metadata"]["labels"].items() >= expected["metadata"]["labels"].items()
    assert found["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    (rule,) = found["rules"]
    assert set(rule["verbs"]) == {"get", "list", "watch"}
    assert not {"gpunodeclasses", "nodeprovisioners"} & set(rule["resources"])


def test_the_dashboard_is_off_until_somebody_asks_for_it():
    assert "FOREBAY_WEB_ADDRESS" not in environment(rendered())
    manifests = rendered({"web": {"enabled": True}, "metrics": {"secure": False}})
    assert environment(manifests)["FOREBAY_WEB_ADDRESS"] == ":8444"
    assert {"name": "web", "port": 8444, "targetPort": "web"} in the("Service", manifests)["spec"]["ports"]
    assert {"port": "web"} in the("NetworkPolicy", manifests)["spec"]["ingress"][0]["ports"]
    assert "tokenreviews" in str(the("ClusterRole", manifests)["rules"])


def test_the_service_monitor_selects_the_service():
    manifests = rendered({"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"}})
    monitor = the("ServiceMonitor", manifests)
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    labels = the("Service", manifests)["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("metrics", "/metrics", "15s")
    assert (endpoint["scheme"], endpoint["tlsConfig"]) == ("https", {"insecureSkipVerify": True})
    assert endpoint["bearerTokenFile"].endswith("/token")
    plain = rendered({"serviceMonitor": {"enabled": True}, "metrics": {"secure": False}})
    assert "scheme" not in the("ServiceMonitor", plain)["spec"]["endpoints"][0]
    assert "ServiceMonitor" not in {each["kind"] for each in rendered()}


def test_users_can_bring_their_own_service_account():
    manifests = rendered({"serviceAccount": {"create": False, "name": "mine"}})
    assert "ServiceAccount" not in {each["kind"] for each in manifests}
    assert pod(manifests)["serviceAccountName"] == "mine"
    assert the("ClusterRoleBinding", manifests)["subjects"][0]["name"] == "mine"
    annotated = rendered({"serviceAccount": {"annotations": {"iam": "role"}}, "rbac": {"create": False}})
    assert the("ServiceAccount", annotated)["metadata"]["annotations"] == {"iam": "role"}
    assert not {each["kind"] for each in annotated} & {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}


def test_additional_environment_variables():
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    (container,) = pod(rendered({"extraEnv": [secret]}))["containers"]
    assert container["env"][-1] == secret


@pytest.mark.parametrize(
    ("release", "name"),
    [("forebay", "forebay"), ("my-forebay", "my-forebay"), ("gpus", "gpus-forebay"), ("x" * 53, "x" * 44 + "-forebay")],
)
def test_releases_with_different_names_do_not_collide(release, name):
    # Admission policies are the cluster's, with one name each.
    manifests = [each for each in rendered(release=release) if "AdmissionPolicy" not in each["kind"]]
    assert {each["metadata"]["name"] for each in manifests} == {
        name,
        *(f"{name}-{each}" for each in ("join", "bootstrap", "kubeadm", "metrics-reader", "dashboard-reader", "view")),
    }
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in manifests} == {release}


def test_every_value_is_in_values_yaml_or_unset_and_documented():
    page = (ROOT / "docs/reference/helm.md").read_text()
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    for path, schema, _ in paths(values_schema()):
        assert f"| `{path}` |" in page
        assert schema.get("description"), path
        if "[]" in path:
            continue
        found = defaults
        for part in path.split("."):
            found = found.get(part, "unset")
            if found == "unset":
                break
        assert found == schema.get("default", "unset"), path


def test_only_scrapers_reach_the_port_of_metrics():
    (rule,) = the("NetworkPolicy", rendered())["spec"]["ingress"]
    assert rule["ports"] == [{"port": "metrics"}]
    assert {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}} in rule["from"]
    assert the("NetworkPolicy", rendered({"networkPolicy": {"scrapers": []}}))["spec"]["ingress"] == []
    disabled = rendered({"networkPolicy": {"enabled": False}})
    assert "NetworkPolicy" not in {each["kind"] for each in disabled}


def notes(tmp_path, values):
    """What Helm tells whoever has installed the chart, as a comment: `helm template` leaves it out."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    text = (chart / "templates/NOTES.txt").read_text()
    (chart / "templates/notes.yaml").write_text("".join(f"# {line}\n" for line in text.splitlines()))
    done = helm("template", "forebay", str(chart), *KUBE_VERSION, "--show-only", "templates/notes.yaml", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_after_installation_the_notes_say_where_the_dashboard_is_and_that_a_dry_run_changes_nothing(tmp_path):
    said = notes(tmp_path, {"replicaCount": 1, "web": {"enabled": True}, "settings": {"dryRun": "on"}})
    assert "1 replica with leader election" in said
    assert "port-forward service/forebay 8444" in said
    assert "https://127.0.0.1:8444/" in said
    assert "settings.dryRun is on" in said


def test_notes_are_silent_about_what_is_off(tmp_path):
    said = notes(tmp_path, {})
    assert "2 replicas with leader election" in said
    assert "dashboard" not in said
    assert "dryRun" not in said
