"""Examples of delivery (Argo CD, Flux, AKS) and the workflows: they name what is there."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from forebay import __version__
from tests.unit.deploy.helm import ROOT, rendered

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def documents(path):
    return {each["kind"]: each for each in yaml.safe_load_all((ROOT / path).read_text())}


@pytest.mark.helm
def test_argo_cd_installs_our_chart_with_values_it_takes():
    source = documents("deploy/argocd/application.yaml")["Application"]["spec"]["source"]
    assert (ROOT / source["path"] / "Chart.yaml").is_file()
    manifests = rendered(source["helm"]["valuesObject"])
    assert any("registry.example.com/forebay" in json.dumps(each) for each in manifests)


@pytest.mark.helm
def test_flux_installs_our_chart_with_values_it_takes():
    found = documents("deploy/flux/forebay.yaml")
    release = found["HelmRelease"]["spec"]
    assert (ROOT / release["chart"]["spec"]["chart"] / "Chart.yaml").is_file()
    assert release["chart"]["spec"]["sourceRef"]["name"] == found["GitRepository"]["metadata"]["name"]
    assert {each["metadata"].get("namespace", "forebay-system") for each in found.values()} == {"forebay-system"}
    assert rendered(release["values"])


def test_the_example_gives_every_parameter_of_the_aks_template_and_no_other():
    declared = re.findall(r"^param (\w+)", (ROOT / "deploy/aks/main.bicep").read_text(), re.MULTILINE)
    example = json.loads((ROOT / "deploy/aks/parameters.example.json").read_text())["parameters"]
    assert list(example) == declared


def test_the_aks_cluster_is_of_a_version_that_forebay_supports():
    from forebay.kube.versions import unsupported_text

    (default,) = re.findall(
        r"^param kubernetesVersion string = '(.*)'", (ROOT / "deploy/aks/main.bicep").read_text(), re.MULTILINE
    )
    assert unsupported_text(default) is None


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_targets_of_the_makefile_and_files_that_exist(path):
    jobs = yaml.safe_load(path.read_text())["jobs"]
    steps = [step for job in jobs.values() for step in job.get("steps", [])]
    commands = "\n".join(step["run"] for step in steps if "run" in step)
    made = {
        word for line in re.findall(r"^make (.*)$", commands, re.MULTILINE) for word in line.split() if "=" not in word
    }
    assert made <= TARGETS
    # Made by whoever enables the workflow, from the example.
    named = set(re.findall(r"\bdeploy/[\w./-]+", commands)) - {"deploy/aks/parameters.json"}
    assert all((ROOT / each).exists() for each in named)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_more_rights_than_it_says_and_ends(path):
    workflow = yaml.safe_load(path.read_text())
    assert set(workflow["permissions"]) <= {"contents", "id-token"}
    assert workflow["permissions"]["contents"] == "read"
    for job in workflow["jobs"].values():
        for step in job.get("steps", []):
            # By a release, never by a branch that somebody else moves.
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step.get("uses", "a/b@v1"))
            # What the user of a workflow gives is data, never part of a script.
            assert "${{" not in step.get("run", "")


def test_what_ci_runs_is_what_the_readme_says():
    (ci,) = (path for path in WORKFLOWS if path.stem == "ci")
    assert "make check test" in ci.read_text()
    assert "make check test" in Path(ROOT / ".ci/run").read_text()


@pytest.mark.parametrize(("tag", "code"), [(__version__, 0), ("99.0.0", 2)])
def test_a_release_has_the_version_of_the_package(tag, code):
    done = subprocess.run(["make", "-s", "tagged", f"TAG={tag}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert (f"The tag is {tag} and src/forebay/__init__.py says {__version__}" in done.stderr) == (code != 0)
