"""Machines from environment variables: valid groups are used, invalid ones name the variable to correct."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.api.machines import Machine
from forebay.api.parts import SecretKeyRef, SecretRef, TaintEffect, TaintEntry
from forebay.net.redaction import Redactor
from forebay.providers.registry import read_environment
from forebay.providers.webhook.groups import VARIABLES, read_groups
from tests.unit.api.test_rules import complaints

GOOD = {
    "GPU_NODE_1_NAME": "gpu-worker-1",
    "GPU_NODE_1_GPU_COUNT": "4",
    "GPU_NODE_1_SCALE_UP_ENDPOINT": "http://power-api/gpu-worker-1/start",
    "GPU_NODE_1_SCALE_DOWN_ENDPOINT": "http://power-api/gpu-worker-1/stop",
}


def second(prefix="BIG_ONE", name="big"):
    return {
        key.replace("GPU_NODE_1", prefix): value.replace("gpu-worker-1", name).replace("4", "8")
        for key, value in GOOD.items()
    }


def with_(**changes):
    """The good group after changes by suffix; None removes."""
    changed = GOOD | {f"GPU_NODE_1{suffix}": value for suffix, value in changes.items()}
    return {name: value for name, value in changed.items() if value is not None}


def the_problem(environment):
    groups = read_groups(environment)
    assert groups.machines == ()
    (problem,) = groups.problems
    return problem


def test_the_predecessors_groups_work_as_they_are_whatever_their_prefix():
    groups = read_groups(GOOD | second() | {"PATH": "/bin", "GPU_COUNT": "3"})
    assert groups.problems == ()
    assert [(machine.name, machine.gpu_count) for machine in groups.machines] == [("big", 8), ("gpu-worker-1", 4)]
    machine = groups.machines[1]
    assert machine.scale_up_endpoint == "http://power-api/gpu-worker-1/start"
    assert machine.scale_down_endpoint == "http://power-api/gpu-worker-1/stop"
    assert (machine.timeout, machine.boot_timeout) == ("5s", "15m")


def test_each_machine_knows_the_variable_of_its_gpu_count():
    """Whoever has to correct a wrong number is told where it stands."""
    variables = {
        "LAB_BOX_NAME": "gpu-7",
        "LAB_BOX_GPU_COUNT": "8",
        "LAB_BOX_SCALE_UP_ENDPOINT": "http://power.lan/on",
        "LAB_BOX_SCALE_DOWN_ENDPOINT": "http://power.lan/off",
    }
    assert read_environment(variables).gpu_count_variables == {"gpu-7": "LAB_BOX_GPU_COUNT"}


def test_no_group_at_all_is_no_error():
    assert read_groups({}) == read_groups({"HOME": "/root"})
    assert read_groups({}).problems == ()


def test_every_field_of_a_machine_has_a_variable():
    groups = read_groups(
        with_(
            _STATUS_ENDPOINT="https://power-api/gpu-worker-1",
            _HEADERS_SECRET="power-headers",
            _HMAC_SECRET="infra/power-api/signing-key",
            _TIMEOUT="10s",
            _BOOT_TIMEOUT="20m",
            _TLS_CA_SECRET="power-api/ca.crt",
            _TLS_CLIENT_CERTIFICATE_SECRET="infra/power-client",
            _TLS_SERVER_NAME="power.example.com",
            _TLS_INSECURE_SKIP_VERIFY="false",
            _GPU_TYPE="RTX 4090",
            _GPU_RESOURCE_NAME="amd.com/gpu",
            _CPU="30",
            _MEMORY="240Gi",
            _LABELS="example.com/rack=r7, team=vision",
            _TAINTS="nvidia.com/gpu:NoSchedule,dedicated=ml:NoExecute",
            _HOURLY_PRICE="0.80",
        )
    )
    assert groups.problems == ()
    (machine,) = groups.machines
    assert machine.headers_secret_ref == SecretRef(name="power-headers")
    assert machine.hmac_secret_ref == SecretKeyRef(namespace="infra", name="power-api", key="signing-key")
    assert machine.tls is not None
    assert machine.tls.ca_secret_ref == SecretKeyRef(name="power-api", key="ca.crt")
    assert machine.labels == {"example.com/rack": "r7", "team": "vision"}
    assert machine.taints == (
        TaintEntry(key="nvidia.com/gpu", effect=TaintEffect.NO_SCHEDULE),
        TaintEntry(key="dedicated", value="ml", effect=TaintEffect.NO_EXECUTE),
    )
    stated = {field.encode_name for field in msgspec.structs.fields(Machine)}
    assert {variable.path[0] for variable in VARIABLES.values()} == stated


@pytest.mark.parametrize(
    ("suffix", "advice"),
    [
        ("_NAME", "set it to the name of the machine's Kubernetes node"),
        ("_SCALE_UP_ENDPOINT", "set it to the URL that powers the machine on"),
        ("_SCALE_DOWN_ENDPOINT", "set it to the URL that powers the machine off"),
    ],
)
@pytest.mark.parametrize("missing", [None, "", "  "])
def test_an_incomplete_group_names_the_missing_variable_and_other_groups_are_used(suffix, advice, missing):
    groups = read_groups(with_(**{suffix: missing}) | second())
    assert [machine.name for machine in groups.machines] == ["big"]
    assert groups.problems == (f"GPU_NODE_1{suffix} is missing: {advice}. Forebay skips this machine until then.",)


def test_every_problem_of_a_group_is_named_at_once():
    groups = read_groups(with_(_GPU_COUNT="-1", _NAME=None, _TIMEOUT="soon"))
    assert [problem.partition(" ")[0] for problem in groups.problems] == [
        "GPU_NODE_1_NAME",
        "GPU_NODE_1_GPU_COUNT",
        "GPU_NODE_1_TIMEOUT",
    ]


BAD = [
    ("_GPU_COUNT", "0", "gpuCount"),
    ("_GPU_COUNT", "-3", "gpuCount"),
    ("_GPU_COUNT", "2147483648", "gpuCount"),
    ("_NAME", "GPU_1", "name"),
    ("_NAME", "a" * 254, "name"),
    ("_SCALE_UP_ENDPOINT", "power-api/start", "scaleUpEndpoint"),
    ("_SCALE_UP_ENDPOINT", "ftp://power-api/start", "scaleUpEndpoint"),
    ("_SCALE_DOWN_ENDPOINT", "https://", "scaleDownEndpoint"),
    ("_STATUS_ENDPOINT", "http://a b", "statusEndpoint"),
    ("_STATUS_ENDPOINT", "http://" + "a" * 2048, "statusEndpoint"),
    ("_TIMEOUT", "5 seconds", "timeout"),
    ("_BOOT_TIMEOUT", "1d", "bootTimeout"),
    ("_BOOT_TIMEOUT", "1h" * 17, "bootTimeout"),
    ("_CPU", "many", "cpu"),
    ("_CPU", "0", "cpu"),
    ("_MEMORY", "-1Gi", "memory"),
    ("_MEMORY", "1" * 33, "memory"),
    ("_HOURLY_PRICE", "-1", "hourlyPrice"),
    ("_HOURLY_PRICE", "$1", "hourlyPrice"),
    ("_GPU_TYPE", "x" * 254, "gpuType"),
    ("_GPU_RESOURCE_NAME", "gpu!", "gpuResourceName"),
]


@pytest.mark.parametrize(("suffix", "value", "field"), BAD)
def test_what_the_crd_refuses_the_environment_refuses_too(suffix, value, field):
    problem = the_problem(with_(**{suffix: value}))
    assert problem.startswith(f"GPU_NODE_1{suffix} ")
    assert ": write " in problem
    machine = {
        "name": "gpu-worker-1",
        "gpuCount": 4,
        "scaleUpEndpoint": "http://power-api/gpu-worker-1/start",
        "scaleDownEndpoint": "http://power-api/gpu-worker-1/stop",
    }
    assert complaints(node_class(machine)) == []
    assert complaints(node_class(machine | {field: int(value) if field == "gpuCount" else value}))


def node_class(machine):
    spec = {"providers": [{"name": "webhook", "machines": [machine]}]}
    return {"apiVersion": "forebay.dev/v1alpha1", "kind": "GPUNodeClass", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize(
    ("suffix", "value", "advice"),
    [
        ("_GPU_COUNT", "eight", "write a whole number greater than 0"),
        ("_TIMEOUT", "0", "write more than 0"),
        ("_LABELS", "rack", "write labels like"),
        ("_LABELS", "a=1,a=2", "each key once"),
        ("_LABELS", "kubernetes.io/hostname=x", "are set by Forebay"),
        ("_LABELS", "forebay.dev/gpu-type=x", "are set by Forebay"),
        ("_LABELS", ",".join(f"l{n}=1" for n in range(65)), "at most 64 labels"),
        ("_TAINTS", "nvidia.com/gpu", "write taints like"),
        ("_TAINTS", "nvidia.com/gpu:Never", "write taints like"),
        ("_TAINTS", "a:NoSchedule,a=1:NoSchedule", "each once"),
        ("_TLS_INSECURE_SKIP_VERIFY", "yes", "write true or false"),
    ],
)
def test_an_invalid_value_is_named_with_what_to_write(suffix, value, advice):
    problem = the_problem(with_(**{suffix: value}))
    assert problem.startswith(f"GPU_NODE_1{suffix} is {value!r}: ")
    assert advice in problem


def test_one_url_cannot_power_both_on_and_off():
    problem = the_problem(with_(_SCALE_DOWN_ENDPOINT=GOOD["GPU_NODE_1_SCALE_UP_ENDPOINT"]))
    assert "is the same URL as GPU_NODE_1_SCALE_UP_ENDPOINT: one must power the machine on, the other off" in problem


def test_an_authority_has_no_effect_where_nothing_is_verified():
    problem = the_problem(with_(_TLS_CA_SECRET="a/ca.crt", _TLS_INSECURE_SKIP_VERIFY="true"))
    assert problem.startswith("GPU_NODE_1_TLS_CA_SECRET has no effect with GPU_NODE_1_TLS_INSECURE_SKIP_VERIFY")


@pytest.mark.parametrize(
    ("suffix", "value", "advice"),
    [
        ("_HEADERS_SECRET", "Power Headers", "write the name of a Secret"),
        ("_HMAC_SECRET", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "write a Secret and a key of it"),
        ("_HMAC_SECRET", "a/b/c/d", "write a Secret and a key of it"),
    ],
)
def test_a_secret_written_where_its_name_belongs_is_not_repeated(suffix, value, advice):
    problem = the_problem(with_(**{suffix: value}))
    assert problem.startswith(f"GPU_NODE_1{suffix} is invalid: ")
    assert advice in problem
    assert value not in problem


def test_two_machines_of_one_name_are_a_problem_and_the_first_is_kept():
    groups = read_groups(GOOD | second(name="gpu-worker-1"))
    assert [machine.gpu_count for machine in groups.machines] == [8]
    (problem,) = groups.problems
    assert problem.startswith("GPU_NODE_1_NAME is 'gpu-worker-1', as is BIG_ONE_NAME: give each machine its own name")


def test_a_variable_belongs_to_the_group_with_the_longest_prefix():
    """`GPU_BOOT_TIMEOUT`: the boot timeout of GPU, unless there is a group GPU_BOOT."""
    alone = second("GPU", "small") | {"GPU_BOOT_TIMEOUT": "9m"}
    (machine,) = read_groups(alone).machines
    assert machine.boot_timeout == "9m"
    both = {machine.name: machine for machine in read_groups(alone | second("GPU_BOOT", "large")).machines}
    assert (both["small"].boot_timeout, both["large"].timeout) == ("15m", "9m")


def test_a_password_in_a_url_is_not_repeated():
    problem = the_problem(with_(_SCALE_UP_ENDPOINT="ftp://root:hunter22@power-api/on"))
    assert "hunter22" not in problem
    assert Redactor().text(problem) == problem


_SUFFIXES = st.sampled_from(sorted(VARIABLES))
_VALUES = (
    st.sampled_from([value for _, value, _ in BAD]) | st.sampled_from(sorted(GOOD.values())) | st.text(max_size=80)
)


@pytest.mark.law
@given(
    st.dictionaries(
        st.tuples(st.sampled_from(["A", "A_BOOT", "A_TLS", ""]), _SUFFIXES).map("".join), _VALUES, max_size=4
    )
)
def test_every_group_is_used_or_explained_whatever_the_environment_holds(changes):
    environment = second("A", "a") | second("A_BOOT", "b") | changes
    groups = read_groups(environment)
    begun = [name for name, value in environment.items() if name.endswith("_GPU_COUNT") and value.strip()]
    explained = {problem.split(" ")[0] for problem in groups.problems}
    assert len(groups.machines) <= len(begun)
    assert bool(begun) or not groups.problems
    assert len(groups.machines) == len(begun) or explained
    assert len({machine.name for machine in groups.machines}) == len(groups.machines)
    for machine in groups.machines:
        assert complaints(node_class(msgspec.to_builtins(machine))) == []


def test_every_variable_is_on_the_page_with_its_field():
    page = (Path(__file__).parents[3] / "docs/providers/webhook.md").read_text()
    rows = dict(re.findall(r"^\| `(_[A-Z_]+)`[^|]*\| `([A-Za-z.]+)` \|", page, re.MULTILINE))
    assert rows == {suffix: ".".join(variable.path) for suffix, variable in VARIABLES.items()}


@pytest.mark.parametrize("typed", ["_GPU_CUONT", "_GPUS", None])
def test_a_machine_with_endpoints_and_no_number_of_gpus_is_named(typed):
    """Else nobody would know why the machine is never used."""
    mistyped = second("GPU_NODE_2")
    count = mistyped.pop("GPU_NODE_2_GPU_COUNT")
    groups = read_groups(GOOD | mistyped | ({} if typed is None else {f"GPU_NODE_2{typed}": count}))
    assert [machine.name for machine in groups.machines] == ["gpu-worker-1"]
    assert groups.problems == (
        (
            "GPU_NODE_2_GPU_COUNT is missing: set it to the number of GPUs in the machine. "
            "Forebay skips this machine until then."
        ),
    )


def test_a_mistyped_variable_of_a_machine_is_named_and_the_machine_stays():
    groups = read_groups(with_(_HEADER_SECRET="power", _HOURLY_PRCE="2", _OWNER="lab", _NAMES="x"))
    assert [machine.name for machine in groups.machines] == ["gpu-worker-1"]
    assert groups.problems == (
        (
            "GPU_NODE_1_HEADER_SECRET is no variable of a machine and has no effect; "
            "did you mean GPU_NODE_1_HEADERS_SECRET?"
        ),
        "GPU_NODE_1_HOURLY_PRCE is no variable of a machine and has no effect; did you mean GPU_NODE_1_HOURLY_PRICE?",
    )


def test_a_variable_that_one_of_two_groups_has_is_no_typing_error_of_the_other():
    both = second("BOX", "a") | second("BOX_TLS_CA", "b")
    assert read_groups(both | {"BOX_HOURLY_PRICE": "2", "BOX_TLS_CA_SECRET": "power/ca.crt"}).problems == ()
