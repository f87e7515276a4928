"""The API server's rules about known providers and the condition about any provider say the same."""

import itertools

import msgspec
import pytest

from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.embedded.api.schema import default, validate
from forebay.install.crds import custom_resource_definitions
from forebay.model.sources import Capabilities, Delivery, Join
from forebay.providers.admission import KNOWN, entry_problem, joining_problem
from forebay.providers.registry import providers
from tests.unit.api.examples import example

(CRD,) = (each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == "GPUNodeClass")
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
MACHINES = example("gpunodeclass-owned-machines")["spec"]["providers"][0]["machines"]
JOINS = {
    Join.TALOS: example("gpunodeclass-gcp-talos")["spec"]["talosConfig"],
    Join.K3S: example("gpunodeclass-k3s-tailscale")["spec"]["k3sConfig"],
    Join.CLOUD_INIT: {"template": "#cloud-config"},
}
KEY = {"name": "key", "key": "token"}


def specs(name):
    for key, machines, join in itertools.product((None, KEY), (None, MACHINES), (None, *JOINS)):
        entry = {"name": name, "credentialsRef": key, "machines": machines}
        joins = {str(join): JOINS[join]} if join else {}
        yield {"providers": [{field: value for field, value in entry.items() if value}], **joins}


def configuration_problem(entry, spec, capabilities):
    return entry_problem(entry, capabilities) or joining_problem(entry, spec, capabilities)


def refusals(spec):
    manifest = {"apiVersion": "forebay.dev/v1alpha1", "kind": "GPUNodeClass", "metadata": {"name": "c"}, "spec": spec}
    default(SCHEMA, manifest)
    return [cause.message for cause in validate(SCHEMA, manifest, None)]


@pytest.mark.parametrize("name", KNOWN)
def test_the_api_server_refuses_what_the_condition_of_the_class_would_report(name):
    capabilities = KNOWN[name]
    seen = set()
    for document in specs(name):
        spec = msgspec.convert(document, GPUNodeClassSpec)
        problem = configuration_problem(spec.providers[0], spec, capabilities)
        # That a way to join is set which nobody uses concerns the class, not a provider.
        refused = [each for each in refusals(document) if "no enabled provider can use" not in each]
        assert bool(refused) == (problem is not None), (document, refused, problem)
        seen.add(problem is None)
    assert seen == {True, False}


def test_capabilities_of_a_provider_that_is_served_are_those_the_rules_were_made_of():
    # But for instance groups: no release serves a NodeProvisioner yet, so no provider has them.
    assert {name: KNOWN[name] for name in providers()} == {
        name: plugin.capabilities for name, plugin in providers().items()
    }


def test_only_a_provider_of_machines_says_how_they_join():
    for capabilities in KNOWN.values():
        assert (Delivery.NODE in capabilities.deliveries) == bool(capabilities.joins)
        assert capabilities.joins or not capabilities.needs_join


@pytest.mark.parametrize("join", JOINS)
def test_the_api_server_leaves_a_provider_that_it_does_not_know_alone(join):
    entry = {"name": "my-cloud", "machines": MACHINES, "credentialsRef": KEY}
    assert refusals({"providers": [entry], str(join): JOINS[join]}) == []
    assert refusals({"providers": [{"name": "my-cloud"}]}) == []


@pytest.mark.parametrize("name", ["", "My-Cloud", "my_cloud", "-cloud", "cloud-", "4cloud", "c" * 41, "a--b", "a-1"])
def test_a_name_that_cannot_be_part_of_a_label_and_a_condition_is_refused(name):
    assert refusals({"providers": [{"name": name}]})


def test_a_provider_that_nobody_knows_is_told_what_its_entry_lacks():
    rents = Capabilities(
        deliveries=(Delivery.NODE,), joins=frozenset({Join.K3S}), needs_join=True, needs_credentials=True
    )
    by_talos = msgspec.convert(
        {"providers": [{"name": "my-cloud", "credentialsRef": KEY}], "talosConfig": JOINS[Join.TALOS]}, GPUNodeClassSpec
    )
    assert configuration_problem(by_talos.providers[0], by_talos, rents) == (
        "my-cloud cannot boot Talos: move it to another GPUNodeClass."
    )
    bare = msgspec.convert({"providers": [{"name": "my-cloud"}]}, GPUNodeClassSpec)
    assert configuration_problem(bare.providers[0], bare, rents) == (
        "my-cloud needs an API key: set credentialsRef to the Secret and the key that hold it."
    )
