"""Objects of tgp-operator become Forebay's, and every difference is said."""

import msgspec
import pytest
import yaml

from forebay.api.codec import decode_any
from forebay.api.gpu_node_class import GPUNodeClassSpec
from forebay.bootstrap.class_checks import join_problem
from forebay.cli import main
from forebay.migrate.migration import migrate
from forebay.migrate.notes import NoteKind
from forebay.migrate.target import MigrationTarget
from forebay.providers.admission import KNOWN
from tests.unit.migrate.predecessor import CLASS, EXAMPLE, MIGRATED, POOL

TARGET = MigrationTarget(capabilities=KNOWN, control_plane="10.0.0.1:6443")


def migrated(text, target=TARGET):
    return migrate(yaml.safe_load_all(text), target)


def sentences(done, kind):
    return " ".join(each.sentence for each in done.notes if each.kind is kind)


def changed(text, **fields):
    document = yaml.safe_load(text)
    document["spec"] |= fields
    return yaml.safe_dump(document)


def test_the_example_of_its_readme_becomes_manifests_that_forebay_accepts(tmp_path, capsys):
    (tmp_path / "tgp.yaml").write_text(EXAMPLE)

    assert main(["migrate", "-f", str(tmp_path), "--control-plane-endpoint", "10.0.0.1:6443"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"---\n{MIGRATED}"
    assert printed.err.index("Could never work:") < printed.err.index("Changed:") < printed.err.index("To do before")
    assert "GPUNodeClass standard-gpu-class: runpod and lambdalabs cannot boot Talos" in printed.err
    assert "Talos has neither systemd nor a shell" in printed.err
    assert "Copy Secret tgp-operator-secret from tgp-system to forebay-system" in printed.err


@pytest.mark.parametrize("metadata", ["{}", "3", "null"])
def test_a_class_without_a_name_is_named_as_such(metadata):
    done = migrated(f"apiVersion: tgp.io/v1\nkind: GPUNodeClass\nmetadata: {metadata}\nspec: {{providers: []}}\n")
    assert {each.about for each in done.notes} == {"GPUNodeClass without a name"}
    assert not done.complete


def test_gpu_types_that_no_cloud_with_machines_has_are_named():
    done = migrated(EXAMPLE)
    needed = {each.about: each.sentence for each in done.notes if "GeForce" in each.sentence}
    assert set(needed) == {"GPUNodeClass standard-gpu-class", "GPUNodePool default/ml-workload-pool"}
    assert needed["GPUNodeClass standard-gpu-class"].startswith(
        "instanceRequirements.gpuTypes: RTX4090 and RTX3090 cannot be rented as a machine: lambdalabs has no GeForce "
        "cards, so that nothing would ever be launched."
    )
    assert "GeForce" in sentences(done, NoteKind.NEEDED)


@pytest.mark.parametrize(
    ("types", "providers", "kind"),
    [
        pytest.param(["NVIDIA GeForce RTX 4090"], ["paperspace"], NoteKind.NEEDED, id="by another name"),
        pytest.param(["RTX4090", "A6000"], ["lambdalabs", "runpod"], NoteKind.CHANGED, id="one of them can be had"),
        pytest.param(["RTX4000", "RTX6000-Ada", "A6000"], ["lambdalabs"], None, id="cards for workstations"),
        pytest.param(["RTX4090"], ["runpod"], None, id="containers have them"),
        pytest.param(["RTX4090"], ["lambdalabs", "of-a-package"], None, id="a provider that nobody here knows"),
        pytest.param(["RTX4090"], ["simulated"], None, id="simulated"),
        pytest.param([], ["lambdalabs"], None, id="any type"),
    ],
)
def test_only_types_that_none_of_the_providers_can_have_are_named(types, providers, kind):
    entries = [{"name": each} for each in providers]
    done = migrated(changed(CLASS, providers=entries, instanceRequirements={"gpuTypes": types}))
    assert [each.kind for each in done.notes if "GeForce" in each.sentence] == ([kind] if kind else [])


def test_a_check_prints_no_manifest_and_fails_while_something_remains_to_be_done(tmp_path, capsys):
    file = tmp_path / "tgp.yaml"
    file.write_text(EXAMPLE)
    assert main(["migrate", "--check", "-f", str(file)]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--control-plane-endpoint" in printed.err

    done = yaml.safe_load(CLASS)
    done["spec"] |= {"talosConfig": None, "tailscaleConfig": None, "providers": [{"name": "runpod"}]}
    done["spec"]["providers"][0]["credentialsRef"] = {"name": "runpod", "key": "key", "namespace": "forebay-system"}
    file.write_text(yaml.safe_dump(done))
    assert main(["migrate", "--check", "-f", str(file)]) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "there is nothing to migrate", id="an empty file"),
        pytest.param("a: [", "is not YAML", id="no YAML"),
    ],
)
def test_a_file_without_anything_to_migrate_is_an_error(tmp_path, capsys, text, said):
    file = tmp_path / "file.yaml"
    file.write_text(text)
    assert main(["migrate", "-f", str(file)]) == 2
    assert said in capsys.readouterr().err


