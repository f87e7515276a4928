"""Talos machine configs: written by Forebay, from a template, and what a class says that no machine could join with."""

import pytest
import yaml

from forebay.api.names import STARTUP_TAINT
from forebay.bootstrap.class_checks import join_problem
from forebay.bootstrap.talos import (
    UnusableMachineSecrets,
    cluster_values,
    machine_config,
    machine_secrets,
)
from forebay.bootstrap.templates import UnusableTemplate
from forebay.model.sources import Capabilities, Delivery, Join
from forebay.net.redaction import Redactor
from tests.joining import TAILSCALE, TALOS, TALOS_TEMPLATE, joining_record, spec_of, talos_bundle

BUNDLE = talos_bundle()
RECORD = joining_record()
TALOS_CLOUD = Capabilities(deliveries=(Delivery.NODE,), joins=frozenset(Join), needs_join=True)
KUBELET = "ghcr.io/siderolabs/kubelet:v1.36.4"


def config(*, tailscale=None, record=RECORD, **fields):
    """The documents of the machine's config."""
    spec = spec_of(talosConfig={**TALOS, **fields}, **({"tailscaleConfig": tailscale} if tailscale else {}))
    secrets = machine_secrets(yaml.safe_dump(BUNDLE))
    values = {**cluster_values(spec.talos_config, secrets, KUBELET), "BootstrapToken": "abcdef.0123456789abcdef"}
    if tailscale:
        values["TailscaleAuthKey"] = "tskey-auth-1"
    return list(yaml.safe_load_all(machine_config(record, spec, values)))


def problem(template=TALOS_TEMPLATE, **fields):
    return join_problem(spec_of(talosConfig={**TALOS, "machineConfigTemplate": template, **fields}), TALOS_CLOUD)


def test_a_written_config_has_the_secrets_of_the_bundle_where_talos_reads_them():
    main, hostname = config()
    assert main["machine"]["type"] == "worker"
    assert main["machine"]["token"] == BUNDLE["trustdinfo"]["token"]
    assert main["machine"]["ca"] == {"crt": BUNDLE["certs"]["os"]["crt"], "key": ""}
    assert main["cluster"]["ca"] == {"crt": BUNDLE["certs"]["k8s"]["crt"], "key": ""}
    assert main["cluster"]["token"] == "abcdef.0123456789abcdef", "its own, and not the one in the bundle"
    assert (main["cluster"]["id"], main["cluster"]["secret"]) == tuple(BUNDLE["cluster"].values())
    assert main["cluster"]["controlPlane"] == {"endpoint": "https://10.0.0.1:6443"}
    assert (hostname["kind"], hostname["hostname"]) == ("HostnameConfig", "gpu-1")
    text = str((main, hostname))
    assert "c2VjcmV0" not in text.split(), "no key of an authority leaves the cluster"


def test_a_written_config_registers_the_node_with_labels_taints_and_provider_id():
    main, _ = config()
    kubelet = main["machine"]["kubelet"]
    assert kubelet["image"] == KUBELET
    assert kubelet["extraArgs"]["provider-id"] == f"forebay://lambdalabs/{RECORD.uid}"
    own = {"key": STARTUP_TAINT, "value": RECORD.uid, "effect": "NoSchedule"}
    assert kubelet["extraConfig"]["registerWithTaints"][0] == own
    assert main["machine"]["nodeLabels"]["tgp.io/nodepool"] == "research"
    assert "node-role.kubernetes.io/control-plane" not in main["machine"]["nodeLabels"]


def test_a_written_config_loads_the_nvidia_driver():
    main, _ = config()
    assert [each["name"] for each in main["machine"]["kernel"]["modules"]] == [
        "nvidia",
        "nvidia_uvm",
        "nvidia_drm",
        "nvidia_modeset",
    ]
    assert main["machine"]["sysctls"] == {"net.core.bpf_jit_harden": "1"}


def test_an_older_talos_is_told_its_name_in_the_old_place():
    (main,) = config(version="v1.11.6")
    assert main["machine"]["network"] == {"hostname": "gpu-1"}


def test_images_and_the_cluster_s_name_are_the_class_s():
    template = TALOS_TEMPLATE.replace("type: worker", "type: worker\n  install:\n    image: {{.TalosImage}}")
    (main,) = config(machineConfigTemplate=template, image="mine:1", kubeletImage="kubelet:1", clusterName="lab")
    assert main["machine"]["install"] == {"image": "mine:1"}
    assert main["machine"]["kubelet"]["image"] == "kubelet:1"
    assert main["cluster"]["clusterName"] == "lab"


def test_tailscale_is_a_document_of_its_own():
    (*_, service) = config(tailscale={**TAILSCALE, "acceptRoutes": True, "advertiseRoutes": ["10.1.0.0/16"]})
    assert (service["kind"], service["name"]) == ("ExtensionServiceConfig", "tailscale")
    assert service["environment"] == [
        "TS_AUTHKEY=tskey-auth-1",
        "TS_HOSTNAME=gpu-1",
        "TS_AUTH_ONCE=true",
        "TS_ACCEPT_ROUTES=true",
        "TS_ROUTES=10.1.0.0/16",
    ]
    (*_, service) = config(tailscale={**TAILSCALE, "controlURL": "https://hs.example"})
    assert service["environment"][-1] == "TS_EXTRA_ARGS=--login-server=https://hs.example"


