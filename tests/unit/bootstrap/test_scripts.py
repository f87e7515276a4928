"""Boot scripts of k3s agents and of kubeadm: what a machine is told, word for word."""

import shlex
import subprocess

import msgspec
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from forebay.api.names import STARTUP_TAINT
from forebay.bootstrap.k3s import join_token, k3s_script
from forebay.bootstrap.kubeadm import authority_hashes, join_configuration, kubeadm_script
from forebay.bootstrap.scripts import cloud_config, file_step, script
from forebay.bootstrap.tailscale import hostname as tailscale_name
from forebay.bootstrap.tailscale import tailscale_step
from tests.joining import AWKWARD, K3S, KUBEADM, PIN, TAILSCALE, joining_record, spec_of
from tests.pki import Authority

TOKEN = "abcdef.0123456789abcdef"
RECORD = joining_record()
OWN_TAINT = {"key": STARTUP_TAINT, "value": RECORD.uid, "effect": "NoSchedule"}
PROVIDER_ID = f"forebay://lambdalabs/{RECORD.uid}"


def k3s(network=None, **fields):
    config = spec_of(k3sConfig={**K3S, **fields}).k3s_config
    return k3s_script(RECORD, config, token="K10aa::node:secret", version="v1.36.4+k3s1", network=network)


def kubeadm(network=None, **fields):
    config = spec_of(kubeadmConfig={**KUBEADM, **fields}).kubeadm_config
    return kubeadm_script(RECORD, config, token=TOKEN, version="v1.36.4", pins=(), network=network)


def network(**fields):
    return tailscale_step(RECORD, spec_of(tailscaleConfig={**TAILSCALE, **fields}).tailscale_config, "tskey-auth-1")


def written(text, path):
    """The file that the script writes there."""
    return text.split(f"cat > {path} << 'FOREBAY_END'\n")[1].split("FOREBAY_END\n")[0]


def test_a_k3s_agent_registers_with_its_name_labels_taints_and_provider_id():
    config = yaml.safe_load(written(k3s(), "/etc/rancher/k3s/config.yaml"))
    assert config == {
        "server": "https://10.0.0.1:6443",
        "token": "K10aa::node:secret",
        "node-name": "gpu-1",
        "node-label": [
            "forebay.dev/nodepool=research",
            "node.kubernetes.io/instance-type=gpu_1x_gh200",
            "tgp.io/nodepool=research",
            "topology.kubernetes.io/region=us-east-1",
        ],
        "node-taint": [
            f"{STARTUP_TAINT}={RECORD.uid}:NoSchedule",
            "nvidia.com/gpu=:NoSchedule",
            "cilium.io/not-ready=true:NoExecute",
        ],
        "kubelet-arg": [f"provider-id={PROVIDER_ID}"],
    }


def test_a_kubeadm_join_names_the_node_its_own_token_and_the_keys_to_trust():
    document = yaml.safe_load(written(kubeadm(), "/run/forebay/join.yaml"))
    assert document["discovery"] == {
        "bootstrapToken": {"apiServerEndpoint": "10.0.0.1:6443", "token": TOKEN, "caCertHashes": [PIN]},
        "tlsBootstrapToken": TOKEN,
    }
    registration = document["nodeRegistration"]
    assert registration["name"] == "gpu-1"
    assert registration["taints"][0] == OWN_TAINT
    arguments = {each["name"]: each["value"] for each in registration["kubeletExtraArgs"]}
    assert arguments["provider-id"] == PROVIDER_ID
    assert "tgp.io/nodepool=research" in arguments["node-labels"].split(",")
    assert "control-plane" not in arguments["node-labels"], "a kubelet with that label is refused"


