"""What machines are told at boot, as the programs that read it see it."""

import itertools
import subprocess
from pathlib import Path

import pytest
import yaml

from forebay.bootstrap.k3s import k3s_script
from forebay.bootstrap.kubeadm import join_configuration, kubeadm_script
from forebay.bootstrap.scripts import cloud_config
from forebay.bootstrap.tailscale import tailscale_step
from forebay.bootstrap.talos import cluster_values, machine_config, machine_secrets
from tests.joining import AWKWARD, K3S, KUBEADM, TAILSCALE, TALOS, TALOS_TEMPLATE, joining_record, spec_of

RECORD = joining_record()
TOKEN = "abcdef.0123456789abcdef"
FULL_TAILSCALE = {
    **TAILSCALE,
    "hostname": "gpu-{{.NodeName}}",
    "acceptRoutes": True,
    "advertiseRoutes": ["10.1.0.0/16"],
    "controlURL": "https://headscale.example",
}


def scripts():
    """Every kind of script, by a name."""
    tailscale = spec_of(tailscaleConfig=FULL_TAILSCALE).tailscale_config
    for network, awkward in itertools.product((None, tailscale_step(RECORD, tailscale, "tskey-auth-1")), (False, True)):
        name = f"{'tailscale' if network else 'plain'}-{'awkward' if awkward else 'usual'}"
        k3s = spec_of(k3sConfig={**K3S, "extraArgs": AWKWARD if awkward else []}).k3s_config
        yield f"k3s-{name}", k3s_script(RECORD, k3s, token="K10aa::x", version="v1.36.4+k3s1", network=network)
        kubeadm = spec_of(kubeadmConfig=KUBEADM).kubeadm_config
        script = kubeadm_script(RECORD, kubeadm, token=TOKEN, version="v1.36.4", pins=(), network=network)
        yield f"kubeadm-{name}", script


@pytest.mark.parametrize(("name", "text"), list(scripts()), ids=lambda each: each[:40] if "#!" not in each else "")
def test_shellcheck_finds_nothing(part, name, text):
    done = subprocess.run([part("shellcheck"), "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name}:\n{done.stdout}"


def test_shellcheck_does_find_something(part):
    done = subprocess.run(
        [part("shellcheck"), "-"], input="#!/bin/bash\nrm $1\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 1


@pytest.mark.parametrize(("name", "text"), list(scripts()), ids=lambda each: each[:40] if "#!" not in each else "")
def test_cloud_init_takes_the_user_data(cloud_init_schema, tmp_path, name, text):
    command, environment = cloud_init_schema
    path = tmp_path / name
    path.write_text(cloud_config(text))
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_cloud_init_does_refuse_something(cloud_init_schema, tmp_path):
    command, environment = cloud_init_schema
    path = tmp_path / "bad"
    path.write_text("#cloud-config\nwrite_files: {path: /x}\n")
    assert subprocess.run([*command, path], capture_output=True, check=False, env=environment).returncode != 0


def validate(kubeadm, path, text):
    path.write_text(text)
    command = [kubeadm, "config", "validate", "--config", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("node_ip", [None, "100.64.0.7"])
def test_kubeadm_takes_the_join_configuration(part, tmp_path, node_ip):
    config = spec_of(kubeadmConfig=KUBEADM).kubeadm_config
    text = join_configuration(RECORD, config, token=TOKEN, pins=(), node_ip=node_ip)
    code, said = validate(part("kubeadm"), tmp_path / "join.yaml", text)
    assert code == 0, said


def test_kubeadm_does_refuse_something(part, tmp_path):
    config = spec_of(kubeadmConfig={"controlPlaneEndpoint": "10.0.0.1:6443"}).kubeadm_config
    text = join_configuration(RECORD, config, token=TOKEN, pins=())
    code, said = validate(part("kubeadm"), tmp_path / "join.yaml", text)
    assert code != 0
    assert "caCertHashes" in said, "a machine must not trust just any cluster"


@pytest.fixture
def talos(part, tmp_path):
    """Writes a config from secrets that Talos' own machinery made, and has that machinery validate it."""
    program = part("talosval")
    bundle = subprocess.run([program, "secrets"], capture_output=True, text=True, check=True).stdout
    secrets = machine_secrets(bundle)

    def validated(change=lambda text: text, **fields):
        spec = spec_of(talosConfig={**TALOS, **fields}, tailscaleConfig=FULL_TAILSCALE)
        values = cluster_values(spec.talos_config, secrets, "ghcr.io/siderolabs/kubelet:v1.36.4")
        text = machine_config(RECORD, spec, {**values, "BootstrapToken": TOKEN, "TailscaleAuthKey": "tskey-auth-1"})
        path = tmp_path / "machine.yaml"
        path.write_text(change(text))
        done = subprocess.run([program, "validate", "cloud", path], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return validated


@pytest.mark.parametrize("version", ["v1.11.6", "v1.12.11", "v1.13.9"])
def test_talos_takes_the_config_that_forebay_writes(talos, version):
    code, said = talos(version=version)
    assert code == 0, said
    assert "warning" not in said


def test_talos_takes_the_config_of_a_template(talos):
    code, said = talos(machineConfigTemplate=TALOS_TEMPLATE)
    assert code == 0, said


def test_talos_does_refuse_something(talos):
    code, said = talos(lambda text: text.replace("type: worker", "type: worker\n  systemd: {}"))
    assert code != 0
    assert "systemd" in said


def test_the_example_of_the_documentation_is_a_machine_config(talos):
    example = Path(__file__).parents[2] / "docs/examples/gpunodeclass-gcp-talos.yaml"
    template = yaml.safe_load(example.read_text())["spec"]["talosConfig"]["machineConfigTemplate"]
    code, said = talos(machineConfigTemplate=template)
    assert code == 0, said