def test_where_the_provider_boots_talos_the_machine_config_is_corrected_until_a_machine_could_join():
    entry = {"name": "gcp", "credentialsRef": {"name": "google", "key": "key.json", "namespace": "forebay-system"}}
    done = migrated(changed(CLASS, providers=[entry]))

    (manifest,) = done.manifests
    spec = decode_any(msgspec.json.encode(manifest)).spec
    assert isinstance(spec, GPUNodeClassSpec)
    assert join_problem(spec, KNOWN["gcp"]) is None
    template = manifest["spec"]["talosConfig"]["machineConfigTemplate"]
    assert "systemd" not in template
    assert "/etc/" not in template
    assert "hostname: {{.NodeName}}" in template
    assert "crt: {{.MachineCA}}" in template
    assert "talosctl gen secrets" in sentences(done, NoteKind.NEEDED)


def test_a_class_with_both_kinds_of_provider_becomes_two_and_so_do_its_pools():
    key = {"name": "keys", "key": "key"}
    providers = [{"name": "gcp", "credentialsRef": key}, {"name": "paperspace", "credentialsRef": key}]
    done = migrated(changed(CLASS, providers=providers) + "---\n" + POOL)

    names = [(each["kind"], each["metadata"]["name"]) for each in done.manifests]
    assert names == [
        ("GPUNodeClass", "standard-gpu-class"),
        ("GPUNodeClass", "standard-gpu-class-linux"),
        ("GPUNodePool", "ml-workload-pool"),
        ("GPUNodePool", "ml-workload-pool-linux"),
    ]
    assert [list(each["spec"])[1] for each in done.manifests[:2]] == ["talosConfig", "kubeadmConfig"]
    assert "divide them between the two" in sentences(done, NoteKind.NEEDED)


def test_labels_of_nodes_that_the_machine_config_had_are_the_pool_s():
    document = yaml.safe_load(CLASS)
    talos = document["spec"]["talosConfig"]
    talos["machineConfigTemplate"] = talos["machineConfigTemplate"].replace(
        'tgp.io/provisioned: "true"', "team: vision"
    )
    done = migrated(yaml.safe_dump(document) + "---\n" + POOL)

    assert done.manifests[1]["spec"]["template"]["metadata"]["labels"] == {"team": "vision"}


def test_regions_that_are_provider_s_own_names_are_kept():
    done = migrated(changed(CLASS, instanceRequirements={"regions": ["us-west", "us-east-1", "EU-RO-1"]}))

    assert done.manifests[0]["spec"]["instanceRequirements"]["regions"] == ["us-east-1", "EU-RO-1"]
    assert "us-west left out" in sentences(done, NoteKind.CHANGED)


