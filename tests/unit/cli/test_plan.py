"""`forebay plan` from files: which machines are bought for the pods, why, and which pods are left out."""

import io
import json
import os

import pytest
import structlog

from forebay.cli import main

OFFERS = """\
provider,instance_type,gpu_model,gpu_count,gpu_mem_gib,vcpus,memory_gib,price_ondemand_usd_h,price_spot_usd_h,region,zone
aws,g6.xlarge,L4,1,24,4,16,0.8048,0.3,us-east-1,use1-az1
aws,g6.12xlarge,L4,4,24,48,192,4.6016,,us-east-1,use1-az1
gcp,g2-standard-4,L4,1,24,4,16,0.7068,,us-central1,us-central1-a
nebius,h100-1,H100,1,80,16,200,2.95,,eu-north1,
"""

JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team}
spec:
  parallelism: 3
  completions: 3
  template:
    metadata: {creationTimestamp: null}
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: work, resources: {limits: {nvidia.com/gpu: 1}, requests: {cpu: 2.5, memory: 8Gi}}}
"""


@pytest.fixture(autouse=True)
def _own_logging():
    yield
    # The command has tied logging to a standard error that is gone after the test.
    structlog.reset_defaults()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a price table, in which the command is run."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("FOREBAY_", "GPU_NODE_", "KUBECONFIG"))]:
        monkeypatch.delenv(name)
    (tmp_path / "offers.csv").write_text(OFFERS)
    return tmp_path


@pytest.fixture
def plan(here, capsys):
    """`plan(manifests, *options)`: exit code and what was printed."""

    def run(manifests, *options):
        (here / "work.yaml").write_text(manifests)
        code = main(["plan", "-f", "work.yaml", "--offers", "offers.csv", *options])
        printed = capsys.readouterr()
        assert printed.err == ""
        return code, printed.out

    return run


@pytest.fixture
def planned(plan):
    def run(manifests, *options):
        code, printed = plan(manifests, "--output", "json", *options)
        return code, json.loads(printed)

    return run


def pod(name, gpus=1, *, node=None, **spec):
    container = {"name": "main", "image": "work", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    body = {"containers": [container], **({"nodeName": node} if node else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "team"}, "spec": body}


def node(name, gpus, **metadata):
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, **metadata},
        "status": {"allocatable": amounts},
    }


def many(*objects):
    return "\n---\n".join(map(json.dumps, objects))


def bought(document):
    return [(each["kind"]["instance_type"], each["pods"]) for each in document["plan"]["machines"]]


def node_class(*providers, **spec):
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "cloud"},
        "spec": {"providers": list(providers), "allowedNamespaces": {}, "allowedPodNamespaces": {}, **spec},
    }


def node_pool(**spec):
    return {
        "apiVersion": "forebay.dev/v1alpha1",
        "kind": "GPUNodePool",
        "metadata": {"name": "gpus", "namespace": "team"},
        "spec": {"nodeClassRef": {"name": "cloud"}, **spec},
    }


def test_a_job_is_planned_for_before_it_exists(plan):
    code, printed = plan(JOB)

    assert code == 0
    assert printed.startswith("3 pods wait for a GPU. 3 machines would be bought for all 3, at $2.1204/h.\n")
    assert "\n3     gcp g2-standard-4   1 x L4   us-central1-a   $0.7068/h   3\n" in printed
    assert "3 x gcp g2-standard-4, for team/train-0, team/train-1 and team/train-2\n" in printed
    text = " ".join(printed.split())
    assert "L4 in us-central1-a at $0.7068/h (gcp g2-standard-4) was chosen over L4 in use1-az1 at $0.8048/h" in text
    assert "Also possible: nebius h100-1 +$2.2432/h" in text


def test_machines_of_one_type_share_a_line(plan):
    """One pod has an alternative, the other has none: the sentences differ."""
    _, printed = plan(many(pod("a"), pod("b", nodeSelector={"topology.kubernetes.io/region": "us-central1"})))

    assert "\n2     gcp g2-standard-4   1 x L4   us-central1-a   $0.7068/h   2\n" in printed
    assert "gcp g2-standard-4, for team/a\n" in printed
    assert "gcp g2-standard-4, for team/b\n" in printed
    assert "no other available offer fits the same pods" in " ".join(printed.split())


def test_the_output_fits_80_columns(plan):
    _, printed = plan(JOB + "---\n" + many(pod("giant", 64)), "--what-if", "without=gcp")

    assert max(map(len, printed.splitlines())) <= 80
    assert "\x1b" not in printed


def test_json_has_exact_money(planned):
    code, document = planned(JOB)

    plan = document["plan"]
    assert code == 0
    assert (plan["pods"], plan["price"], plan["cost"]) == (3, "2.1204", "2.1204")
    assert float(plan["bound"]) == pytest.approx(2.1204, abs=1e-3)
    assert plan["gap"] < 0.001
    assert [each["pods"] for each in plan["machines"]] == [["team/train-0"], ["team/train-1"], ["team/train-2"]]
    assert plan["machines"][0]["alternatives"][0] == {
        "kind": {
            "provider": "aws",
            "instance_type": "g6.xlarge",
            "machine": None,
            "region": "us-east-1",
            "zone": "use1-az1",
            "spot": False,
            "gpu_type": "L4",
            "gpu_count": 1,
            "price": "0.8048",
            "pool": None,
            "node_class": None,
        },
        "more": "0.098",
    }
    assert document["what_if"] is None
    assert document["notes"] == []


def test_pods_left_out_are_listed_with_the_reason_and_the_exit_code_is_1(plan, planned):
    work = many(pod("small"), pod("giant", 64))

    code, printed = plan(work)
    _, document = planned(work)

    assert code == 1
    assert "2 pods wait for a GPU. 1 machine would be bought for 1 of them, at $0.7068/h. 1\nis left out." in printed
    assert "Left out\n  team/giant: NoOfferFits\n" in printed
    (left,) = document["plan"]["left_out"]
    assert left["reason"] == "NoOfferFits"
    assert "requests 64 nvidia.com/gpu (largest offer: 4): request less, or allow larger machines" in left["sentence"]


def test_spot_is_used_only_where_it_is_allowed(planned):
    _, careful = planned(JOB)
    _, daring = planned(JOB, "--spot")

    assert {each["kind"]["spot"] for each in careful["plan"]["machines"]} == {False}
    assert [each["kind"]["price"] for each in daring["plan"]["machines"]] == ["0.3"] * 3
    assert {each["kind"]["spot"] for each in daring["plan"]["machines"]} == {True}


def test_pods_that_fit_on_existing_nodes_need_no_machine(planned):
    work = many(node("old", 2), pod("running", node="old"), pod("first"), pod("second"))

    code, document = planned(work)

    assert code == 0
    assert bought(document) == [("g2-standard-4", ["team/second"])]
    assert document["plan"]["placed"] == [
        {
            "pod": "team/first",
            "reason": "FitsExisting",
            "sentence": "Node old has room for the pod; kube-scheduler will place it.",
        }
    ]


def test_no_pod_waits(plan):
    assert plan(many(node("old", 2))) == (0, "No pod waits for a GPU: nothing would be bought.\n")


def test_pods_without_gpus_and_other_kinds_are_ignored(planned):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    web = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}}

    code, document = planned(many(service, web))

    assert (code, document["plan"]["pods"]) == (0, 0)
    assert document["notes"] == [
        "1 pod requests no GPU and is not planned for.",
        "1 x Service ignored: it says nothing about GPU capacity.",
    ]


def test_pods_in_the_files_count_instead_of_their_workload(planned):
    """As in `kubectl get all -o yaml`: the Deployment, its ReplicaSet and the pods are all in the file."""
    template = {"metadata": {}, "spec": pod("x")["spec"]}

    def made_by(kind, name):
        return [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}]

    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"replicas": 2, "template": template},
    }
    replicas = {**deployment, "kind": "ReplicaSet"}
    replicas["metadata"] = {"name": "web-1", "namespace": "team", "ownerReferences": made_by("Deployment", "web")}
    only = pod("web-1-abc")
    only["metadata"]["ownerReferences"] = made_by("ReplicaSet", "web-1")

    _, alone = planned(many(deployment))
    _, with_set = planned(many(deployment, replicas))
    _, with_pod = planned(many(deployment, replicas, only))

    assert [pods for _, pods in bought(alone)] == [["team/web-0"], ["team/web-1"]]
    assert [pods for _, pods in bought(with_set)] == [["team/web-1-0"], ["team/web-1-1"]]
    assert [pods for _, pods in bought(with_pod)] == [["team/web-1-abc"]]


@pytest.mark.parametrize(
    ("change", "pods"),
    [
        ({}, 3),
        ({"parallelism": 2}, 2),
        ({"completions": 1}, 1),
        ({"suspend": True}, 0),
        ({"status": {"succeeded": 2}}, 1),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, 0),
    ],
)
def test_a_job_has_as_many_pods_as_it_would_run_now(planned, change, pods):
    spec = {"parallelism": 3, "completions": 3, "template": {"spec": pod("x")["spec"]}, **change}
    status = spec.pop("status", {})
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec, "status": status}

    _, document = planned(many(job))

    assert document["plan"]["pods"] == pods


def test_a_cron_job_counts_as_one_of_its_jobs(planned):
    job = {"spec": {"parallelism": 2, "template": {"spec": pod("x")["spec"]}}}
    nightly = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "team"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": job},
    }

    _, document = planned(many(nightly))

    assert [pods for _, pods in bought(document)] == [["team/nightly-0"], ["team/nightly-1"]]


def test_a_pool_serves_the_namespaces_it_selects(planned):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {"kind": "lab"}}}
    other = pod("other")
    other["metadata"]["namespace"] = "elsewhere"
    pool = node_pool(namespaceSelector={"matchLabels": {"kind": "lab"}})

    code, document = planned(many(namespace, pod("ours"), other, node_class({"name": "gcp"}), pool))

    assert code == 1
    assert bought(document) == [("g2-standard-4", ["team/ours"])]
    assert [each["pod"] for each in document["plan"]["left_out"]] == ["elsewhere/other"]
    assert "serve other namespaces than elsewhere" in document["plan"]["left_out"][0]["sentence"]


def test_daemonsets_take_their_share_of_new_nodes(planned):
    agent = {"name": "agent", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "system"},
        "spec": {"template": {"spec": {"containers": [agent]}}},
    }

    _, without = planned(JOB)
    _, beside = planned(JOB + "---\n" + many(daemons))

    assert {machine for machine, _ in bought(without)} == {"g2-standard-4"}
    assert {machine for machine, _ in bought(beside)} <= {"g6.12xlarge", "h100-1"}, "2 of 4 CPUs are not 2.5"


def test_pools_limit_prices_and_classes_name_providers(planned):
    aws = {"name": "aws"}
    gcp = {"name": "gcp", "priority": 5}

    _, by_priority = planned(many(pod("p"), node_class(aws, gcp), node_pool()))
    code, too_dear = planned(many(pod("p"), node_class({"name": "nebius"}), node_pool(maxHourlyPrice="2")))

    (machine,) = by_priority["plan"]["machines"]
    assert machine["kind"]["instance_type"] == "g6.xlarge", "0.7068 x 1.5 is more than 0.8048"
    assert (machine["kind"]["pool"], machine["kind"]["node_class"]) == ("team/gpus", "cloud")
    assert code == 1
    assert too_dear["plan"]["left_out"][0]["reason"] == "PriceTooHigh"
    assert "the maxHourlyPrice of GPUNodePool team/gpus" in too_dear["plan"]["left_out"][0]["sentence"]


def test_owned_machines_are_used_before_money_is_spent(planned):
    machine = {
        "name": "attic",
        "gpuCount": 2,
        "scaleUpEndpoint": "http://127.0.0.1:1/on",
        "scaleDownEndpoint": "http://127.0.0.1:1/off",
    }
    own = {"name": "webhook", "machines": [machine]}

    _, document = planned(many(pod("a"), pod("b"), pod("c"), node_class(own, {"name": "gcp"}), node_pool()))

    assert bought(document) == [("attic", ["team/a", "team/b"]), ("g2-standard-4", ["team/c"])]
    assert document["plan"]["price"] == "0.7068"


def test_a_provider_without_known_offers_is_named(here, capsys):
    (here / "work.yaml").write_text(many(pod("p"), node_class({"name": "aws"}), node_pool()))

    code = main(["plan", "-f", "work.yaml", "-o", "json"])

    document = json.loads(capsys.readouterr().out)
    assert code == 1
    assert document["notes"][0].startswith(
        "GPUNodeClass cloud: This release of Forebay does not serve the provider aws"
    )
    assert document["notes"][1].startswith("There are no offers: give a table with --offers")


def test_the_secret_of_a_class_has_no_namespace_where_none_is_known(here, capsys):
    (here / "work.yaml").write_text(
        "apiVersion: forebay.dev/v1alpha1\nkind: GPUNodeClass\nmetadata: {name: c}\nspec:\n"
        "  providers: [{name: lambdalabs, credentialsRef: {name: key, key: api-key}}]\n  cloudInit: {template: x}\n"
    )
    assert main(["plan", "-f", "work.yaml"]) == 0
    assert "Secret key is not at hand when planning from files" in " ".join(capsys.readouterr().out.split())


def test_offers_of_containers_are_ignored(here, planned):
    (here / "offers.csv").write_text(OFFERS + "runpod,rtx4090,RTX4090,1,24,8,32,0.01,,,\n")

    _, document = planned(JOB)

    assert {each["kind"]["provider"] for each in document["plan"]["machines"]} == {"gcp"}
    assert document["notes"] == ["Offers of runpod are ignored: they run containers, not nodes."]


def test_what_if_a_price_changes(planned, plan):
    _, document = planned(JOB, "--what-if", "price=gcp:1.25")
    _, printed = plan(JOB, "--what-if", "price=gcp:1.25")

    what_if = document["what_if"]
    assert what_if["supposed"] == ["price=gcp:1.25"]
    assert document["plan"]["price"] == "2.1204"
    assert what_if["plan"]["price"] == "2.4144"
    assert what_if["difference"]["price"] == "0.294"
    changes = [(each["kind"]["provider"], each["before"], each["after"]) for each in what_if["difference"]["machines"]]
    assert changes == [("gcp", 3, 0), ("aws", 0, 3)]
    assert printed.startswith("What if price=gcp:1.25:\n  Price     $2.1204/h -> $2.4144/h (+$0.294/h)\n")
    assert "\n            -3 gcp g2-standard-4 (1 x L4, us-central1-a)\n" in printed
    assert "\nThen:\n3 pods wait for a GPU. 3 machines would be bought" in printed


@pytest.mark.parametrize(("name", "price"), [("L4", "1.0602"), ("nvidia l4", "1.0602"), ("g2-standard-4", "1.0602")])
def test_a_price_can_be_that_of_a_model_under_any_name_or_of_a_type(planned, name, price):
    _, document = planned(JOB, "--what-if", f"price={name}:0.5")

    assert document["what_if"]["plan"]["price"] == price


def test_the_same_machines_at_another_price_are_not_a_change(planned):
    _, document = planned(JOB, "--what-if", "price=gcp:0.5")

    assert document["what_if"]["difference"] == {
        "price": "-1.0602",
        "cost": "-1.0602",
        "machines": [],
        "served": [],
        "no_longer_served": [],
    }


def test_what_if_there_is_a_budget(planned, plan):
    code, document = planned(JOB, "--what-if", "budget=1.5")
    _, printed = plan(JOB, "--what-if", "budget=1.5")

    what_if = document["what_if"]
    assert code == 1, "the exit code is that of the what-if plan"
    assert what_if["plan"]["price"] == "1.4136"
    assert what_if["difference"]["no_longer_served"] == [each["pod"] for each in what_if["plan"]["left_out"]]
    assert what_if["plan"]["left_out"][0]["reason"] == "LimitReached"
    assert "the budget of --what-if leaves no room for it" in what_if["plan"]["left_out"][0]["sentence"]
    assert "  Left out  0 -> 1\n            no longer served: team/train-2\n" in printed


def test_several_what_if_changes_apply_together(planned):
    code, document = planned(JOB, "--what-if", "without=gcp", "--what-if", "without=aws", "--what-if", "budget=6")

    assert code == 1
    assert [each["kind"]["provider"] for each in document["what_if"]["plan"]["machines"]] == ["nebius", "nebius"]


def test_a_saved_snapshot_gives_the_same_plan(here, planned, capsys):
    work = many(node("old", 2), pod("running", node="old"), pod("a"), pod("b", 2), pod("c"), pod("giant", 64))
    code, first = planned(work, "--save", "seen.json")

    again = main(["plan", "-f", "seen.json", "-o", "json"])

    second = json.loads(capsys.readouterr().out)
    assert (again, second["plan"], second["now"]) == (code, first["plan"], first["now"])
    assert (here / "seen.json").stat().st_mode & 0o777 == 0o600
    assert main(["plan", "-f", "seen.json", "--what-if", "without=gcp", "--save", "seen.json"]) == 1


def test_manifests_may_come_as_lists_folders_json_and_by_standard_input(here, capsys, monkeypatch):
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod("a"), pod("b")]})
    bare = [{key: value for key, value in pod("c").items() if key in ("metadata", "spec")}]
    (here / "all").mkdir()
    (here / "all/one.json").write_text(listed)
    (here / "all/two.yml").write_text(
        json.dumps({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": bare})
    )
    (here / "all/README.md").write_text("no manifest")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(JOB.encode())))

    code = main(["plan", "-f", "all", "-f", "-", "--offers", "offers.csv", "-o", "json"])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["where"] == "all, standard input"
    assert sorted(name for _, pods in bought(document) for name in pods) == [
        "team/a",
        "team/b",
        "team/c",
        "team/train-0",
        "team/train-1",
        "team/train-2",
    ]