def test_a_template_that_configures_tailscale_itself_gets_no_second_one():
    own = (
        "---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: tailscale\n"
        "environment:\n  - TS_AUTHKEY={{.TailscaleAuthKey}}\n  - TS_EXTRA_ARGS={{.TailscaleFlags}}\n"
    )
    documents = config(machineConfigTemplate=TALOS_TEMPLATE + own, tailscale=TAILSCALE)
    assert [each.get("kind") for each in documents] == [None, "ExtensionServiceConfig"]
    assert documents[1]["environment"] == ["TS_AUTHKEY=tskey-auth-1", "TS_EXTRA_ARGS=--accept-routes=false"]


def test_a_good_template_is_used_as_it_is():
    assert problem() is None
    (main,) = config(machineConfigTemplate=TALOS_TEMPLATE)
    arguments = main["machine"]["kubelet"]["extraArgs"]
    assert f"{STARTUP_TAINT}={RECORD.uid}:NoSchedule" in arguments["register-with-taints"].split(",")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  type: worker\n", "", "machine.type is not worker"),
        ("type: worker", "type: controlplane", "machine.type is not worker"),
        ("  token: {{.MachineToken}}\n", "", "machine.token is missing"),
        ("{{.MachineCA}}", "{{.ClusterCA}}", "machine.ca.crt is the CA of Kubernetes"),
        ("    crt: {{.ClusterCA}}", "    crt: {{.MachineCA}}", "CA of"),
        ("    crt: {{.ClusterCA}}", "    crt: bm8gY2VydGlmaWNhdGU=", "cluster.ca.crt is not a certificate in base64"),
        ("  token: {{.BootstrapToken}}\n", "", "cluster.token is missing: it must be {{.BootstrapToken}}"),
        ("{{.NodeName}}", "my-node", "the hostname is not the name of the node"),
        ("machine:\n", "machine:\n  systemd: {}\n", "Talos has no systemd"),
        (
            "machine:\n",
            "machine:\n  files:\n  - {path: /etc/x, op: create, content: y}\n",
            "Talos lets nobody create /etc/x",
        ),
        ("{{.ControlPlaneEndpoint}}", "10.0.0.1:6443", "cluster.controlPlane.endpoint is no https URL"),
        ("{{.NodeName}}", "{{.Hostname}}", "The template uses Hostname, which has no value here"),
        ("machine:\n", "{{if .NodeName}}\nmachine:\n", "without logic or functions"),
        ("machine:\n", "machine: [\n", "the machine config is not YAML"),
        ("{{.NodeName}}", "{{.NodeName}} {{.TailscaleAuthKey}}", "The template uses TailscaleAuthKey"),
    ],
)
def test_a_template_with_which_no_machine_could_join_is_an_error_of_the_class(old, new, said):
    assert old in TALOS_TEMPLATE
    found = problem(TALOS_TEMPLATE.replace(old, new))
    assert found is not None
    assert found.startswith("talosConfig.machineConfigTemplate cannot be used: ")
    assert said in found
    assert Redactor().text(found) == found, "it is shown whole"


def test_a_class_must_name_the_image_and_the_endpoint():
    without = {key: value for key, value in TALOS.items() if key != "image"}
    assert "talosConfig.image is not set" in join_problem(spec_of(talosConfig=without), TALOS_CLOUD)
    without = {key: value for key, value in TALOS.items() if key != "controlPlaneEndpoint"}
    assert "controlPlaneEndpoint is not set" in join_problem(spec_of(talosConfig=without), TALOS_CLOUD)
    assert "set talosConfig.controlPlaneEndpoint" in problem(controlPlaneEndpoint=None)


def test_what_is_no_bundle_is_named_without_showing_it():
    for text in ("just text", "a: [", "cluster: {id: x}", "cluster: {id: x, secret: s3cret}\ncerts: 1\n"):
        with pytest.raises(UnusableMachineSecrets) as caught:
            machine_secrets(text)
        assert "this is not what talosctl gen secrets writes" in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_a_bundle_with_a_broken_certificate_launches_nothing():
    broken = {**BUNDLE, "certs": {**BUNDLE["certs"], "k8s": {"crt": "bm8="}}}
    spec = spec_of(talosConfig=TALOS)
    values = cluster_values(spec.talos_config, machine_secrets(yaml.safe_dump(broken)), KUBELET)
    with pytest.raises(UnusableTemplate, match=r"cluster.ca.crt is not a certificate"):
        machine_config(RECORD, spec, {**values, "BootstrapToken": "abcdef.0123456789abcdef"})


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("  files: [foo]", "machine.files has an entry that is no mapping"),
        ("  files: 3", "machine.files has an entry that is no mapping"),
        ("  made: 2024-99-99", "a value is not of the type that it is written as"),
        ("  size: !!int large", "a value is not of the type that it is written as"),
        (f"  deep: {'[' * 5000}{']' * 5000}", "nested too deeply"),
    ],
)
def test_a_template_of_unexpected_types_is_a_sentence_and_no_crash(section, said):
    found = problem(TALOS_TEMPLATE.replace("machine:\n", f"machine:\n{section}\n", 1))
    assert found is not None
    assert said in found


@pytest.mark.parametrize(
    "document",
    ["kind: ExtensionServiceConfig\nname: a\nenvironment: 3", "kind: HostnameConfig\nhostname: {a: b}"],
)
def test_a_further_document_of_unexpected_types_is_a_sentence_and_no_crash(document):
    assert problem(f"{TALOS_TEMPLATE}\n---\n{document}\n") is not None


@pytest.mark.parametrize("text", ["token: 2024-99-99", "a: !!int x", "[" * 5000])
def test_machine_secrets_that_are_hardly_yaml_are_refused(text):
    with pytest.raises(UnusableMachineSecrets, match="it is not YAML"):
        machine_secrets(text)