def test_a_template_with_logic_is_printed_as_it_is_and_somebody_must_look_at_it():
    entry = {"name": "gcp", "credentialsRef": {"name": "google", "key": "key.json"}}
    talos = {"image": "i", "machineConfigTemplate": "{{if .NodeName}}version: v1alpha1{{end}}"}
    done = migrated(changed(CLASS, providers=[entry], talosConfig=talos))

    assert done.manifests[0]["spec"]["talosConfig"]["machineConfigTemplate"] == talos["machineConfigTemplate"]
    assert "it has logic of Go templates" in sentences(done, NoteKind.NEEDED)


def test_what_forebay_would_refuse_is_said_by_its_field():
    done = migrated(changed(CLASS, limits={"maxNodes": -1}, tags={"team": "x"}) + "---\n" + POOL)

    assert "spec.limits.maxNodes" in sentences(done, NoteKind.NEEDED)


def test_what_has_no_counterpart_and_what_is_of_nobody_is_named():
    request = {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "old", "namespace": "ml"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    done = migrate([{"kind": "List", "items": [request, secret]}], TARGET)

    assert done.manifests == ()
    assert [(each.kind, each.about) for each in done.notes] == [
        (NoteKind.NEEDED, "GPURequest ml/old"),
        (NoteKind.CHANGED, "Secret keys"),
    ]


def test_a_pool_whose_class_is_elsewhere_says_so():
    assert "GPUNodeClass standard-gpu-class is not among the files" in sentences(migrated(POOL), NoteKind.NEEDED)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(changed(CLASS, costCeiling=3), "spec: costCeiling left out", id="class"),
        pytest.param(
            changed(CLASS, providers=[{"name": "gcp", "quota": 1, "zone": "a"}]),
            "provider gcp: quota and zone left out",
            id="provider",
        ),
        pytest.param(
            changed(CLASS, providers=[{"name": "gcp"}], talosConfig={"image": "i", "disk": "/dev/sda"}),
            "spec.talosConfig: disk left out",
            id="talosConfig",
        ),
        pytest.param(changed(POOL, replicas=3), "spec: replicas left out", id="pool"),
        pytest.param(changed(POOL, template={"status": {}}), "spec.template: status left out", id="template"),
    ],
)
def test_a_field_without_a_counterpart_is_named_not_dropped_silently(text, said):
    assert f"{said}, because Forebay has no such field." in sentences(migrated(text), NoteKind.CHANGED)


def test_a_template_whose_machine_is_no_mapping_is_kept():
    text = "machine: {{.MachineConfig}}\n"
    talos = {"image": "i", "version": "v1.12.0", "machineConfigTemplate": text}
    done = migrated(changed(CLASS, providers=[{"name": "gcp"}], talosConfig=talos))

    made = done.manifests[0]["spec"]["talosConfig"]
    assert (made["machineConfigTemplate"], made["version"]) == (text, "v1.12.0")
    assert "machine in it is no mapping" in sentences(done, NoteKind.NEEDED)


@pytest.mark.parametrize(
    ("typed", "meant", "sentence"),
    [
        ("  limit:", "  limits:", "spec: limit left out; did you mean limits?"),
        ("credentialRef:", "credentialsRef:", "provider runpod: credentialRef left out; did you mean credentialsRef?"),
        ("maxHourlyPrise:", "maxHourlyPrice:", "spec: maxHourlyPrise left out; did you mean maxHourlyPrice?"),
        ("gpuType:", "gpuTypes:", "spec.instanceRequirements.gpuType is no field of Forebay's; did you mean gpuTypes?"),
    ],
)
def test_what_looks_like_a_typing_error_is_to_be_looked_at(typed, meant, sentence):
    """A limit that is left out in passing would be a limit that nobody keeps to."""
    assert meant in EXAMPLE
    assert sentence in sentences(migrated(EXAMPLE.replace(meant, typed)), NoteKind.NEEDED)
