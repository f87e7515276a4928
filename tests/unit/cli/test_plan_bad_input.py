"""Bad input of `forebay plan`: one sentence that names the file and the position, and exit code 2."""

import gzip
import json
import tarfile

import pytest
import structlog

from forebay.cli import main

HEADER = "provider,instance_type,gpu_model,gpu_count,gpu_mem_gib,vcpus,memory_gib,price_ondemand_usd_h,region\n"
ROW = "aws,g6.xlarge,L4,1,24,4,16,0.8048,us-east-1\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers: [{name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


@pytest.fixture(autouse=True)
def _own_logging():
    yield
    structlog.reset_defaults()


@pytest.fixture
def sentence(tmp_path, monkeypatch, capsys):
    """`sentence(*options, work=..., offers=...)`: the one line on standard error of a command that failed."""
    monkeypatch.chdir(tmp_path)

    def run(*options, work=POD, offers=HEADER + ROW):
        (tmp_path / "work.yaml").write_bytes(work if isinstance(work, bytes) else work.encode())
        (tmp_path / "offers.csv").write_bytes(offers if isinstance(offers, bytes) else offers.encode())
        code = main(["plan", *(options or ("-f", "work.yaml", "--offers", "offers.csv"))])
        printed = capsys.readouterr()
        assert (code, printed.out) == (2, "")
        (line,) = printed.err.splitlines()
        return line.removeprefix("forebay: ")

    return run


def test_missing_files(sentence):
    assert sentence("-f", "gone.yaml") == "gone.yaml cannot be read: No such file or directory"
    assert sentence("-f", "work.yaml", "--offers", "gone.csv") == "gone.csv cannot be read: No such file or directory"


def test_a_folder_without_manifests(sentence, tmp_path):
    (tmp_path / "empty").mkdir()

    assert sentence("-f", "empty") == "empty has no files that end in .yaml, .yml, .json"


def test_standard_input_twice(sentence):
    assert sentence("-f", "-", "--offers", "-").startswith("standard input can be read only once")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("a: 1\nb: [\n", "work.yaml is not YAML: line 3: did not find expected node content"),
        ("a: 1\n\tb: 2\n", "work.yaml is not YAML: line 2: found a tab character that violates indentation"),
        (b"\xff\xfe\xff", "work.yaml is not YAML: "),
        ('{"kind": "Pod", "spec": [', "work.yaml is not YAML: line 2: "),
        ("at: 2026-13-45\n", "work.yaml is not YAML: month must be in 1..12"),
        ("just words\n", "work.yaml, document 1 is not an object with apiVersion and kind"),
        ("- 1\n- 2\n", "work.yaml, document 1 is not an object with apiVersion and kind"),
        ("kind: Pod\n", "work.yaml, document 1 is not a manifest: Object missing required field `apiVersion`"),
        ("apiVersion: v1\nkind: Pod\n", "work.yaml, document 1: a Pod without metadata.name"),
        (POD + "---\n" + POD, "work.yaml, document 2: Pod train: pod default/train occurs twice"),
        (POD.replace("gpu: 1", "gpu: lots"), 'work.yaml, document 1: Pod train: "lots" is not a Kubernetes quantity'),
        (POD.replace("gpu: 1", "gpu: .nan"), 'work.yaml, document 1: Pod train: "nan" is not a Kubernetes quantity'),
        (
            POD.replace("{name: train}", "{name: train, labels: {a: 1}}"),
            "work.yaml, document 1 is not a manifest: Expected",
        ),
        (POD.replace("containers: [", "containers: [1, "), "work.yaml, document 1: Pod train: "),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: 2}\n",
            "work.yaml, document 1: Job j: it has no spec.template",
        ),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {parallelism: -2, template: {spec: {}}}\n",
            "work.yaml, document 1: Job j: -2 pods; there may be 0 to 1,000,000",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: many}\n",
            "work.yaml, document 1: Deployment d: Expected `int | null`, got `str` - at `$.spec.replicas`",
        ),
        (
            (
                "apiVersion: forebay.dev/v1alpha1\nkind: GPUNodePool\nmetadata: {name: p}\n"
                "spec: {nodeClassRef: {name: c}, maxHourlyPrce: '2'}\n"
            ),
            (
                "work.yaml, document 1: GPUNodePool p: spec.maxHourlyPrce is not a field of GPUNodePool "
                "(did you mean maxHourlyPrice?)"
            ),
        ),
        (
            (
                "apiVersion: forebay.dev/v1alpha1\nkind: GPUNodeClass\nmetadata: {name: c}\n"
                "spec: {providers: [{name: ACME}]}\n"
            ),
            "work.yaml, document 1: GPUNodeClass c: spec.providers[0].name: Expected `str` matching regex",
        ),
        (
            (
                "apiVersion: forebay.dev/v1alpha1\nkind: GPUNodePool\nmetadata: {name: p}\n"
                "spec: {nodeClassRef: {name: 7}, maxHourlyPrce: '2', limits: {maxNodes: two}}\n"
            ),
            (
                "work.yaml, document 1: GPUNodePool p: spec.nodeClassRef.name: Expected `str`, got `int`; "
                "spec.limits.maxNodes: Expected `int | null`, got `str`; "
                "spec.maxHourlyPrce is not a field of GPUNodePool (did you mean maxHourlyPrice?)"
            ),
        ),
    ],
)
def test_invalid_manifests(sentence, work, expected):
    assert sentence(work=work).startswith(expected)


