"""Our own CRDs as shipped: accepted without a warning, and served."""

from pathlib import Path

import pytest
import yaml

from tests.contract.kube.api_client import TABLE

DEFINITIONS = sorted((Path(__file__).parents[3] / "deploy" / "crds").glob("*.yaml"))


def crd(path):
    [body] = [document for document in yaml.safe_load_all(path.read_text()) if document]
    return body


def test_there_are_crds_to_install():
    assert DEFINITIONS


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem.partition(".")[0])
async def test_a_crd_is_accepted_and_served(api, path):
    body = crd(path)
    spec = body["spec"]

    served = await api.install(body)

    stored = await api.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1").get(body["metadata"]["name"])
    conditions = {entry["type"]: entry["status"] for entry in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions["NamesAccepted"] == "True"
    # A schema that is not structural is stored nevertheless, with this condition.
    assert conditions.get("NonStructuralSchema", "False") == "False"
    [version] = [version for version in spec["versions"] if version["storage"]]
    table = await served.list(accept=TABLE)
    printed = [column["name"] for column in version.get("additionalPrinterColumns", [])]
    expected = printed if "Age" in printed else [*printed, "Age"]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", *expected]


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem.partition(".")[0])
async def test_a_crd_is_applied_twice_without_a_change(api, path):
    body = crd(path)
    await api.install(body)
    definitions = api.cluster("customresourcedefinitions", "apiextensions.k8s.io/v1")
    before = await definitions.get(body["metadata"]["name"])

    after = await definitions.patch(body["metadata"]["name"], {"spec": body["spec"]}, fieldValidation="Strict")

    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
