"""kubeadm's own discovery on a real control plane, with the configuration and the token that a rented machine gets.

The cluster is set up by kubeadm's own phases; `kubeadm join phase preflight` then finds the cluster by the token,
checks the signature of what it found and the pinned key, and reads how nodes of this cluster are configured. Nothing
joins: the preflight changes nothing on this machine.
"""

import asyncio
import os
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from forebay.bootstrap.kubeadm import authority_hashes, join_configuration
from forebay.join.bootstrap_tokens import BootstrapTokens
from forebay.net import clock
from tests.cluster.operators import until
from tests.cluster.test_joining import operator_of
from tests.cluster.worlds import install_definitions
from tests.joining import joining_record, spec_of
from tests.rig import Rig, RigFailed, Tier
from tests.rig.plugin import require

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.geteuid() != 0, reason="kubeadm wants to be root"),
]
#: kubeadm tells how long it looks for a cluster that does not answer to the token.
DISCOVERY = "10s"
TTL = timedelta(minutes=10)


@pytest.fixture(scope="module")
def whole_rig():
    require(Tier.CLUSTER)
    with Rig.start(Tier.CLUSTER) as rig:
        install_definitions(rig)
        yield rig


def on_this_machine():
    """Whether kubeadm has left anything here."""
    return Path("/etc/kubernetes").exists()


def kubeadm(program, *arguments):
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.returncode, done.stdout + done.stderr


async def set_up(rig, program, folder):
    """What `kubeadm init` leaves in a cluster: its ConfigMaps, cluster-info, and who may read that."""
    config = folder / "init.yaml"
    config.write_text(
        yaml.safe_dump_all(
            [
                {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "InitConfiguration", "bootstrapTokens": []},
                {
                    "apiVersion": "kubeadm.k8s.io/v1beta4",
                    "kind": "ClusterConfiguration",
                    "kubernetesVersion": "v1.36.4",
                    "controlPlaneEndpoint": rig.url.removeprefix("https://"),
                },
            ]
        )
    )
    common = ("--config", config, "--kubeconfig", rig.admin_kubeconfig)
    for phase in (
        ("upload-config", "kubeadm"),
        ("upload-config", "kubelet"),
        ("bootstrap-token", "--skip-token-print"),
    ):
        code, said = await asyncio.to_thread(kubeadm, program, "init", "phase", *phase, *common)
        assert code == 0, f"{phase}: {said}"


async def signed(rig, token):
    """Returns when the controller manager has signed cluster-info for the token."""
    name = f"jws-kubeconfig-{token.partition('.')[0]}"

    async def found():
        try:
            read = await asyncio.to_thread(rig.call, "GET", "/api/v1/namespaces/kube-public/configmaps/cluster-info")
        except RigFailed:
            return False
        return name in read["data"]

    await until(found, "cluster-info is signed for the token")


def preflight(rig, program, path, token, pins):
    endpoint = rig.url.removeprefix("https://")
    config = spec_of(kubeadmConfig={"controlPlaneEndpoint": endpoint}).kubeadm_config
    text = join_configuration(joining_record(), config, token=token, pins=pins)
    document = yaml.safe_load(text) | {"timeouts": {"discovery": DISCOVERY}}
    path.write_text(yaml.safe_dump(document))
    return kubeadm(program, "join", "phase", "preflight", "--config", path, "--ignore-preflight-errors=all")


async def test_kubeadm_finds_the_cluster_by_the_token_of_a_machine_and_by_no_other(whole_rig, part, tmp_path):
    program, rig = part("kubeadm"), whole_rig
    there = on_this_machine()
    pins = authority_hashes(rig.ca_file.read_bytes())
    await set_up(rig, program, tmp_path)
    async with operator_of(rig) as joining:
        # As methods of kubeadmConfig make them: the token also proves the cluster to the machine.
        joining.tokens = BootstrapTokens(joining.client, joining.redactor, ttl=TTL, clock=clock.now, signing=True)
        token = await joining.token()
        await signed(rig, token)

        code, said = await asyncio.to_thread(preflight, rig, program, tmp_path / "join.yaml", token, pins)
        assert code == 0, said

        other = f"{token.partition('.')[0]}.{'0' * 16}"
        code, said = await asyncio.to_thread(preflight, rig, program, tmp_path / "join.yaml", other, pins)
        assert code == 1
        assert "JWS" in said, "the signature is not by that secret"

        wrong = [f"sha256:{'0' * 64}"]
        code, said = await asyncio.to_thread(preflight, rig, program, tmp_path / "join.yaml", token, wrong)
        assert code == 1
        assert "pinned" in said, "the cluster has another key"
    assert on_this_machine() is there, "the preflight left nothing on this machine"