TOO_DEEP = "is nested too deeply to be a manifest"
LAUGHS = "a: &a [x, x]\n" + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{f'*{chr(97 + n)}, ' * 9}]\n" for n in range(20))


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("[" * 100_000, f"work.yaml {TOO_DEEP}"),
        ("{a: " * 100_000, f"work.yaml {TOO_DEEP}"),
        ("- " * 100_000, f"work.yaml {TOO_DEEP}"),
        ("\n".join(" " * n + "a:" for n in range(3000)), f"work.yaml {TOO_DEEP}"),
        ('{"a": ' * 100_000 + "1" + "}" * 100_000, f"work.yaml {TOO_DEEP}"),
        (
            '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": '
            + '{"a": ' * 900
            + "1"
            + "}" * 901,
            f"work.yaml {TOO_DEEP}",
        ),
        (
            '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": ' + "[" * 201 + "]" * 201 + "}",
            f"work.yaml {TOO_DEEP}",
        ),
        (LAUGHS, "work.yaml, document 1 has too many values once its aliases are written out"),
        ("a: &a [*a]\n", "work.yaml, document 1 has too many values once its aliases are written out"),
    ],
    ids=["sequences", "mappings", "block", "indented", "json", "deep spec", "just too deep", "laughs", "circle"],
)
def test_documents_that_would_take_the_process_down_are_one_sentence(sentence, work, expected):
    assert sentence(work=work).startswith(expected)


def test_a_table_that_unpacks_without_end_is_one_sentence(sentence):
    bomb = gzip.compress(b"\0" * (130 << 20), compresslevel=1)
    assert len(bomb) < 1 << 20

    expected = "offers.csv unpacks to more than 128 MiB: too large for a table of offers"
    assert sentence(offers=bomb) == expected


