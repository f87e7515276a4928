"""The operator with exactly the roles that it prints, on an API server that keeps a record."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from forebay.api.names import (
    ENVIRONMENT_LABEL,
    LEDGER_LABEL,
    OPERATOR_NAME,
    OPERATOR_NAMESPACE,
    RESET_USAGE_ANNOTATION,
)
from forebay.install.permissions import (
    BUDGET_PERMISSIONS,
    CLUSTER_PERMISSIONS,
    NAMESPACE_PERMISSIONS,
    secrets_permission,
)
from forebay.lifecycle.record_fields import INITIAL_STATUS_ANNOTATION
from forebay.net.transport import Request, Response
from forebay.simulate.power import Powered, PowerWorld
from tests.cluster import audit
from tests.cluster.operators import OperatorProcess, until
from tests.cluster.powered import gpu_pod, power_api
from tests.cluster.worlds import (
    FOREBAY,
    World,
    create,
    install_budget_policies,
    install_definitions,
    install_operator_policies,
    world,
)
from tests.rig import Rig, Tier
from tests.rig.binaries import policies_flags
from tests.rig.parts import PLAY
from tests.rig.plugin import require

WATCHED = {
    "nodes",
    "pods",
    "namespaces",
    "gpunodeclasses",
    "gpunodepools",
    "gpuinstances",
    "gpuworkloadbudgets",
    "nodeprovisioners",
    "jobs",
    "certificatesigningrequests",
    "resourceslices",
    "deviceclasses",
    "resourceclaims",
    "poddisruptionbudgets",
}
BATCH = "/apis/batch/v1"
MACHINE = "box"
SECRET = "power-api"
#: What the machine's power switch wants to be shown.
KEY = "Bearer of-the-lab"
ACCOUNT = f"system:serviceaccount:{OPERATOR_NAMESPACE}:{OPERATOR_NAME}"


@pytest.fixture
def old_rig():
    """A server without WatchList, as older ones are: there, `list` is needed beside `watch`."""
    require(Tier.CLUSTER)
    flags = ["--feature-gates=WatchList=false", *policies_flags()]
    with Rig.start(Tier.CLUSTER, audit=True, api_server_flags=flags) as rig:
        install_definitions(rig)
        yield rig


def grants() -> set[tuple[str, str, str, str]]:
    """(scope, group, resource, verb), one for each thing that the roles allow."""
    return {
        (scope, each.group, resource, verb)
        for scope, permissions in (
            ("everywhere", (*CLUSTER_PERMISSIONS, *BUDGET_PERMISSIONS)),
            ("at home", (*NAMESPACE_PERMISSIONS, secrets_permission([SECRET]))),
        )
        for each in permissions
        for resource in each.resources
        for verb in each.verbs
    }


def use(entry: audit.Entry) -> tuple[str, str, str, str]:
    """What a request needs. What is asked of another namespace, or of all, must be granted everywhere."""
    scope = "at home" if entry.namespace == OPERATOR_NAMESPACE else "everywhere"
    return (scope, entry.group, entry.resource, entry.verb)


#: A machine that the operator's environment variables name. No pod of the story tolerates its taint.
SPARE = {
    "SPARE_NAME": "spare",
    "SPARE_GPU_COUNT": "1",
    "SPARE_SCALE_UP_ENDPOINT": "http://127.0.0.1:1/on",
    "SPARE_SCALE_DOWN_ENDPOINT": "http://127.0.0.1:1/off",
    "SPARE_TAINTS": "reserved:NoSchedule",
}


def operators_of(rig: Rig) -> tuple[OperatorProcess, OperatorProcess]:
    """As in its pod: with the token of its account, and nothing else. The second without environment variables."""
    kubeconfig = account_of(rig, "--secret", SECRET)
    return (
        OperatorProcess(rig, "operator", kubeconfig, OPERATOR_NAMESPACE, SPARE),
        OperatorProcess(rig, "next-operator", kubeconfig, OPERATOR_NAMESPACE),
    )


def account_of(rig: Rig, *options: str) -> Path:
    """Kubeconfig of the operator's account, with the roles that are printed with these options."""
    printed = subprocess.run(
        [sys.executable, "-m", "forebay", "manifests", "rbac", *options],
        check=True,
        capture_output=True,
        text=True,
    )
    for manifest in yaml.safe_load_all(printed.stdout):
        create(rig, manifest)
    install_operator_policies(rig, ACCOUNT)
    kubeconfig = rig.kubeconfig_for("replaced")
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": rig.token_for(f"{OPERATOR_NAMESPACE}/{OPERATOR_NAME}")}
    kubeconfig.write_text(yaml.safe_dump(document))
    return kubeconfig


