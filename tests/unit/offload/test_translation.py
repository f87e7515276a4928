"""A pod becomes a container: each field is carried, dropped on purpose, or a reason before any money is spent."""

import json
from pathlib import Path

import pytest

import forebay
from forebay.model.containers import ContainerPort
from forebay.model.secret_text import SecretText
from forebay.offload.environment import Holder, HolderKind
from forebay.offload.field_treatment import CONTAINER, POD, SECURITY
from forebay.offload.translation import needed_holders, obstacles, pull_secrets, translate
from tests.unit.offload.manifests import manifest

NONCE = "0" * 32
SECRET = Holder(HolderKind.SECRET, "keys")
CONFIG = Holder(HolderKind.CONFIG_MAP, "settings")
HELD = {SECRET: {"token": b"hunter2-hunter2", "BIN": b"\xff\xfe"}, CONFIG: {"mode": b"fast", "level": b"3"}}


def container_of(pod, held=HELD):
    found = translate(pod, held, NONCE)
    assert found.problems == ()
    return found.container


def env_of(*variables, held=HELD, **fields):
    return container_of(manifest({"env": list(variables), **fields}), held)


def from_secret(name, key="token", **more):
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": "keys", "key": key, **more}}}


def from_field(name, path):
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def published(kind):
    """Fields of a type as a real API server publishes them, from what the embedded one reads."""
    types = json.loads((Path(forebay.__file__).parent / "embedded/api/builtin_types.json").read_text())
    return set(types[kind])


@pytest.mark.parametrize(("kind", "table"), [("PodSpec", POD), ("Container", CONTAINER)])
def test_every_published_field_has_a_treatment(kind, table):
    assert published(kind) == set(table)


def test_every_published_field_of_a_security_context_has_a_treatment():
    assert published("SecurityContext") | published("PodSecurityContext") == set(SECURITY)


def test_a_plain_pod_with_all_defaults_of_the_api_server_becomes_its_image():
    container = container_of(manifest())
    assert container.image == "example.test/train:1"
    assert (container.command, container.args, container.env, container.secret_env) == ((), (), {}, {})
    assert (container.ports, container.disk_gib, container.registry_auth) == ((), None, None)


def test_arguments_without_a_command_go_to_the_entry_point_of_the_image():
    found = translate(manifest({"args": ["--epochs", "3 or 4"]}), HELD, NONCE)
    assert found.container.args == ("--epochs", "3 or 4")
    assert found.container.command == ()
    assert not found.reports_exit_code


def test_a_command_runs_with_its_arguments_under_the_shell_that_reports_its_exit_code():
    found = translate(manifest({"command": ["python", "a b.py"], "args": ["it's", "$HOME"]}), HELD, NONCE)
    assert found.container.command[:2] == ("/bin/sh", "-c")
    assert found.container.command[-4:] == ("python", "a b.py", "it's", "$HOME")
    assert found.container.args == ()
    assert found.reports_exit_code


def test_working_directory_and_empty_dirs_are_made_by_the_shell():
    pod = manifest(
        {
            "command": ["run"],
            "workingDir": "/data",
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}, {"name": "shm", "mountPath": "/dev/shm"}],
        },
        volumes=[{"name": "scratch", "emptyDir": {}}, {"name": "shm", "emptyDir": {"medium": "Memory"}}],
    )
    assert container_of(pod).command[4:] == (NONCE, "Never", "/data", "1", "/scratch", "run")