def test_a_support_bundle_that_unpacks_without_end_is_one_sentence_whatever_part_of_it_does(sentence):
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 130 << 20
    bomb = gzip.compress(header.tobuf(tarfile.USTAR_FORMAT) + b"\0" * header.size, compresslevel=1)

    assert sentence(work=bomb) == "work.yaml unpacks to more than 128 MiB: too large for a support bundle"
    assert sentence(work=gzip.compress(b"no archive")).startswith("work.yaml is not a complete support bundle: ")


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        ("", "offers.csv: the table is empty: its first line must name the columns"),
        (HEADER.replace("vcpus", "cores") + ROW, 'offers.csv: "cores" is not a column of an offers table; columns are'),
        ("[" * 9999, f'offers.csv: "{"[" * 60}..." is not a column'),
        (HEADER.replace("gpu_model", "region") + ROW, 'offers.csv: column "region" occurs twice'),
        (
            "provider,region\naws,x\n",
            "offers.csv: columns are missing: instance_type, gpu_count, vcpus",
        ),
        (
            HEADER.replace("price_ondemand_usd_h", "asof") + ROW,
            "offers.csv: there is no price column: add price_ondemand",
        ),
        (HEADER + ROW + ROW.replace(",us-east-1", ""), "offers.csv: line 3 has 8 fields, but there are 9 columns"),
        (
            HEADER + ROW.replace("0.8048", "-0.8"),
            "offers.csv: line 2: price_ondemand_usd_h is -0.8; a price cannot be n",
        ),
        (
            HEADER + ROW.replace("0.8048", "NaN"),
            'offers.csv: line 2: price_ondemand_usd_h: "NaN" is not a price in doll',
        ),
        (
            HEADER + ROW.replace("0.8048", "inf"),
            'offers.csv: line 2: price_ondemand_usd_h: "inf" is not a price in doll',
        ),
        (HEADER + ROW.replace("0.8048", "1,5"), "offers.csv: line 2 has 10 fields, but there are 9 columns"),
        (
            HEADER + ROW.replace("L4,1,", "L4,nan,"),
            'offers.csv: line 2: gpu_count is "nan"; it must be a number from 0',
        ),
        (HEADER + ROW.replace("L4,1,", "L4,-1,"), 'offers.csv: line 2: gpu_count is "-1"; it must be a number from 0'),
        (HEADER + ROW.replace("L4,1,", "L4,1e99,"), 'offers.csv: line 2: gpu_count is "1e99"; it must be a number'),
        (HEADER + ROW.replace(",4,16,", ",,16,"), 'offers.csv: line 2: vcpus is ""; it must be a number from 0'),
        (HEADER + ROW.replace("aws,", ","), "offers.csv: line 2 has no provider"),
        (HEADER + '"aws', "offers.csv: line 2 is not CSV: unexpected end of data"),
        (b"\xff\xfe", "offers.csv is not text: "),
        (gzip.compress((HEADER + ROW).encode())[:-9], "offers.csv is not a complete gzip file: "),
    ],
)
def test_invalid_tables(sentence, offers, expected):
    assert sentence(offers=offers).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "weather=sunny",
            '"weather=sunny" is not a valid change; give price=NAME:FACTOR, without=PROVIDER, budget=USD_PER_HOUR or ',
        ),
        ("without=", '"without=" is not a valid change; give price=NAME:FACTOR'),
        ("price=aws", '"price=aws" has no factor; give price=NAME:FACTOR, such as price=H100:0.5'),
        ("price=:2", '"price=:2" has no factor'),
        ("price=aws:-1", '"price=aws:-1": "-1" is not a factor; give a number of at least 0'),
        ("price=aws:nan", '"price=aws:nan": "nan" is not a factor'),
        ("price=aws:inf", '"price=aws:inf": "inf" is not a factor'),
        ("price=RTX9090:2", 'no offer matches "RTX9090"; give a provider, an instance type or a GPU model'),
        ("without=gcp", 'there is no provider "gcp"; providers are: aws'),
        ("budget=lots", '"budget=lots": "lots" is not a budget; give dollars an hour, such as budget=12.50'),
        ("budget=-1", '"budget=-1": "-1" is not a budget'),
        ("budget=nan", '"budget=nan": "nan" is not a budget'),
    ],
)
def test_invalid_what_if_options(sentence, text, expected):
    assert sentence("-f", "work.yaml", "--offers", "offers.csv", "--what-if", text).startswith(f"--what-if {expected}")


def test_a_saved_snapshot_that_is_damaged_or_of_another_release(sentence, tmp_path, capsys):
    (tmp_path / "work.yaml").write_text(POD)
    main(["plan", "-f", "work.yaml", "--save", "seen.json"])
    capsys.readouterr()
    saved = json.loads((tmp_path / "seen.json").read_text())

    newer = json.dumps({**saved, "format": "forebay.dev/snapshot.v7"})
    broken = json.dumps({**saved, "now": "yesterday"})
    lost = json.dumps({**saved, "shapes": []})

    assert sentence(work=newer).startswith('work.yaml cannot be read: its format is "forebay.dev/snapshot.v7", ')
    assert sentence(work=broken).startswith(
        "work.yaml cannot be read: the snapshot is incomplete or damaged: Invalid RFC3339"
    )
    assert sentence(work=lost).startswith("work.yaml cannot be read: the snapshot is incomplete or damaged: ")
    assert sentence("-f", "work.yaml", "-f", "seen.json") == (
        "seen.json is a saved snapshot: give no other file with it"
    )


def test_nothing_but_a_saved_snapshot_is_overwritten(sentence, tmp_path):
    expected = sentence("-f", "work.yaml", "--offers", "offers.csv", "--save", "work.yaml")

    assert expected == "work.yaml exists and is not a saved snapshot: choose another file"
    assert (tmp_path / "work.yaml").read_text() == POD
    assert sentence("-f", "work.yaml", "--save", "no/such/place") == (
        "no/such/place cannot be written: No such file or directory"
    )


def test_no_cluster_at_all(sentence, monkeypatch):
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert "--kubeconfig" in sentence("--offers", "offers.csv")
