"""The command line of each part, and the files that it reads."""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from tests.rig.pki import Authority, key_pem, new_key, public_pem

MASTERS = "system:masters"
#: What a pod says to the kubelet that plays it, on KWOK's nodes here and on the embedded ones alike.
PLAY = {
    "START_AFTER": "embedded.forebay.dev/start-delay",
    "RUN_FOR": "embedded.forebay.dev/run-time",
    "EXIT_CODE": "embedded.forebay.dev/exit-code",
    "MACHINE_OFF": "rig.forebay.dev/machine-off",
}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


def kubeconfig(url: str, authority: Authority, user: str, groups: Sequence[str]) -> str:
    """A kubeconfig that needs no other file."""
    certificate, key = authority.issue(user, groups)
    cluster = {"server": url, "certificate-authority-data": _b64(authority.certificate_file.read_bytes())}
    credentials = {"client-certificate-data": _b64(certificate), "client-key-data": _b64(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "rig", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": user}}],
        "current-context": "rig",
    }
    return yaml.safe_dump(document, sort_keys=False)


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def etcd(program: Path, directory: Path, ports: Mapping[str, int]) -> list[str]:
    client, peer = f"http://127.0.0.1:{ports['etcd']}", f"http://127.0.0.1:{ports['etcd-peer']}"
    return [
        str(program),
        "--name=rig",
        f"--data-dir={directory}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=rig={peer}",
        # Nothing here has to outlive the machine.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(
    program: Path, directory: Path, ports: Mapping[str, int], authority: Authority, flags: Sequence[str], *, audit: bool
) -> list[str]:
    names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    serving = authority.write("kube-apiserver", "kube-apiserver", names=names)
    kubelet = authority.write("kubelet-client", "kube-apiserver-kubelet-client", [MASTERS])
    signing = new_key()
    (authority.directory / "sa.key").write_bytes(key_pem(signing))
    (authority.directory / "sa.pub").write_bytes(public_pem(signing))
    command = [
        str(program),
        f"--etcd-servers=http://127.0.0.1:{ports['etcd']}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports['kube-apiserver']}",
        # No Endpoints of the server itself: it is not to be reached through a Service here.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.96.0.0/16",
        # The one kind here that is read from etcd itself, so that a test can see what compaction does.
        "--watch-cache-sizes=podtemplates#0",
        # As kubeadm sets it up: kubelets may write only their own node, and machines join with bootstrap tokens.
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth",
        "--allow-privileged=true",
        f"--client-ca-file={authority.certificate_file}",
        # No aggregated API here; without it the others' delegated authentication complains in a loop.
        f"--requestheader-client-ca-file={authority.certificate_file}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--tls-cert-file={serving[0]}",
        f"--tls-private-key-file={serving[1]}",
        f"--kubelet-client-certificate={kubelet[0]}",
        f"--kubelet-client-key={kubelet[1]}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={authority.directory}/sa.pub",
        f"--service-account-signing-key-file={authority.directory}/sa.key",
    ]
    if audit:
        policy = directory / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        command += [f"--audit-policy-file={policy}", f"--audit-log-path={directory}/audit.log"]
    return [*command, *flags]


def controller_manager(
    program: Path, directory: Path, ports: Mapping[str, int], authority: Authority, url: str
) -> list[str]:
    config = directory / "kube-controller-manager.kubeconfig"
    config.write_text(kubeconfig(url, authority, "system:kube-controller-manager", []))
    return [
        str(program),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports['kube-controller-manager']}",
        "--use-service-account-credentials",
        # As kubeadm sets it up: signs the ConfigMap cluster-info, where there is one, for every bootstrap token.
        "--controllers=*,bootstrap-signer-controller",
        f"--root-ca-file={authority.certificate_file}",
        f"--service-account-private-key-file={authority.directory}/sa.key",
        f"--cluster-signing-cert-file={authority.certificate_file}",
        f"--cluster-signing-key-file={authority.key_file}",
        "--leader-elect=false",
        # The defaults (20/30) make a burst of test namespaces wait on the client's side.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def scheduler(program: Path, directory: Path, ports: Mapping[str, int], authority: Authority, url: str) -> list[str]:
    config = directory / "kube-scheduler.kubeconfig"
    config.write_text(kubeconfig(url, authority, "system:kube-scheduler", []))
    settings = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # The defaults (50/100) cap the rate of binding.
        "clientConnection": {"kubeconfig": str(config), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
    }
    path = directory / "kube-scheduler.yaml"
    path.write_text(yaml.safe_dump(settings))
    return [
        str(program),
        f"--config={path}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports['kube-scheduler']}",
    ]


def kwok(program: Path, directory: Path, ports: Mapping[str, int], authority: Authority, url: str) -> list[str]:
    config = directory / "kwok.kubeconfig"
    config.write_text(kubeconfig(url, authority, "kwok", [MASTERS]))
    stages = (Path(__file__).parent / "kwok.yaml").read_text()
    for placeholder, annotation in PLAY.items():
        stages = stages.replace(f'"{placeholder}"', f'"{annotation}"')
    path = directory / "kwok.yaml"
    path.write_text(stages)
    return [
        str(program),
        f"--config={path}",
        f"--kubeconfig={config}",
        f"--server-address=127.0.0.1:{ports['kwok']}",
        "--node-ip=127.0.0.1",
    ]