class RbacCase:
    """Every reason that there is to act, once."""

    def __init__(
        self, made: World, operators: tuple[OperatorProcess, OperatorProcess], power: PowerWorld, base: str
    ) -> None:
        self.made = made
        self.operator, self.next_operator = operators
        self.power = power
        [configured] = power.configured(base, status=False)
        self.machine = {**msgspec.to_builtins(configured), "headersSecretRef": {"name": SECRET}}

    async def tell(self) -> None:
        await until(self.operator.is_ready, "the operator is ready")
        secret = {"metadata": {"name": SECRET}, "stringData": {"Authorization": KEY}}
        await self.made.call("POST", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/secrets", secret)
        await self.what_is_published_is_set_back()
        await self.pools_are_told_of_their_class()
        await self.a_machine_serves_a_pod_and_goes()
        await self.its_next_record_is_deleted_while_it_is_in_use()
        await self.a_rented_machine_is_gone_and_so_is_its_node()
        await self.a_node_provisioner_is_told_that_its_provider_is_not_served()
        await self.a_budget_suspends_a_job_and_goes()
        # The series, due in half a minute, is written before it leaves; the lease is given back.
        await self.operator.leave()
        self.next_operator.start()
        await until(self.published(count=0), "without variables, nothing is published")
        await self.next_operator.leave()

        async def logged() -> bool:
            entries = audit.entries(self.made.rig.audit_log, ACCOUNT)
            return {each.resource for each in entries if each.is_watch} == WATCHED

        await until(logged, "the ends of the watches are in the audit log")

    async def what_is_published_is_set_back(self) -> None:
        await until(self.published(count=1), "the machine of the environment is published")
        path = f"{FOREBAY}/namespaces/{OPERATOR_NAMESPACE}/gpunodepools/environment"

        async def set_back() -> bool:
            return bool((await self.made.call("GET", path))["spec"]["weight"] == 10)

        await self.made.change_spec(path, {"weight": 99})
        await until(set_back, "the pool is set back")

    def published(self, count: int) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            paths = (f"{FOREBAY}/gpunodeclasses", f"{FOREBAY}/namespaces/{OPERATOR_NAMESPACE}/gpunodepools")
            found = [await self.made.call("GET", f"{path}?labelSelector={ENVIRONMENT_LABEL}") for path in paths]
            return all(len(each["items"]) == count for each in found)

        return is_so

    async def pools_are_told_of_their_class(self) -> None:
        uids = {}
        for namespace in (self.made.name, self.made.home):
            uids[namespace] = await self.made.create_pool("pool", namespace)
            await self.made.told("pool", uids[namespace], "NodeClassNotFound", namespace)
        # The second time that a class is found or lost is the same event again: a series.
        for machine, reason in (
            (self.machine, "NodeClassFound"),
            (None, "NodeClassNotFound"),
            (self.machine, "NodeClassFound"),
        ):
            await (self.made.delete_class() if machine is None else self.made.create_class(machine))
            for namespace, uid in uids.items():
                await self.made.told("pool", uid, reason, namespace)

    async def a_machine_serves_a_pod_and_goes(self) -> None:
        await self.create_pod("short", **{PLAY["RUN_FOR"]: "1s"})
        await until(self.phase("short", "Succeeded"), "the pod has run")
        await until(self.state("Gone"), "the machine has gone")
        # It said that it goes, and takes its moment.
        await until(self.off, "the machine is off")

    async def its_next_record_is_deleted_while_it_is_in_use(self) -> None:
        await self.create_pod("long")
        await until(self.state("Ready"), "the machine is there again")
        await until(self.phase("long", "Running"), "the pod runs")
        await self.made.call("DELETE", f"{FOREBAY}/gpuinstances/{MACHINE}")
        await until(self.state(None), "the record is let go")
        await until(self.off, "the machine is off")
        assert self.power.powered_off_in_use() == ()

    async def a_rented_machine_is_gone_and_so_is_its_node(self) -> None:
        await self.made.call("POST", "/api/v1/nodes", {"metadata": {"name": "rented"}})
        gone = {"state": "Gone", "reason": "Terminated", "instanceID": "i-1", "since": "2026-01-01T00:00:00Z"}
        record = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "GPUInstance",
            "metadata": {"name": "rented", "annotations": {INITIAL_STATUS_ANNOTATION: json.dumps(gone)}},
            "spec": {"provider": "simulated", "delivers": "Node", "node": {"name": "rented"}},
        }
        await self.made.call("POST", f"{FOREBAY}/gpuinstances", record)

        async def is_gone() -> bool:
            nodes = (await self.made.call("GET", "/api/v1/nodes"))["items"]
            return "rented" not in {each["metadata"]["name"] for each in nodes}

        await until(is_gone, "the Node of the rented machine is deleted")
        await until(self.state(None), "its record is let go")

    async def a_node_provisioner_is_told_that_its_provider_is_not_served(self) -> None:
        provisioner = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "NodeProvisioner",
            "metadata": {"name": "groups"},
            "spec": {
                "existingInstanceGroupNames": ["group-1"],
                "minGPUUtilizationPercent": 80,
                "provider": {"name": "elsewhere"},
            },
        }
        path = f"{FOREBAY}/nodeprovisioners"
        await self.made.call("POST", path, provisioner)

        async def is_told() -> bool:
            status = (await self.made.call("GET", f"{path}/groups")).get("status") or {}
            return "ProviderNotServed" in {each["reason"] for each in status.get("conditions", ())}

        await until(is_told, "the NodeProvisioner says that there is no such provider")
        await self.made.call("DELETE", f"{path}/groups")

    async def off(self) -> bool:
        return not self.power.on

    async def a_budget_suspends_a_job_and_goes(self) -> None:
        """Its ledger is written, written over, and outlives it, until a budget of its name begins at zero."""
        budget = {
            "apiVersion": "forebay.dev/v1alpha1",
            "kind": "GPUWorkloadBudget",
            "metadata": {"name": "team"},
            "spec": {
                "selector": {"matchLabels": {"team": "a"}},
                "quota": {"gpuHours": "1", "windowHours": 1},
                "enforcement": {"action": "Pause", "gracePeriodSeconds": 0},
                "accounting": "Exact",
            },
        }
        path = f"{FOREBAY}/namespaces/{self.made.name}/gpuworkloadbudgets"
        await self.made.call("POST", path, budget)
        pod = gpu_pod("short", 1, **{PLAY["RUN_FOR"]: "1s"})
        pod["metadata"] |= {"name": "brief", "labels": {"team": "a"}}
        await self.made.call("POST", f"/api/v1/namespaces/{self.made.name}/pods", pod)
        await until(self.ledgers(1), "the time of the pod is stored")
        template = {
            "metadata": {"labels": {"team": "a"}},
            "spec": {**gpu_pod("job", 1)["spec"], "restartPolicy": "Never"},
        }
        job = {"metadata": {"name": "work"}, "spec": {"template": template}}
        await self.made.call("POST", f"{BATCH}/namespaces/{self.made.name}/jobs", job)
        await until(self.job_runs, "the Job runs")
        quota = budget["spec"]["quota"] | {"gpuHours": "1u"}
        await self.made.change_spec(f"{path}/team", {"quota": quota})
        await until(self.suspended(True), "the Job is suspended")
        # KWOK ends no pod before it deletes it, as kubelets do: after a minute it is not waited for.
        await until(self.nobody, "its pod was let go, which its ledger was written over for", within=150)
        await self.made.call("DELETE", f"{path}/team")
        await until(self.ledgers(1), "the ledger outlives its budget")
        await until(self.suspended(False), "the Job goes on")
        (ledger,) = await self.ledger_names()
        budget["metadata"]["annotations"] = {RESET_USAGE_ANNOTATION: "true"}
        budget["spec"]["enforcement"]["action"] = "AlertOnly"
        await self.made.call("POST", path, budget)

        async def is_gone() -> bool:
            return ledger not in await self.ledger_names()

        await until(is_gone, "the ledger before the reset is deleted")

    async def job_runs(self) -> bool:
        return any(pod["status"].get("phase") == "Running" for pod in (await self.pods_of_job())["items"])

    def ledgers(self, count: int) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return len(await self.ledger_names()) == count

        return is_so

    async def ledger_names(self) -> list[str]:
        path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps?labelSelector={LEDGER_LABEL}"
        return [each["metadata"]["name"] for each in (await self.made.call("GET", path))["items"]]

    def suspended(self, suspended: bool) -> Callable[[], Awaitable[bool]]:  # noqa: FBT001 (as the field)
        async def is_so() -> bool:
            job = await self.made.call("GET", f"{BATCH}/namespaces/{self.made.name}/jobs/work")
            return bool(job["spec"].get("suspend")) == suspended

        return is_so

    async def nobody(self) -> bool:
        return not (await self.pods_of_job())["items"]

    async def pods_of_job(self) -> Any:
        pods = f"/api/v1/namespaces/{self.made.name}/pods"
        return await self.made.call("GET", f"{pods}?labelSelector=batch.kubernetes.io/job-name")

    async def create_pod(self, name: str, **annotations: str) -> None:
        await self.made.call("POST", f"/api/v1/namespaces/{self.made.name}/pods", gpu_pod(name, 1, **annotations))

    def phase(self, name: str, phase: str) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            pods = await self.made.call("GET", f"/api/v1/namespaces/{self.made.name}/pods")
            return any(pod["metadata"]["name"] == name and pod["status"].get("phase") == phase for pod in pods["items"])

        return is_so

    def state(self, state: str | None) -> Callable[[], Awaitable[bool]]:
        """None: there is no record."""

        async def is_so() -> bool:
            records = (await self.made.call("GET", f"{FOREBAY}/gpuinstances"))["items"]
            if state is None:
                return not records
            return any(each.get("status", {}).get("state") == state for each in records)

        return is_so


