"""`forebay manifests install` prints one file with all manifests."""

import pytest
import yaml

from docs.generate import stale
from docs.helm_chart import CHART
from forebay.api.names import OPERATOR_NAME, OPERATOR_NAMESPACE
from forebay.cli import main
from forebay.install.crds import custom_resource_definitions
from forebay.install.manifests import IMAGE, install_manifests
from forebay.install.roles import rbac_manifests


def printed(capsys, *options):
    assert main(["manifests", "install", *options]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_the_file_has_all_manifests(capsys):
    assert printed(capsys) == [*custom_resource_definitions(), *install_manifests(OPERATOR_NAMESPACE, IMAGE)]


@pytest.mark.parametrize(
    ("options", "versions"),
    [
        ([], set()),
        (["--kube-version", "1.34"], set()),
        (["--kube-version", "v1.35.4+k3s1"], set()),
        (["--kube-version", "1.36"], {"admissionregistration.k8s.io/v1"}),
        (["--kube-version", "1.35", "--budget-policies", "v1beta1"], {"admissionregistration.k8s.io/v1beta1"}),
        (["--kube-version", "1.36", "--budget-policies", "none"], set()),
    ],
)
def test_policies_that_a_cluster_may_not_serve_are_printed_only_where_it_does(capsys, options, versions):
    found = [each for each in printed(capsys, *options) if "MutatingAdmissionPolicy" in each["kind"]]
    assert {each["apiVersion"] for each in found} == versions


def test_who_gets_no_policies_of_budgets_is_told(capsys):
    main(["manifests", "install"])
    assert "nothing holds new pods of a used-up GPUWorkloadBudget" in capsys.readouterr().err
    main(["manifests", "install", "--kube-version", "1.36"])
    assert capsys.readouterr().err == ""


def test_only_named_secrets_are_readable(capsys):
    rules = [rule for each in printed(capsys) for rule in each.get("rules", ())]
    assert not [rule for rule in rules if "secrets" in rule.get("resources", ()) and "get" in rule["verbs"]]
    named = [rule for each in printed(capsys, "--secret", "a", "--secret", "b") for rule in each.get("rules", ())]
    (rule,) = (rule for rule in named if "secrets" in rule.get("resources", ()) and "get" in rule["verbs"])
    assert rule["resourceNames"] == ["a", "b"]


def test_namespace_and_image_can_be_chosen(capsys):
    documents = printed(capsys, "--namespace", "gpu", "--image", "registry.example.com/forebay:1")
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/forebay:1"
    namespaces = {each["metadata"].get("namespace", "") for each in documents}
    # Bootstrap tokens are found in kube-system only.
    assert namespaces == {"", "gpu", "kube-system"}
    subjects = [subject for each in documents for subject in each.get("subjects", ())]
    assert {each["namespace"] for each in subjects if each["kind"] == "ServiceAccount"} == {"gpu"}


def test_the_file_has_no_yaml_aliases(capsys):
    main(["manifests", "install"])
    assert "&id" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--namespace", "My_Namespace"], "forebay: --namespace is 'My_Namespace'; a namespace has at most 63"),
        (["--namespace", ""], "forebay: --namespace is ''"),
        (["--image", "two words"], "forebay: --image is 'two words'; give a name such as"),
        (["--image", ""], "forebay: --image is ''"),
        (["--secret", "Not_A_Name"], "forebay: --secret is 'Not_A_Name'; give the name of a Secret"),
        (["--kube-version", "latest"], "forebay: --kube-version is 'latest'; give a version such as 1.36"),
        (["--kube-version", "1.33.13"], "forebay: --kube-version is 1.33.13; Forebay needs Kubernetes 1.34 or later"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_printed(capsys, options, sentence):
    assert main(["manifests", "install", *options]) == 2
    output = capsys.readouterr()
    assert output.err.startswith(sentence)
    assert output.out == ""


def test_the_crd_of_a_removed_kind_leaves_the_chart(tmp_path):
    leftover = tmp_path / CHART / "crds/gpurequests.tgp.io.yaml"
    leftover.parent.mkdir(parents=True)
    leftover.write_text("kind: CustomResourceDefinition")
    assert stale(tmp_path)[f"{CHART}/crds/gpurequests.tgp.io.yaml"] == ""


def test_without_budgets_no_permission_and_no_policy_of_theirs_is_printed(capsys):
    found = printed(capsys, "--budgets", "off", "--kube-version", "1.36")
    assert found == [*custom_resource_definitions(), *install_manifests(OPERATOR_NAMESPACE, IMAGE, budgets=False)]
    [role] = [each for each in found if each["kind"] == "ClusterRole" and each["metadata"]["name"] == OPERATOR_NAME]
    assert "jobs" not in {resource for rule in role["rules"] for resource in rule["resources"]}
    assert not [each for each in found if "MutatingAdmissionPolicy" in each["kind"]]
    [operator] = [each for each in found if each["kind"] == "Deployment"]
    [container] = operator["spec"]["template"]["spec"]["containers"]
    assert {"name": "FOREBAY_BUDGETS", "value": "off"} in container["env"]
    main(["manifests", "install", "--budgets", "off"])
    assert capsys.readouterr().err == ""


def test_a_dry_run_needs_permissions_to_read_and_no_others():
    full, reading = (
        {
            (group, resource)
            for each in rbac_manifests("forebay-system", ("keys",), read_only=read_only)
            if each["kind"] in {"Role", "ClusterRole"}
            for rule in each["rules"]
            if "nonResourceURLs" not in rule and not {"list", "watch", "get"}.isdisjoint(rule["verbs"])
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        for read_only in (False, True)
    )
    verbs = {
        verb
        for each in rbac_manifests("forebay-system", ("keys",), read_only=True)
        for rule in each.get("rules", ())
        for verb in rule["verbs"]
    }
    assert verbs == {"get", "list", "watch"}
    assert reading == full
