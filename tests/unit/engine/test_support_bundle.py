"""Support bundles: what may be secret is left out, and what was decided can be replayed."""

import os

import msgspec
import pytest
from msgspec.structs import replace

from forebay.api.gpu_node_class import GPUNodeClass
from forebay.api.instance_order import ContainerRecord
from forebay.engine.support_bundle import dump, packed, redacted_snapshot
from forebay.net.redaction import Redactor
from forebay.reconcile.saved_snapshot import load_snapshot
from forebay.reconcile.snapshot import Snapshot
from forebay.reporting.replay import NotInSnapshot, explain_in
from forebay.reporting.what_if import dry_run
from tests.unit.reporting.objects import NOW, node, pod, pool, record, running

SECRETS = [f"planted-{number:02}-s3cr3t" for number in range(20)]


def planted():
    """A snapshot with a secret wherever users or providers may have written one."""
    s = iter(SECRETS)
    node_class = msgspec.convert(
        {
            "metadata": {"name": "owned"},
            "spec": {
                "providers": [
                    {
                        "name": "webhook",
                        "machines": [
                            {
                                "name": "m1",
                                "gpuCount": 4,
                                "scaleUpEndpoint": f"https://user:{next(s)}@power/on?token={next(s)}",
                                "scaleDownEndpoint": f"https://power/off?key={next(s)}#{next(s)}",
                                "statusEndpoint": f"https://{next(s)}@power/state",
                            }
                        ],
                    }
                ],
                "talosConfig": {"machineConfigTemplate": f"machine:\n  token: {next(s)}\n  ca: {next(s)}\n"},
            },
        },
        GPUNodeClass,
    )
    container = ContainerRecord(
        image="train", command=("sh", next(s)), args=("--key", next(s)), env={"A": next(s), "PASSWORD": next(s)}
    )
    machine = record("m2", message=f"the call failed: Authorization: Bearer {next(s)}")
    machine = replace(machine, spec=replace(machine.spec, container=container, why=f"password={next(s)}"))
    applied = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{next(s)}"}}', "team.example/x": next(s)}
    waits = pod("waits", annotations=applied, unschedulable_message=f"api_key: {next(s)}")
    told = pod("told", capacity=f"ProviderUnavailable: token={next(s)}")
    registered = [next(s) for _ in range(3)]
    runs = running("runs", annotations={"a": registered[0]}, capacity=f"the words {registered[1]}")
    snapshot = Snapshot(
        now=NOW,
        classes=(node_class,),
        pools=(pool(),),
        nodes={"m1": node()},
        pending=(waits, told),
        pods_by_node={"m1": (runs,)},
        records=(machine, record(message=registered[2])),
    )
    assert next(s, None) is None
    return snapshot, Redactor(registered)


def test_none_of_twenty_planted_secrets_is_in_a_bundle():
    snapshot, redactor = planted()

    data = redacted_snapshot(snapshot, redactor).decode()

    assert [secret for secret in SECRETS if secret in data] == []


def test_the_plan_of_a_bundle_is_the_plan_of_the_cluster():
    snapshot, redactor = planted()

    loaded = load_snapshot(redacted_snapshot(snapshot, redactor))

    assert dry_run(loaded).plan == dry_run(snapshot).plan
    assert [each.key for each in loaded.pending] == [each.key for each in snapshot.pending]


def test_a_bundle_explains_what_it_has_and_names_what_it_has_not():
    snapshot, redactor = planted()
    loaded = load_snapshot(redacted_snapshot(snapshot, redactor))

    assert explain_in(loaded, "pod", "team", "waits").waits_for_capacity
    assert explain_in(loaded, "gi", "", "m2").about == "GPUInstance m2"
    assert explain_in(loaded, "node", "", "m1").machines
    for kind, namespace, name, said in (
        ("pod", "default", "waits", "give -n: there is one in team"),
        ("pod", "team", "nobody", "no pod team/nobody"),
        ("job", "team", "train", "pods and no Jobs"),
        ("gi", "", "m9", "no GPUInstance m9"),
        ("np", "", "a", "no NodeProvisioner a"),
    ):
        with pytest.raises(NotInSnapshot, match=said):
            explain_in(loaded, kind, namespace, name)


def test_a_dump_can_be_read_by_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    snapshot, redactor = planted()

    path = dump(snapshot, redactor)

    assert path.parent == tmp_path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(packed({})[:2])


def test_dumps_do_not_fill_the_small_directory_of_a_pod(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "forebay-other.tar.gz").write_bytes(b"of somebody else")
    snapshot, redactor = planted()

    paths = []
    for number in range(5):
        paths.append(dump(snapshot, redactor))
        os.utime(paths[-1], (number, number))

    assert set(tmp_path.iterdir()) == {*paths[-3:], tmp_path / "forebay-other.tar.gz"}