ENVIRONMENTS = {
    "a value": ([{"name": "A", "value": "1"}], {"A": "1"}),
    "no value": ([{"name": "A"}], {"A": ""}),
    "the last one of a name": ([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}], {"A": "2"}),
    "a reference to an earlier one": (
        [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/x"}],
        {"A": "1", "B": "1/x"},
    ),
    "a reference to a later one stays as written": (
        [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}],
        {"B": "$(A)", "A": "1"},
    ),
    "a reference within another one, which a shell is to read": (
        [{"name": "A", "value": "1"}, {"name": "B", "value": "$(cat $(A)) $(A)"}],
        {"A": "1", "B": "$(cat $(A)) 1"},
    ),
    "an escaped reference": ([{"name": "A", "value": "1"}, {"name": "B", "value": "$$(A)"}], {"A": "1", "B": "$(A)"}),
    "a key of a ConfigMap": (
        [{"name": "M", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}}],
        {"M": "fast"},
    ),
    "an optional key that is missing": ([from_secret("A", "nothing", optional=True)], {}),
    "name of the pod": ([from_field("A", "metadata.name")], {"A": "train-0-abcde"}),
    "namespace of the pod": ([from_field("A", "metadata.namespace")], {"A": "team"}),
    "UID of the pod": ([from_field("A", "metadata.uid")], {"A": "pod-uid"}),
    "service account of the pod": ([from_field("A", "spec.serviceAccountName")], {"A": "default"}),
    "a label": ([from_field("A", "metadata.labels['role']")], {"A": "worker"}),
    "index of an indexed Job": (
        [from_field("JOB_COMPLETION_INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']")],
        {"JOB_COMPLETION_INDEX": "7"},
    ),
    "a limit": (
        [{"name": "G", "valueFrom": {"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}}],
        {"G": "1"},
    ),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_environment_variables(case):
    written, expected = ENVIRONMENTS[case]
    pod = manifest(
        {"env": written},
        labels={"role": "worker"},
        annotations={"batch.kubernetes.io/job-completion-index": "7"},
    )
    container = container_of(pod)
    assert dict(container.env) == expected
    assert container.secret_env == {}


def test_a_resource_field_is_divided_and_rounded_up():
    variable = {"name": "M", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Gi"}}}
    container = env_of(variable, resources={"requests": {"memory": "1100Mi"}})
    assert container.env == {"M": "2"}


def test_values_of_secrets_and_what_refers_to_them_are_kept_apart():
    container = env_of(
        {"name": "PLAIN", "value": "x"}, from_secret("TOKEN"), {"name": "URL", "value": "https://u:$(TOKEN)@host"}
    )
    assert container.env == {"PLAIN": "x"}
    assert container.secret_env == {
        "TOKEN": SecretText("hunter2-hunter2"),
        "URL": SecretText("https://u:hunter2-hunter2@host"),
    }
    assert "hunter2" not in repr(container)


def test_whole_config_maps_and_secrets_become_variables_with_their_prefix():
    held = {CONFIG: {"mode": b"fast"}, SECRET: {"token": b"hunter2-hunter2"}}
    pod = manifest(
        {
            "envFrom": [{"prefix": "S_", "secretRef": {"name": "keys"}}, {"configMapRef": {"name": "settings"}}],
            "env": [{"name": "mode", "value": "slow"}],
        }
    )
    container = container_of(pod, held)
    assert container.env == {"mode": "slow"}
    assert container.secret_env == {"S_token": SecretText("hunter2-hunter2")}


def test_it_is_known_beforehand_what_must_be_read():
    pod = manifest(
        {
            "envFrom": [{"configMapRef": {"name": "settings"}}],
            "env": [from_secret("A")],
        },
        imagePullSecrets=[{"name": "pull"}],
    )
    assert needed_holders(pod) == {CONFIG, SECRET}
    assert pull_secrets(pod) == ("pull",)


def test_ports_are_carried():
    pod = manifest({"ports": [{"containerPort": 8888, "protocol": "TCP"}]})
    assert container_of(pod).ports == (ContainerPort(port=8888),)


DISKS = {
    "a request": ({"resources": {"requests": {"ephemeral-storage": "20Gi"}}}, [], 20),
    "a limit is more": (
        {"resources": {"requests": {"ephemeral-storage": "1Gi"}, "limits": {"ephemeral-storage": "1500Mi"}}},
        [],
        2,
    ),
    "emptyDirs together": (
        {
            "command": ["run"],
            "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}],
        },
        [{"name": "a", "emptyDir": {"sizeLimit": "3Gi"}}, {"name": "b", "emptyDir": {"sizeLimit": "4Gi"}}],
        7,
    ),
    "memory is no disk": (
        {"volumeMounts": [{"name": "a", "mountPath": "/dev/shm"}]},
        [{"name": "a", "emptyDir": {"sizeLimit": "3Gi", "medium": "Memory"}}],
        None,
    ),
}


@pytest.mark.parametrize("case", DISKS)
def test_ephemeral_storage_becomes_the_disk(case):
    container, volumes, expected = DISKS[case]
    assert container_of(manifest(container, volumes=volumes)).disk_gib == expected


CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
OBSTACLES = {
    "a claim": (manifest(volumes=[CLAIM]), "Volume data is a persistentVolumeClaim"),
    "a host path": (manifest(volumes=[{"name": "h", "hostPath": {"path": "/"}}]), "Volume h is a hostPath"),
    "a secret volume": (manifest(volumes=[{"name": "s", "secret": {"secretName": "keys"}}]), "Use env or envFrom"),
    "another projected volume": (
        manifest(volumes=[{"name": "p", "projected": {"sources": []}}]),
        "Volume p is a projected",
    ),
    "two containers": (
        manifest(containers=[{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]),
        "this one has 2",
    ),
    "an init container": (manifest(initContainers=[{"name": "a", "image": "i"}]), "spec.initContainers"),
    "the host's network": (manifest(hostNetwork=True), "spec.hostNetwork"),
    "a field of the future": (manifest(teleport=True), "spec.teleport is unknown to this release"),
    "restarts for ever": (manifest(restartPolicy="Always"), "restartPolicy must be Never or OnFailure"),
    "restarts without a command": (manifest(restartPolicy="OnFailure"), "OnFailure needs a command"),
    "a privileged container": (manifest({"securityContext": {"privileged": True}}), "securityContext.privileged"),
    "another user": (manifest(securityContext={"runAsUser": 1000}), "spec.securityContext.runAsUser"),
    "more capabilities": (
        manifest({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        "capabilities.add",
    ),
    "a probe": (manifest({"livenessProbe": {"exec": {"command": ["x"]}}}), "livenessProbe"),
    "UDP": (manifest({"ports": [{"containerPort": 53, "protocol": "UDP"}]}), "Port 53 is UDP"),
    "a host port": (manifest({"ports": [{"containerPort": 80, "hostPort": 80}]}), "Port 80 has a hostPort"),
    "a working directory without a command": (manifest({"workingDir": "/w"}), "workingDir needs a command"),
    "an emptyDir without a command": (
        manifest({"volumeMounts": [{"name": "s", "mountPath": "/s"}]}, volumes=[{"name": "s", "emptyDir": {}}]),
        "The emptyDir at /s needs a command",
    ),
    "an emptyDir at two places": (
        manifest(
            {
                "command": ["run"],
                "volumeMounts": [{"name": "s", "mountPath": "/s"}, {"name": "s", "mountPath": "/also"}],
            },
            volumes=[{"name": "s", "emptyDir": {}}],
        ),
        "The emptyDir s is mounted at /s and /also",
    ),
    "part of an emptyDir": (
        manifest(
            {"command": ["x"], "volumeMounts": [{"name": "s", "mountPath": "/s", "subPath": "a"}]},
            volumes=[{"name": "s", "emptyDir": {}}],
        ),
        "subPath",
    ),
    "a disk of no size": (manifest({"resources": {"limits": {"ephemeral-storage": "much"}}}), "size of its disk"),
    "no image": (manifest({"image": ""}), "has no image"),
    "an address of its own": (manifest({"env": [from_field("IP", "status.podIP")]}), "IP needs status.podIP"),
    "an amount that it does not state": (
        manifest({"env": [{"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}),
        "CPUS needs limits.cpu",
    ),
    "a file in a volume": (
        manifest({"env": [{"name": "F", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "e", "key": "K"}}}]}),
        "F has a source that a remote container cannot have",
    ),
    "a Service of the cluster": (
        manifest({"env": [{"name": "DB", "value": "http://db.team.svc/x"}]}),
        "Variable DB names a Service of the cluster",
    ),
    "a Service in the command": (
        manifest({"command": ["curl", "db.team.svc.cluster.local:80"]}),
        "The command names a Service of the cluster",
    ),
    "a secret in the command": (
        manifest({"command": ["run", "$(AGAIN)"], "env": [from_secret("T"), {"name": "AGAIN", "value": "x$(T)"}]}),
        "$(AGAIN), which is secret",
    ),
}


@pytest.mark.parametrize("case", OBSTACLES)
def test_what_cannot_be_carried_is_a_reason_before_anything_is_read(case):
    pod, expected = OBSTACLES[case]
    found = obstacles(pod)
    assert [each for each in found if expected in each], found
    assert all(each.endswith(".") for each in found)
    refused = translate(pod, HELD, NONCE)
    assert refused.container is None
    assert refused.problems == found


@pytest.mark.parametrize(
    "security",
    [
        {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        {"runAsUser": 0},
    ],
)
def test_what_only_restricts_is_dropped(security):
    assert obstacles(manifest({"securityContext": security})) == ()


UNRESOLVED = {
    "a missing Secret": ([from_secret("A")], {}, "Secret keys does not exist"),
    "a missing key": ([from_secret("A", "nothing")], HELD, "Secret keys has no key nothing"),
    "what is not text": ([from_secret("A", "BIN")], HELD, "Key BIN of Secret keys is not text"),
    "the address of the pod": ([from_field("A", "status.podIP")], HELD, "needs status.podIP"),
    "a Service that a ConfigMap names": (
        [{"name": "DB", "valueFrom": {"configMapKeyRef": {"name": "places", "key": "db"}}}],
        {Holder(HolderKind.CONFIG_MAP, "places"): {"db": b"postgres.team.svc.cluster.local:5432"}},
        "Variable DB names a Service of the cluster",
    ),
}


@pytest.mark.parametrize("case", UNRESOLVED)
def test_an_environment_that_cannot_be_had_is_a_reason(case):
    written, held, expected = UNRESOLVED[case]
    found = translate(manifest({"env": written}), held, NONCE)
    assert found.container is None
    assert [each for each in found.problems if expected in each], found.problems


@pytest.mark.parametrize(
    ("written", "name"),
    [({"env": [from_secret("T")]}, "T"), ({"envFrom": [{"secretRef": {"name": "keys"}}]}, "token")],
)
def test_a_secret_in_the_command_is_refused_because_providers_show_commands(written, name):
    found = translate(manifest({"command": ["run", f"--token=$({name})"], **written}), HELD, NONCE)
    assert found.container is None
    assert f"$({name}), which is secret" in " ".join(found.problems)
    assert "hunter2" not in str(found.problems)