def test_the_cluster_s_own_authority_is_trusted_where_the_class_names_none():
    authority = Authority()
    key = (
        x509.load_pem_x509_certificate(authority.certificate)
        .public_key()
        .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    digest = hashes.Hash(hashes.SHA256())
    digest.update(key)
    pins = authority_hashes(authority.certificate)
    assert pins == (f"sha256:{digest.finalize().hex()}",)
    config = spec_of(kubeadmConfig={"controlPlaneEndpoint": "10.0.0.1:6443"}).kubeadm_config
    document = yaml.safe_load(join_configuration(RECORD, config, token=TOKEN, pins=pins))
    assert document["discovery"]["bootstrapToken"]["caCertHashes"] == list(pins)


@pytest.mark.parametrize("text", [k3s(), kubeadm(), k3s(network()), kubeadm(network())])
def test_binaries_are_those_of_the_machine_s_architecture(text):
    assert "x86_64) arch=amd64" in text
    assert "aarch64 | arm64) arch=arm64" in text
    assert "linux/$arch/" in text or 'file="k3s-$arch"' in text


@pytest.mark.parametrize("text", [k3s(), kubeadm(), k3s(network()), kubeadm(network())])
def test_bash_can_read_the_script(text):
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_arguments_reach_k3s_as_they_were_written():
    unit = written(k3s(extraArgs=AWKWARD), "/etc/systemd/system/k3s-agent.service")
    (line,) = (each for each in unit.splitlines() if each.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart=/usr/local/bin/k3s agent "))
    assert [each.replace("%%", "%").replace("$$", "$") for each in words] == AWKWARD


def test_a_file_is_taken_as_it_is(tmp_path):
    path, text = tmp_path / "a b" / "file", "$HOME `id` 'x' \"y\" \\ {{.NodeName}}\nFOREBAY_END_not\n"
    subprocess.run(["bash", "-euc", file_step(str(path), text)], check=True)
    assert path.read_text() == text
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ValueError, match="would end it"):
        file_step("/x", "a\nFOREBAY_END\nb")


def test_user_data_holds_the_script_unchanged_and_runs_it():
    text = kubeadm(network())
    document = yaml.safe_load(cloud_config(text).removeprefix("#cloud-config\n"))
    (file,) = document["write_files"]
    assert file["content"] == text
    assert file["permissions"] == "0700"
    assert document["runcmd"] == [[file["path"]]]


def test_tailscale_comes_first_and_the_node_has_its_address_there():
    text = k3s(network(acceptRoutes=True, advertiseRoutes=["10.2.0.0/16", "10.1.0.0/16"], controlURL="http://hs:8080"))
    (up,) = (each.split() for each in text.splitlines() if each.strip().startswith("tailscale up"))
    assert "--login-server=http://hs:8080" in up
    assert "--accept-routes=true" in up
    assert "--advertise-routes=10.1.0.0/16,10.2.0.0/16" in up
    assert "--hostname=gpu-1" in up
    assert not any("tskey" in each or "advertise-tags" in each for each in up)
    assert text.index("tailscale up") < text.index("/usr/local/bin/k3s")
    assert 'echo "node-ip: $node_ip"' in text
    assert "s/FOREBAY_NODE_IP/$node_ip/" in kubeadm(network())


def test_the_name_in_the_tailnet_is_the_template_s():
    assert "--hostname=gpu-research-gpu-1" in network(hostname="gpu-{{.NodePool}}-{{.NodeName}}")


@pytest.mark.parametrize(
    ("agent_token", "own", "joined_with"),
    [
        ("K10aa::node:secret", None, "K10aa::node:secret"),
        ("K10aa::node:secret", TOKEN, f"K10aa::{TOKEN}"),
        ("secret", TOKEN, TOKEN),
        ("se::cret", TOKEN, TOKEN),
    ],
)
def test_a_k3s_machine_joins_with_its_own_token_and_the_ca_hash_of_the_class_s(agent_token, own, joined_with):
    assert join_token(agent_token, own) == joined_with


def test_a_script_that_runs_at_every_boot_does_the_same_again(tmp_path):
    """The frame of all scripts, run twice on a machine of folders: the second run changes nothing and fails nowhere."""
    target = tmp_path / "etc" / "config"
    text = script(file_step(str(target), "token: x\n"), f"echo 'more: y' >> {target}\n")
    text = text.replace("/var/", f"{tmp_path}/var/").replace('"$(id -u)" -ne 0', "1 -ne 1")
    (tmp_path / "var/log").mkdir(parents=True)
    seen = []
    for _ in range(2):
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        seen.append(target.read_text())
    assert seen == ["token: x\nmore: y\n"] * 2


def test_no_two_machines_have_one_name_in_the_tailnet():
    # A device is found by its name when its machine goes: all others of that name would go with it.
    def name(hostname, node="gpu-1", uid="7f0c9a4e-0000-4000-8000-000000000001"):
        record = joining_record(node)
        record = msgspec.structs.replace(record, metadata=msgspec.structs.replace(record.metadata, uid=uid))
        return tailscale_name(record, spec_of(tailscaleConfig={**TAILSCALE, "hostname": hostname}).tailscale_config)

    for template in ("gpus", "{{.NodePool}}-gpu", "{{.NodePool}}-{{.NodeIndex}}", "-"):
        names = {name(template, f"gpu-{number}", f"uid-{number}") for number in range(50)}
        assert len(names) == 50, template
    long = "n" * 60
    names = {name("research-{{.NodeName}}", f"{long}-{number}", f"uid-{number}") for number in range(50)}
    assert len(names) == 50, "what tells them apart is at the end"
    assert all(len(each) <= 63 for each in names)
    assert name("GPU {{.NodeName}}", "a.b_c") == "gpu-a-b-c", "as every control server leaves it"
