"""`forebay manifests install` prints one file with all manifests."""

import pytest
import yaml

from docs.generate import stale
from docs.helm_chart import CHART
from forebay.api.crd import custom_resource_definitions
from forebay.api.names import OPERATOR_NAMESPACE
from forebay.cli import main
from forebay.install.manifests import IMAGE, install_manifests


def printed(capsys, *options):
    assert main(["manifests", "install", *options]) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_the_file_has_all_manifests(capsys):
    assert printed(capsys) == [*custom_resource_definitions(), *install_manifests(OPERATOR_NAMESPACE, IMAGE)]


def test_namespace_and_image_can_be_chosen(capsys):
    documents = printed(capsys, "--namespace", "gpu", "--image", "registry.example.com/forebay:1")
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/forebay:1"
    namespaces = {each["metadata"].get("namespace", "") for each in documents}
    assert namespaces == {"", "gpu"}
    assert {subject["namespace"] for each in documents for subject in each.get("subjects", ())} == {"gpu"}


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