@asynccontextmanager
async def story(rig: Rig, operators: tuple[OperatorProcess, OperatorProcess]) -> AsyncIterator[RbacCase]:
    def guard(request: Request) -> Response | None:
        return None if request.headers.get("Authorization") == KEY else Response(401)

    machine = Powered(name=MACHINE, gpus=1, boot=0.5, shutdown=0.1)
    async with world(rig) as made, power_api(rig, [machine], guard=guard) as (power, base):
        yield RbacCase(made, operators, power, base)


@pytest.mark.real_time
@pytest.mark.timeout(400)
async def test_everything_granted_is_used_and_nothing_used_is_refused(old_rig):
    operators = operators_of(old_rig)
    install_budget_policies(old_rig)
    operators[0].start()
    try:
        async with story(old_rig, operators) as told:
            [failure] = await asyncio.gather(told.tell(), return_exceptions=True)
    finally:
        for each in operators:
            each.stop()

    requests = audit.entries(old_rig.audit_log, ACCOUNT)
    # Whatever else was answered (404: there is no lease yet) was allowed.
    used = {use(each) for each in requests if not each.refused}
    refused = {use(each) for each in requests if each.refused}
    nothing = {"granted and unused": set(), "refused": set()}
    # First, for a refusal is why the story failed, if it did.
    assert {"granted and unused": grants() - used, "refused": refused} == nothing, failure
    if failure is not None:
        raise failure


@pytest.mark.real_time
@pytest.mark.timeout(400)
async def test_without_budgets_nothing_is_refused_either(old_rig):
    operator = OperatorProcess(
        old_rig, "operator", account_of(old_rig, "--budgets", "off"), OPERATOR_NAMESPACE, {"FOREBAY_BUDGETS": "off"}
    )
    operator.start()
    try:
        async with world(old_rig) as made:
            await until(operator.is_ready, "the operator is ready")
            budgets = f"{FOREBAY}/namespaces/default/gpuworkloadbudgets"
            spec = {
                "selector": {"matchLabels": {"team": "a"}},
                "quota": {"gpuHours": "1", "windowHours": 1},
                "enforcement": {"action": "Pause"},
            }
            await made.call(
                "POST",
                budgets,
                {
                    "kind": "GPUWorkloadBudget",
                    "apiVersion": "forebay.dev/v1alpha1",
                    "metadata": {"name": "team-a"},
                    "spec": spec,
                },
            )

            async def told() -> bool:
                found = await made.call("GET", f"{budgets}/team-a")
                return "BudgetsOff" in {each["reason"] for each in found.get("status", {}).get("conditions", ())}

            await until(told, "the budget says that nothing is done for it")
    finally:
        operator.stop()
    requests = audit.entries(old_rig.audit_log, ACCOUNT)
    assert {use(each) for each in requests if each.refused} == set()
    assert {each.resource for each in requests if each.verb == "watch"} == WATCHED - {"jobs"}
